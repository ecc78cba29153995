"""A problem and an algorithm as input of the moment recursion, and the cost of that recursion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import (
    Linear,
    LinearOperator,
    TransitionOperator,
    structure_of,
)
from fegsam.algorithms.td import require_federation
from fegsam.errors import ProblemError
from fegsam.exact.algorithm_steps import (
    dense_maps,
    independent_noise_maps,
    independent_window_maps,
    linear_increments,
    rank_one_maps,
    window_steps,
)
from fegsam.exact.fixed_points import fixed_point
from fegsam.exact.hierarchy import Hierarchy
from fegsam.exact.long_run import DENSE_ENTRIES
from fegsam.exact.rounds import RoundMaps, StepMeans, round_costs
from fegsam.exact.step_maps import StepMaps
from fegsam.exact.transition_maps import independent_transition_maps, transition_maps
from fegsam.exact.transitions import kind_transitions
from fegsam.exact.windows import MOST_BYTES, chain_windows, num_distinct
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.checks import flat_params
from fegsam.problem.federation import MarkovNoise, Problem

_PER_NUMBER = 6e-8
"""Seconds per number of a level that its sums take."""
_PER_LEVEL = 2e-4
"""The fixed cost of a level, in seconds."""
_COPIES = 12
"""A round holds this many arrays of the size of a level at a time."""


@dataclass(frozen=True, eq=False)
class MomentSystem:
    """The step maps of all kinds that have agents, and the agents' start."""

    maps: StepMaps
    counts: np.ndarray
    fixed_point: np.ndarray
    start: np.ndarray
    """(d,): the initial parameters minus the fixed point"""

    @property
    def num_agents(self) -> int:
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        return len(self.start) + 1

    @property
    def modes(self) -> int:
        return len(self.maps.initial)

    @property
    def highest_order(self) -> int:
        """The order at which nothing is left out."""
        return 0 if self.modes == len(self.counts) else self.num_agents

    def steps(self, step_size: float) -> StepMeans:
        return StepMeans(self.maps, step_size, self.size)

    def require_memory(self, order: int) -> None:
        """Raise `ProblemError` if an order needs more memory than is allowed."""
        check_memory(self.modes, self.maps.chain.nnz, len(self.counts), self.size, order)

    def hierarchy(self, steps: StepMeans, length: int, order: int) -> Hierarchy:
        self.require_memory(order)
        kept = min(order, self.num_agents)
        return Hierarchy(RoundMaps(steps, length, kept), self.counts, order)

    def fits(self, order: int) -> bool:
        return _needed_bytes(self.modes, self.maps.chain.nnz, self.size, order) <= MOST_BYTES

    def round_seconds(self, order: int, length: int) -> float:
        """About how many seconds one round takes."""
        total = _PER_LEVEL
        for r in range(1, min(order, self.num_agents) + 1):
            costs = round_costs(self.maps, self.size, length, r)
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
        """About how many seconds `rounds` rounds take, and readings after `reads` steps.

        The rounds are taken by powers of a matrix if that is faster.
        """
        modes, entries = self.modes, self.size * (self.size + 1) / 2
        packed = entries * sum(
            math.comb(modes + r - 1, r) for r in range(min(order, self.num_agents) + 1)
        )
        reading = round_costs(self.maps, self.size, length, 1).reading(reads)
        return reading + min(
            rounds, packed if packed <= DENSE_ENTRIES else rounds
        ) * self.round_seconds(order, length)


def moment_system(
    problem: Problem,
    algorithm: Algorithm,
    initial_params: ArrayLike | None,
    sampling: str,
) -> MomentSystem:
    structure = linear_structure(problem, algorithm, sampling)
    root = fixed_point(problem, algorithm)
    first = first_params(initial_params, root)
    alike = are_alike(problem, algorithm, structure)
    present = np.flatnonzero(problem.kind_counts)
    kinds = [0] if alike else present.tolist()
    counts = np.array([problem.num_agents]) if alike else problem.kind_counts[present]
    maps = step_maps_of(problem, algorithm, structure, kinds, root, sampling)
    return MomentSystem(maps, counts, root, first - root)


