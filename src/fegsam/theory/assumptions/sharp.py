"""The constants A_1 = A_2 and B of Assumption 3.3, as small as they can be, and the closed forms
that bound them.

In the centred coordinates of Algorithm 1 a step is ``G(theta, y) - theta + b(y)``. ``A = sup_y
||G(., y)||``, the Lipschitz constant, is both A_1 and A_2, as G(0, y) = 0. ``B = sup_y ||b(y)||``,
b(y) the increment at the fixed point.

**Temporal differences** (Algorithms 2, 3, 5). ``G(., y) = I + M(y) / beta`` with ``M(y) = row(S_t)
w(y)'``, and ``b(y) = row(S_t) E / beta``, E the n-step difference at the fixed point. By Horner's
rule ``E = rho_t (e_t + gamma E')``, E' that of the rest of the window. All ratios rho are
nonnegative, so the largest and the smallest E from each state follow from those of windows one step
shorter: B is exact for every n. For A all windows are looked at, as long as they are few. In the
2-norm I + u w' has all singular values one but two, whose squares solve ``x^2 - (2 + 2p + a) x + (1
+ p)^2 = 0`` with ``p = u'w``, ``a = |u|^2 |w|^2``. Where windows are many, ``sup_y sum_l |c_l|
||phi(S_l)||``, without what cancels where a state is met twice, comes from the same recursion and
bounds A better than the closed form. On-policy the sum telescopes, and A depends on S_t and S_{t+n}
alone.

**Q-learning.** The visited cell has Lipschitz constant gamma and all others one: A = 1, where the
paper has 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg4_q_learning import QLearning
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.algorithms.td import features, importance_ratios
from fegsam.errors import ProblemError
from fegsam.problem.chains import distinct_chains
from fegsam.problem.federation import Federation, MarkovNoise
from fegsam.theory.assumptions.moves import Moves, kind_moves
from fegsam.theory.assumptions.norms import Contraction

MOST_WINDOWS = 20_000_000
"""Where the agents can meet more windows than this, A is bounded instead."""
MOST_PAIRS = 4_000_000
"""Likewise for pairs of states, on-policy."""


@dataclass(frozen=True)
class StepBounds:
    """How large one step can be, in the scaling of Algorithm 1.

    Attributes
    ----------
    lipschitz : float
        A_1 = A_2.
    noise : float
        B; NaN where the fixed point is not known.
    lipschitz_cap, noise_cap : float
        Closed forms that they never exceed.
    is_sharp : bool
        Whether `lipschitz` is the least value rather than a bound on it. `noise` always is.
    lagged_noise : float
        ``sum_{k=1}^{n-1} sup ||E[b(y_k) | y_0]||`` where the conditional mean of b given the first
        state of its window is zero, as it is at V^pi: the part of y_k that y_0 knows is a window of
        n - k transitions. Zero for n = 1.

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


