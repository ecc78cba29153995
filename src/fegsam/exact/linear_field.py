"""Mean fields of the algorithms that are linear in their parameters.

These are temporal differences with features (Algorithms 2 and 5) and linear operators (Algorithm 1
as `LinearSA`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.structure import LinearOperator, TemporalDifference
from fegsam.errors import ProblemError
from fegsam.exact.chains import look_ahead, n_step_rewards
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.checks import solve
from fegsam.problem.federation import Federation

_CURE = (
    "change the policies, features or horizon, or pass a point to measure against as run(..., "
    "fixed_point=...)"
)


@dataclass(frozen=True, eq=False)
class LinearField:
    """The mean increment of kind k is ``offsets[k] - matrices[k] @ theta``.

    It is stable if every eigenvalue of the matrix has a positive real part.
    """

    matrices: np.ndarray
    """(M, d, d), or (1, d, d) for all kinds: A_k"""
    offsets: np.ndarray
    """(M, d), or (1, d)"""
    is_definite: bool = False
    """Whether A_k + A_k' is known to be positive definite for every kind, even if rounding hides
    it"""

    def __len__(self) -> int:
        return len(self.matrices)

    def root(self, weights: np.ndarray) -> np.ndarray:
        """(d,): the root of the sum of the fields, weighted by `weights` (M or 1,)."""
        matrix = np.tensordot(weights, self.matrices, axes=1)
        if not self.is_definite and _is_singular(matrix):
            kinds = ", ".join(str(kind) for kind in np.flatnonzero(weights)[:5])
            raise ProblemError(
                f"The mean matrix of agent kind(s) {kinds} is singular, so no single point is "
                f"fixed; {_CURE}."
            )
        return solve(matrix, weights @ self.offsets, "the mean increment")

    def require_stable(self, weights: np.ndarray) -> None:
        """Raise `ProblemError` if the averaged iteration diverges at every step size.

        It diverges if some eigenvalue of the average matrix has a real part that is not positive.
        This can happen even if each agent's own matrix is stable.
        """
        if self.is_definite:
            return
        eigenvalues = np.linalg.eigvals(np.tensordot(weights, self.matrices, axes=1))
        smallest = float(eigenvalues.real.min())
        if smallest <= len(eigenvalues) * np.finfo(float).eps * float(np.abs(eigenvalues).max()):
            raise ProblemError(
                "The average of the agents' mean matrices is unstable, so the algorithm diverges: "
                f"it has an eigenvalue with real part {0.0 - smallest:.3g}, which must be negative "
                f"beyond rounding; {_CURE}."
            )


def _is_singular(matrix: np.ndarray) -> bool:
    """Whether the matrix is singular to rounding once each row is scaled to one.

    Rare states make small rows, not singular matrices.
    """
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    if not largest.all():
        return True
    return bool(np.linalg.cond(matrix / largest) * np.finfo(float).eps > 0.1)


def projected_field(
    problem: Federation, structure: TemporalDifference, policies: np.ndarray
) -> LinearField:
    """The mean field of n-step TD with features, the paper's eq. G_bar_linear_TD, where A is d x d.

    ``A_k = Rows_k' D_k (I - gamma^n P_k^n) Phi``, and the offset is ``Rows_k' D_k r_{n,k}``. P_k is
    the target policy's chain in the environment of kind k, or its part that continues where
    episodes end, and D_k = diag(mu_k) holds the stationary distribution of the agents' own chain
    under `policies`. Rows_k is Phi, or Phi (Phi'
    D_k Phi)^-1 if preconditioned.
    """
    policy, phi = structure.target_policy, structure.linear_features
    chains = [mdp.continuing_chain(policy) for mdp in problem.mdps]
    steps = problem.discount, structure.horizon
    gaps = [phi - look_ahead(chain, *steps, phi) for chain in chains]
    rewards = [
        n_step_rewards(chain, mdp.policy_rewards(policy), *steps)
        for chain, mdp in zip(chains, problem.mdps, strict=True)
    ]
    stationary, rows = distinct_stationary_laws(problem, policies), structure.directions
    matrices, offsets = [], []
    for kind in range(max(len(stationary), len(rows))):
        weights = stationary[kind % len(stationary)][:, None]
        if structure.is_preconditioned:
            weighted = (phi * weights).T
            weighted = solve(weighted @ phi, weighted, "the weighted features")
        else:
            weighted = (rows[kind % len(rows)] * weights).T
        matrices.append(weighted @ gaps[problem.mdp_index(kind)])
        offsets.append(weighted @ rewards[problem.mdp_index(kind)])
    # On-policy, mu is the stationary distribution of P itself, so ||P^n f||_mu <= ||f||_mu and
    # A + A' > 0 (Tsitsiklis and Van Roy, 1997). The part of P that continues is nowhere larger.
    is_definite = structure.is_on_policy and structure.rows is None
    return LinearField(np.stack(matrices), np.stack(offsets), is_definite=is_definite)


def noise_field(operator: LinearOperator, stationary: np.ndarray) -> LinearField:
    """Algorithm 1 in its linear form: -E[A(y)] and E[b(y)] under `stationary` (M, Y)."""
    matrices, offsets = operator.of_kinds(len(stationary))
    return LinearField(
        -np.einsum("ky,kyij->kij", stationary, matrices),
        np.einsum("ky,kyi->ki", stationary, offsets),
    )
