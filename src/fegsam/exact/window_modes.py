"""The chain of an agent's windows: each mode is the whole window of the next step.

An agent then knows the increment of its next step from its mode alone, as first-step control
variates need it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import Linear, LinearOperator, TransitionOperator
from fegsam.exact.algorithm_steps import WindowSteps, linear_increments, window_steps
from fegsam.exact.moment_system import check_memory
from fegsam.exact.step_maps import DenseMaps
from fegsam.exact.transitions import kind_transitions
from fegsam.exact.windows import Windows, chain_windows, continuations
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import MarkovNoise, Problem


def window_mode_maps(
    problem: Problem,
    algorithm: Algorithm,
    structure: Linear,
    kinds: list[int],
    root: np.ndarray,
    sampling: str,
) -> DenseMaps:
    """The step maps of each of the `kinds`, with windows as modes."""
    if isinstance(structure, LinearOperator):
        assert isinstance(problem, MarkovNoise)
        laws = distinct_stationary_laws(problem, algorithm.policies(problem))
        matrices, offsets = structure.of_kinds(problem.num_kinds)
        increments = [linear_increments(matrices[k], offsets[k], root) for k in kinds]
        stationary = [laws[k % len(laws)] for k in kinds]
        chains = [problem.kernels[k] for k in kinds]
        initial = [np.asarray(problem.initial_distribution)] * len(kinds)
    elif isinstance(structure, TransitionOperator):
        every = kind_transitions(problem, algorithm, structure)
        own = [every[k % len(every)] for k in kinds]
        edges = sum(len(each.state) for each in own)
        check_memory(edges, edges, len(kinds), len(root) + 1, 1)
        increments = [linear_increments(*each.terms, root) for each in own]
        stationary = [each.frequency for each in own]
        initial = [each.initial[each.state] * each.probability for each in own]
        chains = [each.edge_chain for each in own]
    else:
        windows = chain_windows(problem, algorithm, _memory_check(kinds, len(root)))
        steps = [window_steps(windows[k], root) for k in kinds]
        increments = [_increments(each) for each in steps]
        stationary = [_chances(each.windows, each.windows.stationary) for each in steps]
        initial = [_chances(each.windows, each.windows.initial) for each in steps]
        chains = [_window_chain(each.windows) for each in steps]
    if sampling == "iid":
        initial = stationary
        chains = [sparse.csr_array(np.tile(law, (len(law), 1))) for law in stationary]
    begin = np.concatenate([[0], np.cumsum([len(each) for each in increments])])
    return DenseMaps(
        begin,
        sparse.csr_array(sparse.block_diag(chains, format="csr")),
        *(np.concatenate(each) for each in (initial, stationary, increments)),
    )


def _memory_check(kinds: list[int], dimension: int) -> Callable[[list[tuple[int, int]]], None]:
    def check(counts: list[tuple[int, int]]) -> None:
        windows = sum(counts[kind][1] for kind in kinds)
        check_memory(windows, windows, len(kinds), dimension + 1, 1)

    return check


def _increments(steps: WindowSteps) -> np.ndarray:
    """(E, D, D): the change of x by each window, for a step size of one."""
    first = steps.windows.first_state[steps.windows.source]
    left = np.column_stack([steps.rows[first], np.zeros(len(first))])
    return left[:, :, None] * steps.h[:, None, :]


def _chances(windows: Windows, modes: np.ndarray) -> np.ndarray:
    """(E,): the distribution of the window, given that of the mode."""
    return modes[windows.source] * windows.probability


def _window_chain(windows: Windows) -> sparse.csr_array:
    """(E, E): from each window to those that begin with its last mode."""
    begin = np.searchsorted(windows.source, np.arange(windows.num_modes + 1))
    start, _, following = continuations(begin, windows.target)
    shape = (len(windows.source),) * 2
    return sparse.csr_array((windows.probability[following], following, start), shape=shape)
