"""A problem and an algorithm, lowered to what the recursion of moments needs."""

from __future__ import annotations

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
from fegsam.exact.sweeps import Moves, dense_moves, rank_one_moves
from fegsam.exact.windows import chain_windows
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.checks import flat_params
from fegsam.problem.federation import Federation, MarkovNoise

MOST_BYTES = 4 << 30


@dataclass(frozen=True, eq=False)
class MomentSystem:
    """The kinds that have agents, and where these start."""

    moves: list[Moves]
    counts: np.ndarray
    fixed_point: np.ndarray
    start: np.ndarray
    """(d,): initial parameters less the fixed point"""
    iid: bool

    @property
    def num_agents(self) -> int:
        return int(self.counts.sum())

    def needed_bytes(self, order: int) -> float:
        """What the recursion takes: functionals for each mode, moments for each pair of modes, and the parts of each set."""
        modes, size = [len(each.initial) for each in self.moves], len(self.start) + 1
        functionals = 3 * sum(modes) * (size * (size + 1) / 2) * size**2
        windows = sum(each.chain.nnz for each in self.moves) * size**2
        return 8.0 * (functionals + windows + 8 * sum(modes) ** order * size**2)

    def hierarchy(self, step_size: float, length: int, order: int) -> Hierarchy:
        needed = self.needed_bytes(order)
        if needed > MOST_BYTES:
            modes = max(len(each.initial) for each in self.moves)
            raise ProblemError(
                f"Exact moments of {len(self.start)} parameters over {modes} modes of {len(self.moves)} kinds need about "
                f"{needed / 1e9:.3g} GB at order {order}, and {MOST_BYTES / 1e9:.3g} GB are allowed; use fewer states, "
                "features, kinds or a smaller horizon, or sample with fegsam.run."
            )
        return Hierarchy(self.moves, self.counts, len(self.start) + 1, step_size, length, order)


def moment_system(
    problem: Federation | MarkovNoise, algorithm: Any, initial_params: ArrayLike | None, sampling: str
) -> MomentSystem:
    if sampling not in ("markov", "iid"):
        raise ProblemError(f"sampling is {sampling!r}; give 'markov' or 'iid'.")
    if not isinstance(algorithm, LinearSA | OnPolicyTD | OffPolicyTabularTD | OffPolicyLinearTD):
        raise ProblemError(
            f"Exact moments exist for algorithms that are linear in their parameters, and {type(algorithm).__name__} is not; "
            "sample its error with fegsam.run."
        )
    root = fixed_point(problem, algorithm)
    first = np.zeros_like(root)
    if initial_params is not None:
        first = flat_params(initial_params, "initial_params", len(root))
    counts: dict[int, int] = {}
    moves: dict[int, Moves] = {}
    for kind in np.flatnonzero(problem.kind_counts).tolist():
        twin = _first_alike(problem, algorithm, kind)
        counts[twin] = counts.get(twin, 0) + int(problem.kind_counts[kind])
    if isinstance(algorithm, LinearSA):
        assert isinstance(problem, MarkovNoise)
        laws = distinct_stationary_laws(problem, algorithm.policies(problem))
        for kind in counts:
            moves[kind] = dense_moves(problem, algorithm, kind, laws[kind % len(laws)], root, iid=sampling == "iid")
    else:
        assert isinstance(problem, Federation)
        windows = chain_windows(problem, algorithm)
        _check_windows([windows[kind] for kind in counts], len(root) + 1)
        for kind in counts:
            moves[kind] = rank_one_moves(windows[kind], root, iid=sampling == "iid")
    return MomentSystem(list(moves.values()), np.array(list(counts.values())), root, first - root, sampling == "iid")


def _first_alike(problem: Federation | MarkovNoise, algorithm: Any, kind: int) -> int:
    """The first kind that is the same: all of them, where one environment, policy and operator serve all."""
    if isinstance(problem, MarkovNoise):
        return kind if len(problem.kernels) > 1 or len(algorithm.matrices) > 1 else 0
    return kind if len(problem.mdps) > 1 or len(algorithm.policies(problem)) > 1 else 0


def _check_windows(windows: list[Any], size: int) -> None:
    """The moments of each window are made before they are joined into pairs."""
    needed = 8.0 * max(len(each.source) for each in windows) * size**2
    if needed > MOST_BYTES:
        raise ProblemError(
            f"Exact moments of {size - 1} parameters over {max(len(each.source) for each in windows)} windows need about "
            f"{needed / 1e9:.3g} GB, and {MOST_BYTES / 1e9:.3g} GB are allowed; use fewer states or a smaller horizon, or "
            "sample with fegsam.run."
        )
