"""The sharp constants A_1 = A_2 and B of Assumption 3.3, and the closed forms that bound them.

In the centred coordinates of Algorithm 1 a step is ``G(theta, y) - theta + b(y)``. The Lipschitz
constant ``A = sup_y ||G(., y)||`` is both A_1 and A_2, since G(0, y) = 0. ``B = sup_y ||b(y)||``,
where b(y) is the increment at the fixed point.

**Temporal differences** (Algorithms 2, 3, 5). ``G(., y) = I + M(y) / beta`` with ``M(y) = row(S_t)
w(y)'``, and ``b(y) = row(S_t) E / beta``, where E is the n-step difference at the fixed point. By
Horner's rule ``E = rho_t (e_t + gamma E')``, where E' belongs to the rest of the window. All ratios
rho are nonnegative, so the largest and the smallest E from each state follow from those of windows
one step shorter: B is exact for every n. A is the maximum over all windows, as long as they are
few. In the 2-norm, all singular values of I + u w' are one except two, whose squares solve ``x^2 -
(2 + 2p + a) x + (1 + p)^2 = 0`` with ``p = u'w``, ``a = |u|^2 |w|^2``. If there are many windows, A
is bounded by ``sup_y sum_l |c_l| ||phi(S_l)||``, which the same recursion computes. It ignores that
terms of a state that occurs twice may cancel, but is better than the closed form. On-policy the sum
telescopes, and A depends only on S_t and S_{t+n}, unless transitions have discounts of their own:
then A is bounded with the largest one, as the closed forms are.

**Q-learning.** The visited cell has Lipschitz constant gamma and all others have one: A = 1, where
the paper has 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import (
    Control,
    LinearOperator,
    OnPolicyControl,
    Opaque,
    TemporalDifference,
    TransitionOperator,
    structure_of,
)
from fegsam.algorithms.td import require_federation
from fegsam.exact.transitions import kind_transitions
from fegsam.problem.chains import distinct_chains
from fegsam.problem.federation import Federation, Problem
from fegsam.theory.assumptions.moves import Moves, kind_moves
from fegsam.theory.assumptions.norms import Contraction
from fegsam.theory.assumptions.stated import no_theorem, stated_constants

MOST_WINDOWS = 20_000_000
"""If there are more possible windows than this, A is bounded instead of computed."""
MOST_PAIRS = 4_000_000
"""The same limit for pairs of states, on-policy."""


@dataclass(frozen=True)
class StepBounds:
    """How large one step can be, in the scaling of Algorithm 1.

    Attributes
    ----------
    lipschitz : float
        A_1 = A_2.
    noise : float
        B; NaN if the fixed point is not known.
    lipschitz_cap, noise_cap : float
        Closed forms that they never exceed.
    is_sharp : bool
        Whether `lipschitz` is the least value rather than a bound on it. `noise` always is.
    lagged_noise : float
        ``sum_{k=1}^{n-1} sup ||E[b(y_k) | y_0]||`` if the conditional mean of b given the first
        state of its window is zero, as it is at V^pi: the part of y_k that y_0 determines is a
        window of n - k transitions. Zero for n = 1.

    Examples
    --------
    >>> StepBounds(2.0, 1.0, 4.0, 8.0, is_sharp=True).lagged_noise
    0.0
    """

    lipschitz: float
    noise: float
    lipschitz_cap: float
    noise_cap: float
    is_sharp: bool
    lagged_noise: float = 0.0


def step_bounds(
    algorithm: Algorithm, problem: Problem, point: np.ndarray, found: Contraction
) -> StepBounds:
    """A, B and their caps at the fixed point `point` (d,), in the norm and scaling `found`.

    Examples
    --------
    >>> import fegsam as fg
    >>> from fegsam.theory.assumptions.norms import Norm
    >>> fed = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.75), [[1.0]], num_agents=1)
    >>> step_bounds(
    ...     fg.QLearning(), fed, np.array([4.0]), Contraction("sup", Norm("sup"), 0.25, 1.0)
    ... ).noise
    0.0
    """
    policies = algorithm.policies(problem)
    match structure_of(algorithm, problem):
        case TemporalDifference() as structure:
            federation = require_federation(problem, algorithm)
            return _TemporalDifferenceBounds(federation, structure, policies, found).at(point)
        case Control():
            return _control_bounds(require_federation(problem, algorithm), policies, point)
        case LinearOperator() as operator:
            return _operator_bounds(*operator.of_kinds(problem.num_kinds), point, found)
        case TransitionOperator() as operator:
            terms = [each.terms for each in kind_transitions(problem, algorithm, operator)]
            matrices, offsets = (np.concatenate(parts) for parts in zip(*terms, strict=True))
            return _operator_bounds(matrices, offsets, point, found)
        case OnPolicyControl():
            raise no_theorem(algorithm)
        case Opaque() as known:
            stated = stated_constants(known)
            A, B = max(stated["A_1"], stated["A_2"]), stated["B"]
            return StepBounds(A, B, A, B, is_sharp=False)


def _operator_bounds(
    matrices: np.ndarray, offsets: np.ndarray, point: np.ndarray, found: Contraction
) -> StepBounds:
    norm = found.norm
    operators = np.eye(len(point)) + matrices / found.beta
    noise = norm.of(matrices @ point + offsets) / found.beta
    largest = norm.of_matrices(matrices).max() / found.beta
    return StepBounds(
        lipschitz=float(norm.of_matrices(operators).max()),
        noise=float(noise.max()),
        lipschitz_cap=float(1 + largest),
        noise_cap=float(largest * norm.of(point) + norm.of(offsets).max() / found.beta),
        is_sharp=True,
    )


def _control_bounds(problem: Federation, policies: np.ndarray, point: np.ndarray) -> StepBounds:
    table = point.reshape(problem.num_states, problem.num_actions)
    best = table.max(axis=1)
    noise = max(
        float(
            np.abs(
                moves.reward + moves.discount * best[moves.next] - table[moves.state, moves.action]
            ).max()
        )
        for moves in kind_moves(problem, policies)
    )
    alone = len(point) == 1  # the step visits the only cell
    return StepBounds(
        problem.discount if alone else 1.0,
        noise,
        2.0,
        2 * _largest_reward(problem) / (1 - problem.discount),
        is_sharp=True,
    )


def _largest_reward(problem: Federation) -> float:
    return max(float(np.abs(mdp.rewards).max()) for mdp in problem.mdps)


@dataclass(frozen=True, eq=False)
class _TemporalDifferenceBounds:
    """The step bounds of a temporal difference on a problem, in the norm and scaling `found`."""

    problem: Federation
    structure: TemporalDifference
    policies: np.ndarray
    """(1 or M, S, A): the agents' behaviour policies"""
    found: Contraction

    def at(self, point: np.ndarray) -> StepBounds:
        """A, B and their caps at the fixed point `point` (d,)."""
        values = point if self.structure.is_tabular else self.structure.linear_features @ point
        rows = self._row_norms()
        moves = list(kind_moves(self.problem, self._policies_of_rows(), self.structure.ratios))
        noise = np.zeros(self.structure.horizon)
        for some in moves:
            by_length = some.largest_errors(values, self.structure.horizon)
            noise = np.maximum(noise, (by_length * rows[some.kinds % len(rows)]).max(axis=(1, 2)))
        lipschitz, is_sharp = self._lipschitz(moves, rows)
        cap, noise_cap = self._caps(float(rows.max()), float(np.abs(values).max()))
        return StepBounds(
            lipschitz, float(noise[-1]), cap, noise_cap, is_sharp, float(noise[:-1].sum())
        )

    def _policies_of_rows(self) -> np.ndarray:
        """The policies, repeated for each kind if the kinds have rows of their own."""
        own_rows = self.structure.rows
        if own_rows is None or len(self.policies) > 1 or len(self.problem.mdps) > 1:
            return self.policies
        return np.repeat(self.policies, len(own_rows), axis=0)

    def _row_norms(self) -> np.ndarray:
        """(1 or M, S): ||row(s) / beta||_c, the step for a temporal difference of one."""
        if self.structure.is_tabular:
            return np.ones((1, self.problem.num_states))
        rows = self.structure.directions
        norms = self.found.norm.of(rows.reshape(-1, rows.shape[2]))
        return norms.reshape(-1, self.problem.num_states) / self.found.beta

    def _lipschitz(self, moves: list[Moves], rows: np.ndarray) -> tuple[float, bool]:
        """A, and whether it is sharp."""
        horizon = self.structure.horizon
        if self._telescopes:
            pairs = len(moves) * self.problem.num_states**2
            if pairs <= MOST_PAIRS and self.problem.discounts is None:
                return self._on_policy_lipschitz(), True
        elif sum(some.count(horizon) for some in moves) <= MOST_WINDOWS:
            return max(self._largest_lipschitz(some) for some in moves), True
        if self.structure.is_tabular:
            sizes = np.ones(self.problem.num_states)
            most = [float(some.largest_weights(sizes, horizon, 1.0).max()) for some in moves]
            return max(1.0, *most), False
        sizes = self.found.norm.dual(self.structure.linear_features)
        if self._telescopes:
            ahead = self.problem.discount**horizon
            return float(1 + (rows * (sizes + ahead * sizes.max())).max()), False
        largest = max(
            float((rows[some.kinds % len(rows)] * some.largest_weights(sizes, horizon, 0.0)).max())
            for some in moves
        )
        return 1 + largest, False

    @property
    def _telescopes(self) -> bool:
        """Whether A depends only on the first and the last state of a window."""
        return self.structure.is_on_policy and not self.structure.is_tabular

    def _largest_lipschitz(self, moves: Moves) -> float:
        """A over all windows of these moves."""
        windows = moves.windows(self.structure.horizon)
        states = np.column_stack([moves.state[windows], moves.next[windows[:, -1]]])
        largest = 0.0
        for kinds, weights in moves.weights(windows):
            if self.structure.is_tabular:
                largest = max(largest, _tabular_lipschitz(states, weights))
                continue
            rows, phi = self.structure.directions, self.structure.linear_features
            own = rows[kinds % len(rows)] if len(rows) > 1 else rows
            largest = max(largest, _linear_lipschitz(states, weights, own, phi, self.found))
        return largest

    def _on_policy_lipschitz(self) -> float:
        """The largest norm of I + row(s) (gamma^n phi(s') - phi(s))' / beta.

        s' ranges over the states that s reaches in n steps.
        """
        phi, rows = self.structure.linear_features, self.structure.directions
        norm, ahead = self.found.norm, self.problem.discount**self.structure.horizon
        largest = 0.0
        for k, chain in enumerate(distinct_chains(self.problem, self._policies_of_rows())):
            one_step = (chain.toarray() > 0).astype(np.float64)
            reached = np.eye(len(phi))
            for _ in range(self.structure.horizon):
                reached = (reached @ one_step > 0).astype(np.float64)
            for s, row in enumerate(rows[k % len(rows)]):
                functionals = ahead * phi[reached[s] > 0] - phi[s]
                sizes = (norm.of(row) * norm.dual(functionals) / self.found.beta) ** 2
                products = functionals @ row / self.found.beta
                largest = max(largest, float(rank_one_norm(products, sizes, len(row)).max()))
        return largest

    def _caps(self, row: float, value: float) -> tuple[float, float]:
        """Closed forms for A and B.

        They depend on the largest ratio, reward and feature, the largest norm of a row, `row`, and
        the largest absolute value at the fixed point, `value`.
        """
        discount, n = self.problem.discount, self.structure.horizon
        reward = _largest_reward(self.problem)
        ratios = self.structure.ratios
        ratio = 1.0 if ratios is None else float(ratios.max())
        with np.errstate(over="ignore"):
            weight = ratio * float(((discount * ratio) ** np.arange(n)).sum())
        if self.structure.is_tabular:
            return 1 + (1 + discount) * weight, 2 * reward / (1 - discount) * weight
        size = row * float(self.found.norm.dual(self.structure.linear_features).max())
        if self._telescopes:
            ahead = discount**n
            return 1 + (1 + ahead) * size, row * (
                reward * (1 - ahead) / (1 - discount) + (1 + ahead) * value
            )
        return 1 + (1 + discount) * weight * size, row * weight * (reward + (1 + discount) * value)


