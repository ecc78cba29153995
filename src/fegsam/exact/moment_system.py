"""A problem and an algorithm, lowered to what the recursion of moments needs, and what that
recursion costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.errors import ProblemError
from fegsam.exact.fixed_points import fixed_point
from fegsam.exact.hierarchy import Hierarchy
from fegsam.exact.long_run import DENSE_ENTRIES
from fegsam.exact.moves import (
    dense_moves,
    independent_increments,
    independent_windows,
    linear_increments,
    rank_one_moves,
    window_steps,
)
from fegsam.exact.rounds import StepMeans, round_costs
from fegsam.exact.sweeps import Moves
from fegsam.exact.windows import MOST_BYTES, chain_windows
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.checks import flat_params
from fegsam.problem.federation import Federation, MarkovNoise

_PER_NUMBER = 6e-8
"""Seconds that the sums of a level take for each number that it holds."""
_PER_LEVEL = 2e-4
"""Seconds of a level however small it is."""
_COPIES = 12
"""Arrays as large as a level that a round holds at a time."""


@dataclass(frozen=True, eq=False)
class MomentSystem:
    """The kinds that have agents, and where these start."""

    moves: Moves
    counts: np.ndarray
    fixed_point: np.ndarray
    start: np.ndarray
    """(d,): initial parameters less the fixed point"""

    @property
    def num_agents(self) -> int:
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        return len(self.start) + 1

    @property
    def modes(self) -> int:
        return len(self.moves.initial)

    @property
    def highest_order(self) -> int:
        """At which nothing is left out."""
        return 0 if self.modes == len(self.counts) else self.num_agents

    def steps(self, step_size: float) -> StepMeans:
        return StepMeans(self.moves, step_size, self.size)

    def require_memory(self, order: int) -> None:
        """Raise `ProblemError` where an order needs more memory than is allowed."""
        _check_memory(self.modes, self.moves.chain.nnz, len(self.counts), self.size, order)

    def hierarchy(self, steps: StepMeans, length: int, order: int) -> Hierarchy:
        self.require_memory(order)
        return Hierarchy(steps, self.counts, length, order)

    def fits(self, order: int) -> bool:
        return _needed_bytes(self.modes, self.moves.chain.nnz, self.size, order) <= MOST_BYTES

    def round_seconds(self, order: int, length: int) -> float:
        """About how long one round takes."""
        total = _PER_LEVEL
        for r in range(1, min(order, self.num_agents) + 1):
            costs = round_costs(self.moves, self.size, length, r)
            lefts, mixes = (1 if r == 1 else 3), 3 * r - 2
            products = (
                costs.seconds(costs.entries)
                + lefts * costs.seconds(self.size)
                + mixes * costs.seconds(1)
            )
            total += (
                _PER_LEVEL * r + products + _PER_NUMBER * costs.others * self.modes * self.size**2
            )
        return total

    def seconds(self, order: int, length: int, rounds: float, reads: int = 0) -> float:
        """About how long `rounds` rounds take, by powers of a matrix where these are quicker, and
        readings in `reads` steps."""
        modes, entries = self.modes, self.size * (self.size + 1) / 2
        packed = entries * sum(
            math.comb(modes + r - 1, r) for r in range(min(order, self.num_agents) + 1)
        )
        reading = round_costs(self.moves, self.size, length, 1).reading(reads)
        return reading + min(
            rounds, packed if packed <= DENSE_ENTRIES else rounds
        ) * self.round_seconds(order, length)


def moment_system(
    problem: Federation | MarkovNoise,
    algorithm: Any,
    initial_params: ArrayLike | None,
    sampling: str,
) -> MomentSystem:
    if sampling not in ("markov", "iid"):
        raise ProblemError(f"sampling is {sampling!r}; give 'markov' or 'iid'.")
    if not isinstance(algorithm, LinearSA | OnPolicyTD | OffPolicyTabularTD | OffPolicyLinearTD):
        raise ProblemError(
            f"Exact moments exist for algorithms that are linear in their parameters, and "
            f"{type(algorithm).__name__} is not; "
            "sample its error with fegsam.run."
        )
    root = fixed_point(problem, algorithm)
    first = np.zeros_like(root)
    if initial_params is not None:
        first = flat_params(initial_params, "initial_params", len(root))
    counts: dict[int, int] = {}
    for kind in np.flatnonzero(problem.kind_counts).tolist():
        twin = _first_alike(problem, algorithm, kind)
        counts[twin] = counts.get(twin, 0) + int(problem.kind_counts[kind])
    kinds, iid = list(counts), sampling == "iid"
    if isinstance(algorithm, LinearSA):
        assert isinstance(problem, MarkovNoise)
        moves = _noise_moves(problem, algorithm, kinds, root, iid)
    else:
        assert isinstance(problem, Federation)
        moves = _window_moves(problem, algorithm, kinds, root, iid)
    return MomentSystem(moves, np.array(list(counts.values())), root, first - root)


def _noise_moves(
    problem: MarkovNoise, algorithm: LinearSA, kinds: list[int], root: np.ndarray, iid: bool
) -> Moves:
    laws = distinct_stationary_laws(problem, algorithm.policies(problem))
    matrices, offsets = algorithm.matrices, algorithm.offsets
    tables = [
        linear_increments(matrices[kind % len(matrices)], offsets[kind % len(offsets)], root)
        for kind in kinds
    ]
    own_laws = [laws[kind % len(laws)] for kind in kinds]
    if iid:
        return independent_increments(own_laws, tables)
    chains = [problem.kernels[kind % len(problem.kernels)] for kind in kinds]
    return dense_moves(chains, problem.initial_distribution, own_laws, tables)


def _window_moves(
    problem: Federation, algorithm: Any, kinds: list[int], root: np.ndarray, iid: bool
) -> Moves:
    def check(counts: list[tuple[int, int]]) -> None:
        modes, pairs = np.array(counts)[kinds].sum(axis=0).tolist()
        _check_memory(
            len(kinds) if iid else modes, 0 if iid else pairs, len(kinds), len(root) + 1, 1
        )

    windows = chain_windows(problem, algorithm, check)
    steps = [window_steps(windows[kind], root) for kind in kinds]
    return independent_windows(steps) if iid else rank_one_moves(steps)


def _first_alike(problem: Federation | MarkovNoise, algorithm: Any, kind: int) -> int:
    """The first kind that is the same: all of them, where one environment, policy and operator
    serve all."""
    if isinstance(problem, MarkovNoise):
        return kind if len(problem.kernels) > 1 or len(algorithm.matrices) > 1 else 0
    return kind if len(problem.mdps) > 1 or len(algorithm.policies(problem)) > 1 else 0


def _needed_bytes(modes: int, pairs: int, size: int, order: int) -> float:
    """What the recursion takes: moments for each pair of modes, maps of second moments for each
    mode, and the parts."""
    maps = modes * (size * (size + 1) / 2) ** 2
    cells = float(modes) ** order if order * math.log(max(modes, 2)) < 100 else math.inf
    return 8.0 * (2.0 * pairs * size**2 + maps + _COPIES * cells * size**2)


def _check_memory(modes: int, pairs: int, kinds: int, size: int, order: int) -> None:
    needed = _needed_bytes(modes, pairs, size, order)
    if needed > MOST_BYTES:
        raise ProblemError(
            f"Exact moments of {size - 1} parameters over {modes} modes of {kinds} kinds need "
            f"about {needed / 1e9:.3g} GB at "
            f"order {order}, and {MOST_BYTES / 1e9:.3g} GB are allowed; use fewer states, "
            "features or kinds, "
            "a smaller horizon, or sample with fegsam.run."
        )