def linear_structure(problem: Problem, algorithm: Algorithm, sampling: str) -> Linear:
    """The structure of an algorithm whose moments exist; raise `ProblemError` if they do not."""
    if sampling not in ("markov", "iid"):
        raise ProblemError(f"sampling is {sampling!r}; give 'markov' or 'iid'.")
    check_algorithm(algorithm, problem)
    structure = structure_of(algorithm, problem)
    if not isinstance(structure, Linear):
        raise ProblemError(
            f"Exact moments exist only for algorithms that are linear in their parameters, and "
            f"{type(algorithm).__name__} is not linear by its structure; sample its error with "
            "fegsam.run."
        )
    return structure


def first_params(initial_params: ArrayLike | None, root: np.ndarray) -> np.ndarray:
    """(d,): the initial parameters; zeros if none are given."""
    if initial_params is None:
        return np.zeros_like(root)
    return flat_params(initial_params, "initial_params", len(root))


def step_maps_of(
    problem: Problem,
    algorithm: Algorithm,
    structure: Linear,
    kinds: list[int],
    root: np.ndarray,
    sampling: str,
) -> StepMaps:
    """The step maps of each of the `kinds`, which may repeat."""
    if isinstance(structure, LinearOperator):
        assert isinstance(problem, MarkovNoise)
        stationary = distinct_stationary_laws(problem, algorithm.policies(problem))
        return _noise_maps(problem, structure, stationary, kinds, root, sampling == "iid")
    if isinstance(structure, TransitionOperator):
        every = kind_transitions(problem, algorithm, structure)
        make = independent_transition_maps if sampling == "iid" else transition_maps
        return make([every[kind % len(every)] for kind in kinds], root)
    return _window_maps(problem, algorithm, kinds, root, sampling == "iid")


def _noise_maps(
    problem: MarkovNoise,
    operator: LinearOperator,
    stationary: np.ndarray,
    kinds: list[int],
    root: np.ndarray,
    iid: bool,
) -> StepMaps:
    matrices, offsets = operator.of_kinds(problem.num_kinds)
    tables = [linear_increments(matrices[kind], offsets[kind], root) for kind in kinds]
    own = [stationary[kind] for kind in kinds]
    if iid:
        return independent_noise_maps(own, tables)
    chains = [problem.kernels[kind] for kind in kinds]
    return dense_maps(chains, problem.initial_distribution, own, tables)


def _window_maps(
    problem: Problem, algorithm: Algorithm, kinds: list[int], root: np.ndarray, iid: bool
) -> StepMaps:
    def check(counts: list[tuple[int, int]]) -> None:
        modes, pairs = np.array(counts)[kinds].sum(axis=0).tolist()
        check_memory(
            len(kinds) if iid else modes, 0 if iid else pairs, len(kinds), len(root) + 1, 1
        )

    windows = chain_windows(problem, algorithm, check)
    steps = [window_steps(windows[kind], root) for kind in kinds]
    return independent_window_maps(steps) if iid else rank_one_maps(steps)


def are_alike(problem: Problem, algorithm: Algorithm, structure: Linear) -> bool:
    """Whether all kinds share one environment, policy and operator."""
    if isinstance(structure, LinearOperator):
        return problem.num_kinds == 1
    federation, policies = require_federation(problem, algorithm), algorithm.policies(problem)
    if isinstance(structure, TransitionOperator):
        return max(len(federation.mdps), len(policies)) == 1
    return num_distinct(federation, structure, policies) == 1


def _needed_bytes(modes: int, pairs: int, size: int, order: int) -> float:
    """The memory of the recursion, in bytes.

    It holds moments for each pair of modes, maps of second moments for each mode, and the parts.
    """
    maps = modes * (size * (size + 1) / 2) ** 2
    cells = float(modes) ** order if order * math.log(max(modes, 2)) < 100 else math.inf
    return 8.0 * (2.0 * pairs * size**2 + maps + _COPIES * cells * size**2)


def check_memory(modes: int, pairs: int, kinds: int, size: int, order: int) -> None:
    needed = _needed_bytes(modes, pairs, size, order)
    if needed > MOST_BYTES:
        raise ProblemError(
            f"Exact moments of {size - 1} parameters over {modes} modes of {kinds} kinds need "
            f"about {needed / 1e9:.3g} GB at order {order}, but {MOST_BYTES / 1e9:.3g} GB are "
            "allowed; use fewer states, features or kinds, a smaller horizon, or sample with "
            "fegsam.run."
        )