def _tabular_lipschitz(states: np.ndarray, weights: np.ndarray) -> float:
    """The sup norm of I + M(y), the largest over windows with `states` (W, n+1).

    Only row S_t of I + M(y) differs from that of I.
    """
    weights[:, :, 0] += 1
    # A state that occurs again adds its weight to that of its first occurrence.
    for later in range(1, states.shape[1]):
        pending = np.ones(len(states), dtype=bool)
        for first in range(later):
            again = pending & (states[:, first] == states[:, later])
            weights[:, again, first] += weights[:, again, later]
            weights[:, again, later] = 0.0
            pending &= ~again
    own = float(np.abs(weights).sum(axis=2).max())
    return max(1.0, own) if states.max() > 0 else own


def _linear_lipschitz(
    states: np.ndarray, weights: np.ndarray, rows: np.ndarray, phi: np.ndarray, found: Contraction
) -> float:
    """The largest norm of I + M(y) / beta, for `rows` (k or 1, S, d)."""
    functionals = np.add.reduce(
        [weights[:, :, l, None] * phi[states[:, l]] for l in range(states.shape[1])]
    )
    moved = rows[:, states[:, 0]] / found.beta
    products = (moved * functionals).sum(axis=2)
    sizes = (found.norm.of(moved) * found.norm.dual(functionals)) ** 2
    return float(rank_one_norm(products, sizes, phi.shape[1]).max())


def rank_one_norm(products: np.ndarray, sizes: np.ndarray, dim: int) -> np.ndarray:
    """``||I + u w'||_2`` for ``products = u'w`` and ``sizes = |u|^2 |w|^2`` in `dim` dimensions.

    Examples
    --------
    >>> float(rank_one_norm(np.array(-3.0), np.array(9.0), dim=2))
    2.0
    """
    if dim == 1:
        return np.abs(1 + products)
    spread = np.sqrt(np.maximum(sizes * (sizes + 4 + 4 * products), 0.0))
    return np.sqrt((2 + 2 * products + sizes + spread) / 2)
