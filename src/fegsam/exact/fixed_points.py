"""Fixed points: theta*, each agent's own theta^{i,*}, and the heterogeneity varepsilon.

===========================  =======================================================================
algorithm                    fixed point
===========================  =======================================================================
1 `LinearSA`                 ``mean_i E[A_i(y)] theta + mean_i E[b_i(y)] = 0``
1 `StochasticApproximation`  ``mean_i (Gbar_i(theta) + bbar_i) = theta``, iterated
2 `OnPolicyTD`               eq. BE_FA: ``Phi' D (r_n + gamma^n P^n Phi v - Phi v) = 0``, by n
3 `OffPolicyTabularTD`       eq. BE_tabular: V^pi, for every n
4 `QLearning`                Q*
5 `OffPolicyLinearTD`        ``sum_i Phi' D_i (r_n + gamma^n P^n Phi v - Phi v) = 0``, by n
5 with preconditioned=True   eq. BEO_FA_off: ``sum_i H_i (r_n + gamma^n P^n Phi v) = N v``,
                             ``H_i = (Phi' D_i Phi)^-1 Phi' D_i``
`TDC`                        that of `OffPolicyLinearTD` with n = 1, then zeros
`Sarsa`                      Q = the value of the policy of Q, iterated
===========================  =======================================================================

The fixed point of a user's algorithm follows from its structure (`fegsam.algorithms.structure`). If
the algorithm declares no structure, we run its rule on every window that an agent can encounter,
and iterate.

D is the diagonal matrix of the stationary distribution of the agents' own chain, P is the target
policy's chain and ``r_n = sum_{k<n} (gamma P)^k r``. Where transitions have discounts of their own,
gamma P is the chain with each transition multiplied by its discount. If every kind of agent has its
own MDP, then P, r_n and R depend on i too, and the fixed point is the root of the sum of the
agents' expected increments, in algorithms 3 and 4 as well. For Algorithm 5 the paper states eq.
BEO_FA_off, whose solution is not the root of the algorithm's increments; `projected_average_point`
computes that solution.

Small problems are solved directly. With many states, algorithms 3 and 4 are iterated until the
bound on the error in the sup norm, ``max|T theta - theta| / (1 - gamma)``, is at most 1e-10. If the
values are too large for double precision to reach that bound, the iteration stops once the residual
is 32 units in the last place of the largest value.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import temporal_difference
from fegsam.algorithms.td import require_federation
from fegsam.blas_threads import one_blas_thread
from fegsam.errors import ProblemError, shown
from fegsam.exact.chains import kind_weights
from fegsam.exact.linear_field import LinearField, projected_field
from fegsam.exact.mean_fields import MeanField, mean_field
from fegsam.exact.method_weights import check_agents, method_weights
from fegsam.exact.solvers import discounted_value
from fegsam.methods.method import Method, check_method
from fegsam.problem.federation import Federation, Problem
from fegsam.problem.mdp import MDP


@one_blas_thread()
def fixed_point(
    problem: Problem, algorithm: Algorithm, *, method: Method | None = None
) -> np.ndarray:
    """The point that the average of the agents converges to as the step size goes to zero.

    Parameters
    ----------
    problem, algorithm
    method : Method, optional
        With weights w_i the point is the root of the sum of w_i times the mean field of agent i.
        With unequal local steps K_i that are not normalised, w_i K_i takes the place of w_i. No
        other place of a method counts here, with one exception: if only some agents take part and
        their change is divided by the weights of those who answer, unequal w_i are replaced by the
        mean weights ``E[1{i takes part} w_i / W]``, where W is the total weight of those who take
        part. Control variates of the last round restore the w_i.

    Returns
    -------
    (d,), (S,) or (S*A,) array
        The paper's theta*, in the flat form of the parameters.

    Raises
    ------
    ProblemError
        If a linear algorithm diverges from its fixed point, or a user's rule does not contract.
        Pass a point to measure against as ``run(..., fixed_point=...)`` instead.

    Examples
    --------
    A state that pays 1 in every step has the value 1 / (1 - 0.75):

    >>> import fegsam as fg
    >>> mdp = fg.MDP([[[1.0], [1.0]]], [[1.0, 0.0]], 0.75)
    >>> fg.fixed_point(fg.Federation(mdp, [[0.5, 0.5]], num_agents=2), fg.QLearning())
    array([4., 3.])

    Two agents whose own points are 2 and 1, the first with three times the weight of the second:

    >>> noise = fg.MarkovNoise(
    ...     [[[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.75, 0.25]]], num_agents=2
    ... )
    >>> average = fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [4.0]])
    >>> fg.fixed_point(noise, average, method=fg.Method(fg.Mean((0.75, 0.25))))
    array([1.75])
    """
    check_algorithm(algorithm, problem)
    if method is not None:
        check_agents(problem, algorithm, check_method(method), algorithm.dimension(problem))
    return common_point(problem, algorithm, method)


@one_blas_thread()
def agent_fixed_points(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """The point that each kind of agent would converge to on its own.

    Returns
    -------
    (M, d) array
        One row per kind, the paper's theta^{i,*}: the root of the agent's own mean field, in the
        paper's centred coordinates ``Gbar_i(theta) + bbar_i = theta``.

    Examples
    --------
    Two kinds of agents with different noise:

    >>> import fegsam as fg
    >>> noise = fg.MarkovNoise(
    ...     [[[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.75, 0.25]]], num_agents=2
    ... )
    >>> fg.agent_fixed_points(noise, fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [4.0]]))
    array([[2.],
           [1.]])
    """
    return _own_roots(problem, _checked_field(problem, algorithm))


@one_blas_thread()
def heterogeneity(problem: Problem, algorithm: Algorithm) -> float:
    """The mean distance of the agents' own fixed points from the common one.

    Returns
    -------
    float
        The paper's varepsilon: the mean over the agents of ``eta_i = ||theta^{i,*} - theta*||``, in
        the norm of the algorithm's theorem. This is the sup norm for algorithms 3 and 4, the norm
        that you gave for your own rule, and the 2-norm otherwise.

    Examples
    --------
    >>> import fegsam as fg
    >>> noise = fg.MarkovNoise(
    ...     [[[0.5, 0.5], [0.5, 0.5]], [[0.75, 0.25], [0.75, 0.25]]], num_agents=2
    ... )
    >>> fg.heterogeneity(noise, fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [4.0]]))
    0.5
    """
    field = _checked_field(problem, algorithm)
    gaps = _own_roots(problem, field) - _common_root(problem, field)
    distances = np.linalg.norm(gaps, 2 if algorithm.norm == "2" else np.inf, axis=1)
    return float(kind_weights(problem, problem.num_kinds) @ distances)


@one_blas_thread()
def projected_average_point(problem: Federation, algorithm: Algorithm) -> np.ndarray:
    """The fixed point of the average of the agents' projected n-step Bellman operators.

    This is the paper's eq. BEO_FA_off: ``v = mean_i H_i (r_n + gamma^n P^n Phi v)`` with ``H_i =
    (Phi' D_i Phi)^-1 Phi' D_i``. Algorithm 5 as stated converges to `fixed_point` instead; only its
    preconditioned form converges to this point. The two points agree if d = S or if all agents have
    the same stationary distribution.

    Returns
    -------
    (d,) array

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(6, 2, 3, discount=0.9, seed=0)
    >>> fed = fg.Federation(
    ...     mdp,
    ...     fg.policies.random(6, 2, count=3, seed=1),
    ...     num_agents=3,
    ...     target_policy=fg.policies.uniform(6, 2),
    ...     features=[[1.0]] * 5 + [[2.0]],
    ... )
    >>> paper = fg.exact.projected_average_point(fed, fg.OffPolicyLinearTD())
    >>> bool(abs(paper - fg.fixed_point(fed, fg.OffPolicyLinearTD(preconditioned=True))) < 1e-12)
    True
    >>> bool(abs(paper - fg.fixed_point(fed, fg.OffPolicyLinearTD())) > 1e-6)
    True
    """
    check_algorithm(algorithm, problem)
    structure = temporal_difference(algorithm, problem)
    if structure is None or structure.is_tabular or structure.is_on_policy:
        raise ProblemError(
            "projected_average_point is defined for off-policy temporal differences with features, "
            f"such as OffPolicyLinearTD, and not for {type(algorithm).__name__}; use fixed_point "
            "for other algorithms."
        )
    federation = require_federation(problem, algorithm)
    preconditioned = replace(structure, is_preconditioned=True)
    field = projected_field(federation, preconditioned, algorithm.policies(problem))
    return field.root(kind_weights(problem, len(field)))


@one_blas_thread()
def policy_value(mdp: MDP, policy: ArrayLike) -> np.ndarray:
    """The exact value of a policy, the paper's V^pi of eq. value_func.

    Parameters
    ----------
    mdp : MDP
    policy : (S, A) array

    Returns
    -------
    (S,) array
        The root of ``V = r + gamma P V`` (eq. BE_tabular) under the policy.

    Examples
    --------
    >>> import fegsam as fg
    >>> fg.policy_value(fg.MDP([[[1.0], [1.0]]], [[1.0, 0.0]], 0.75), [[0.5, 0.5]])
    array([2.])
    """
    if not isinstance(mdp, MDP):
        raise ProblemError(f"mdp is {shown(mdp)}; give a fegsam.MDP.")
    return discounted_value(mdp.continuing_chain(policy), mdp.policy_rewards(policy), mdp.discount)


def common_point(
    problem: Problem, algorithm: Algorithm, method: Method | None = None
) -> np.ndarray:
    """`fixed_point` of an algorithm that has checked the problem already."""
    return _common_root(problem, mean_field(algorithm, problem), method)


def _checked_field(problem: Problem, algorithm: Algorithm) -> MeanField:
    check_algorithm(algorithm, problem)
    return mean_field(algorithm, problem)


def _common_root(problem: Problem, field: MeanField, method: Method | None = None) -> np.ndarray:
    weights = kind_weights(problem, len(field))
    if method is not None and len(field) > 1:
        weights = method_weights(problem, method)
    if isinstance(field, LinearField):
        field.require_stable(weights)
    return field.root(weights)


def _own_roots(problem: Problem, field: MeanField) -> np.ndarray:
    roots = np.stack([field.root(alone) for alone in np.eye(len(field))])
    return np.repeat(roots, problem.num_kinds // len(field), axis=0)