@singledispatch
def step_bounds(algorithm: Any, problem: Any, point: np.ndarray, found: Contraction) -> StepBounds:
    """A, B and their caps for `algorithm` on `problem` at the fixed point `point` (d,), in the norm
    and scaling `found`.

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
    raise ProblemError(
        f"The constants of {type(algorithm).__name__} are not known to fegsam; use one of its "
        "algorithms, or state them in "
        "StochasticApproximation(..., assumptions=...)."
    )


@step_bounds.register
def _(
    algorithm: LinearSA, problem: MarkovNoise, point: np.ndarray, found: Contraction
) -> StepBounds:
    tables, norm = algorithm.tables(problem), found.norm
    operators = np.eye(len(point)) + tables.matrices / found.beta
    noise = norm.of(tables.matrices @ point + tables.offsets) / found.beta
    largest = norm.of_matrices(tables.matrices).max() / found.beta
    return StepBounds(
        lipschitz=float(norm.of_matrices(operators).max()),
        noise=float(noise.max()),
        lipschitz_cap=float(1 + largest),
        noise_cap=float(largest * norm.of(point) + norm.of(tables.offsets).max() / found.beta),
        is_sharp=True,
    )


@step_bounds.register
def _(
    algorithm: QLearning, problem: Federation, point: np.ndarray, found: Contraction
) -> StepBounds:
    table = point.reshape(problem.num_states, problem.num_actions)
    best = table.max(axis=1)
    noise = max(
        float(
            np.abs(
                moves.reward
                + problem.discount * best[moves.next]
                - table[moves.state, moves.action]
            ).max()
        )
        for moves in kind_moves(problem, algorithm)
    )
    rewards = max(float(np.abs(mdp.rewards).max()) for mdp in problem.mdps)
    alone = len(point) == 1  # then no cell is left that the step does not visit
    return StepBounds(
        problem.discount if alone else 1.0,
        noise,
        2.0,
        2 * rewards / (1 - problem.discount),
        is_sharp=True,
    )


@step_bounds.register(OnPolicyTD)
@step_bounds.register(OffPolicyTabularTD)
@step_bounds.register(OffPolicyLinearTD)
def _(algorithm: Any, problem: Federation, point: np.ndarray, found: Contraction) -> StepBounds:
    is_tabular = isinstance(algorithm, OffPolicyTabularTD)
    values = point if is_tabular else features(problem, algorithm) @ point
    rows = _row_norms(problem, algorithm, found)
    moves = list(kind_moves(problem, algorithm))
    noise = np.zeros(algorithm.horizon)
    for possible in moves:
        by_length = possible.largest_errors(values, problem.discount, algorithm.horizon)
        noise = np.maximum(noise, (by_length * rows[possible.kinds % len(rows)]).max(axis=(1, 2)))
    lipschitz, is_sharp = _lipschitz(problem, algorithm, found, moves, rows)
    cap, noise_cap = _caps(
        problem, algorithm, found, float(rows.max()), float(np.abs(values).max())
    )
    return StepBounds(
        lipschitz, float(noise[-1]), cap, noise_cap, is_sharp, float(noise[:-1].sum())
    )


def _row_norms(problem: Federation, algorithm: Any, found: Contraction) -> np.ndarray:
    """(1 or M, S): ||row(s) / beta||_c, how far an error of one moves the parameters."""
    if isinstance(algorithm, OffPolicyTabularTD):
        return np.ones((1, problem.num_states))
    rows = algorithm.tables(problem).rows
    return found.norm.of(rows).reshape(-1, problem.num_states) / found.beta


def _lipschitz(
    problem: Federation, algorithm: Any, found: Contraction, moves: list[Moves], rows: np.ndarray
) -> tuple[float, bool]:
    """A, and whether it is the least one."""
    if isinstance(algorithm, OnPolicyTD):
        if len(moves) * problem.num_states**2 <= MOST_PAIRS:
            return _on_policy_lipschitz(problem, algorithm, found), True
    elif sum(possible.count(algorithm.horizon) for possible in moves) <= MOST_WINDOWS:
        return max(
            _largest_lipschitz(problem, algorithm, found, possible) for possible in moves
        ), True
    settings = problem.discount, algorithm.horizon
    if isinstance(algorithm, OffPolicyTabularTD):
        sizes = np.ones(problem.num_states)
        return max(
            [
                1.0,
                *(
                    float(possible.largest_weights(sizes, *settings, 1.0).max())
                    for possible in moves
                ),
            ]
        ), False
    sizes = found.norm.dual(features(problem, algorithm))
    if isinstance(algorithm, OnPolicyTD):
        return float(
            1 + (rows * (sizes + problem.discount**algorithm.horizon * sizes.max())).max()
        ), False
    largest = max(
        float((rows[some.kinds % len(rows)] * some.largest_weights(sizes, *settings, 0.0)).max())
        for some in moves
    )
    return 1 + largest, False


def _largest_lipschitz(
    problem: Federation, algorithm: Any, found: Contraction, moves: Moves
) -> float:
    """A over all windows of these moves."""
    windows = moves.windows(algorithm.horizon)
    states = np.column_stack([moves.state[windows], moves.next[windows[:, -1]]])
    largest = 0.0
    for kinds, weights in moves.weights(windows, problem.discount):
        if isinstance(algorithm, OffPolicyTabularTD):
            largest = max(largest, _tabular_lipschitz(states, weights))
        else:
            rows = algorithm.tables(problem).rows.reshape(
                -1, problem.num_states, algorithm.dimension(problem)
            )
            own = rows[kinds % len(rows)] if len(rows) > 1 else rows
            largest = max(
                largest,
                _linear_lipschitz(states, weights, own, features(problem, algorithm), found),
            )
    return largest


def _tabular_lipschitz(states: np.ndarray, weights: np.ndarray) -> float:
    """The largest absolute sum of row S_t of I + M(y), for windows `states` (W, n+1); the other
    rows are those of I."""
    weights[:, :, 0] += 1
    for later in range(
        1, states.shape[1]
    ):  # what a state met again adds belongs to where it was met first
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


def _on_policy_lipschitz(problem: Federation, algorithm: OnPolicyTD, found: Contraction) -> float:
    """The largest norm of I + phi(s) (gamma^n phi(s') - phi(s))' / beta, s' a state that s reaches
    in n steps."""
    phi = features(problem, algorithm)
    norm, ahead = found.norm, problem.discount**algorithm.horizon
    largest = 0.0
    for chain in distinct_chains(problem, algorithm.policies(problem)):
        one_step = (chain.toarray() > 0).astype(np.float64)
        reached = np.eye(len(phi))
        for _ in range(algorithm.horizon):
            reached = (reached @ one_step > 0).astype(np.float64)
        for s in range(len(phi)):
            functionals = ahead * phi[reached[s] > 0] - phi[s]
            sizes = (norm.of(phi[s]) * norm.dual(functionals) / found.beta) ** 2
            largest = max(
                largest,
                float(rank_one_norm(functionals @ phi[s] / found.beta, sizes, phi.shape[1]).max()),
            )
    return largest


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


def _caps(
    problem: Federation, algorithm: Any, found: Contraction, row: float, value: float
) -> tuple[float, float]:
    """Closed forms for A and B, from the largest ratio, reward, feature, `row` norm and |`value`|
    at the fixed point."""
    discount, n = problem.discount, algorithm.horizon
    reward = max(float(np.abs(mdp.rewards).max()) for mdp in problem.mdps)
    if isinstance(algorithm, OnPolicyTD):
        ahead = discount**n
        size = row * float(found.norm.dual(features(problem, algorithm)).max())
        return 1 + (1 + ahead) * size, row * (
            reward * (1 - ahead) / (1 - discount) + (1 + ahead) * value
        )
    ratio = float(importance_ratios(problem, algorithm).max())
    with np.errstate(over="ignore"):
        weight = ratio * float(((discount * ratio) ** np.arange(n)).sum())
    if isinstance(algorithm, OffPolicyTabularTD):
        return 1 + (1 + discount) * weight, 2 * reward / (1 - discount) * weight
    size = row * float(found.norm.dual(features(problem, algorithm)).max())
    return 1 + (1 + discount) * weight * size, row * weight * (reward + (1 + discount) * value)
