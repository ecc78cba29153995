"""The windows that a temporal-difference agent can encounter, as edges of a finite Markov chain.

A step at time t reads the window ``y_t = (S_t, A_t, ..., S_{t+n})``. Its *mode* is ``z_t = (S_t,
A_t, ..., S_{t+n-1})``, the window without its last transition. Given the mode, the last transition
is independent of theta_t, which depends only on earlier transitions. So the chain of modes, with
windows as its edges, is enough to compute every moment exactly.

The n-step temporal difference is linear in the parameters. With ``g_l = gamma^l rho_t ...
rho_{t+l}`` it is

    E = sum_{l<n} g_l (R_l + gamma v(S_{t+l+1}) - v(S_{t+l})) = reward + sum_{l<=n} coefficient_l
    v(S_{t+l}).

Where transitions have discounts of their own, the product of the first l takes the place of
gamma^l. Actions of a state that have the same reward, ratio and discounts count as one action here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.algorithms.structure import TemporalDifference, temporal_difference
from fegsam.algorithms.td import require_federation, stacked_rewards
from fegsam.errors import ProblemError
from fegsam.problem.chains import distinct_stationary_laws
from fegsam.problem.federation import Federation, Problem
from fegsam.problem.mdp import MDP

MOST_WINDOWS = 1 << 24
MOST_BYTES = 4 << 30
_WINDOW_BYTES = 40
"""Memory that each transition of a window takes while the windows are made."""


@dataclass(frozen=True, eq=False)
class Windows:
    """The m modes of one kind of agent and the E windows between them."""

    source: np.ndarray
    """(E,): the mode of the window; sorted"""
    target: np.ndarray
    """(E,): the mode of the next step"""
    probability: np.ndarray
    """(E,): of each window, given its source"""
    states: np.ndarray
    """(E, n + 1): S_t, ..., S_{t+n}"""
    coefficients: np.ndarray
    """(E, n + 1)"""
    reward: np.ndarray
    """(E,)"""
    rows: np.ndarray | None
    """(S, d): the direction of the step from each state; None for the unit vectors, with one cell
    for each state"""
    features: np.ndarray | None
    """(S, d): ``v(s) = features[s] @ params``; None for the unit vectors"""
    first_state: np.ndarray
    """(m,): S_t"""
    initial: np.ndarray
    """(m,): the distribution of z_0"""
    stationary: np.ndarray
    """(m,)"""

    @property
    def num_modes(self) -> int:
        return len(self.first_state)

    def values(self, params: np.ndarray) -> np.ndarray:
        """(S,): v at these parameters."""
        return params if self.features is None else self.features @ params

    def errors(self, params: np.ndarray) -> np.ndarray:
        """(E,): the n-step temporal difference of each window at these parameters."""
        return self.reward + np.einsum(
            "el,el->e", self.coefficients, self.values(params)[self.states]
        )

    def chain(self) -> sparse.csr_array:
        """(m, m): the transition kernel of the modes."""
        shape = (self.num_modes, self.num_modes)
        return sparse.csr_array(
            sparse.coo_array((self.probability, (self.source, self.target)), shape=shape)
        )


@dataclass(frozen=True, eq=False)
class _Steps:
    """The transitions of one kind, from a state by a class of actions to the next; sorted by state.

    A class holds the actions of a state that have the same reward and ratio, or one action if the
    discounts depend on it.
    """

    start: np.ndarray
    """(S + 1,): the steps of state s are start[s] .. start[s + 1] - 1"""
    state: np.ndarray
    next: np.ndarray
    probability: np.ndarray
    ratio: np.ndarray
    reward: np.ndarray
    discount: np.ndarray

    def paths(self, length: int) -> float:
        """The number of paths of `length` transitions."""
        return count_paths(self.state, self.next, len(self.start) - 1, length)


def count_paths(state: np.ndarray, following: np.ndarray, num_states: int, length: int) -> float:
    """The number of paths of `length` transitions, where each goes from `state` to `following`."""
    count = np.ones(num_states)
    for _ in range(length):
        count = np.bincount(state, weights=count[following], minlength=num_states)
    return float(count.sum())


def continuations(start: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Extend paths that end in the states `last` (P,) by every possible transition.

    The transitions from state s are start[s] .. start[s + 1] - 1. Returns where the continuations
    of each path begin (P + 1,), and for each continuation its path and its transition.
    """
    many = start[last + 1] - start[last]
    begin = np.concatenate([[0], np.cumsum(many)])
    parent = np.repeat(np.arange(len(last)), many)
    return begin, parent, start[last[parent]] + np.arange(begin[-1]) - begin[parent]


def chain_windows(
    problem: Problem,
    algorithm: Algorithm,
    check: Callable[[list[tuple[int, int]]], None] | None = None,
) -> list[Windows]:
    """The windows of each kind of agent; kinds with the same windows share one object.

    `check` is called with the numbers of modes and windows of each kind before any window is made,
    and may raise.

    Raises
    ------
    ProblemError
        If there are more than 2**24 windows.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.examples.garnet(4, 2, 2, discount=0.5, seed=0)
    >>> fed = fg.Federation(mdp, num_agents=3, target_policy=fg.policies.uniform(4, 2))
    >>> [windows] = chain_windows(fed, fg.OffPolicyTabularTD(horizon=2))
    >>> windows.num_modes, windows.states.shape
    (16, (64, 3))
    """
    check_algorithm(algorithm, problem)
    structure, federation = _require(algorithm, problem)
    policies, horizon = algorithm.policies(problem), structure.horizon
    stationary = distinct_stationary_laws(problem, policies)
    every = _kind_steps(federation, structure, policies)
    _check_count(every, horizon, problem.num_kinds)
    if check is not None:
        counts = [(int(steps.paths(horizon - 1)), int(steps.paths(horizon))) for steps in every]
        check(counts * (problem.num_kinds // len(every)))
    found = [
        _windows(federation, structure, steps, kind, stationary[kind % len(stationary)])
        for kind, steps in enumerate(every)
    ]
    return found * (problem.num_kinds // len(found))


def _require(algorithm: Algorithm, problem: Problem) -> tuple[TemporalDifference, Federation]:
    structure = temporal_difference(algorithm, problem)
    if structure is None:
        raise ProblemError(
            f"{type(algorithm).__name__} has no windows, since its structure is not a "
            "TemporalDifference; use an algorithm of that structure."
        )
    return structure, require_federation(problem, algorithm)


def num_distinct(problem: Federation, structure: TemporalDifference, policies: np.ndarray) -> int:
    """M, or 1 if all kinds of agents have the same MDP, policy and update directions."""
    rows = 1 if structure.rows is None else len(structure.rows)
    return max(len(problem.mdps), len(policies), rows)


def _kind_steps(
    problem: Federation, structure: TemporalDifference, policies: np.ndarray
) -> list[_Steps]:
    """The transitions of each kind, or a single entry if all kinds share them."""
    rewards = stacked_rewards(problem)
    ratios = np.ones_like(policies) if structure.ratios is None else structure.ratios
    return [
        _steps(
            problem.mdps[kind % len(problem.mdps)],
            policies[kind % len(policies)],
            ratios[kind % len(ratios)],
            rewards[kind % len(rewards)],
        )
        for kind in range(num_distinct(problem, structure, policies))
    ]


def _steps(mdp: MDP, policy: np.ndarray, ratios: np.ndarray, rewards: np.ndarray) -> _Steps:
    num_states, num_actions = policy.shape
    cells = np.flatnonzero(policy > 0)
    by_action = mdp.discounts is not None and mdp.discounts.shape[1] > 1
    action = cells % num_actions if by_action else np.zeros_like(cells)
    marks = np.stack(
        [cells // num_actions, ratios.ravel()[cells], rewards.ravel()[cells], action], axis=1
    )
    classes, class_of = np.unique(marks, axis=0, return_inverse=True)
    shape = (len(classes), num_states * num_actions)
    weights = sparse.csr_array((policy.ravel()[cells], (class_of.ravel(), cells)), shape=shape)
    joint = sparse.csr_array(weights @ mdp.transitions)
    joint.sum_duplicates()
    joint.eliminate_zeros()
    class_of_step = np.repeat(np.arange(len(classes)), np.diff(joint.indptr))
    state, action = classes[class_of_step][:, [0, 3]].astype(np.int64).T
    following = joint.indices.astype(np.int64)
    return _Steps(
        start=np.searchsorted(state, np.arange(num_states + 1)),
        state=state,
        next=following,
        probability=joint.data,
        ratio=classes[class_of_step, 1],
        reward=classes[class_of_step, 2],
        discount=mdp.discounts_of(state, action, following),
    )


def _check_count(every: list[_Steps], horizon: int, num_kinds: int) -> None:
    counts = [steps.paths(horizon) for steps in every]
    kind = int(np.argmax(counts))
    needed = _WINDOW_BYTES * (horizon + 2.0) * sum(counts)
    if counts[kind] > MOST_WINDOWS or needed > MOST_BYTES:
        raise ProblemError(
            f"An agent{f' of kind {kind}' if num_kinds > 1 else ''} can encounter "
            f"{counts[kind]:.3g} windows of {horizon} transitions, and the windows of all kinds "
            f"need about {needed / 1e9:.3g} GB, but at most {MOST_WINDOWS} windows and "
            f"{MOST_BYTES / 1e9:.3g} GB are allowed; use a smaller horizon or fewer states."
        )


def _windows(
    problem: Federation,
    structure: TemporalDifference,
    steps: _Steps,
    kind: int,
    stationary: np.ndarray,
) -> Windows:
    # The loop extends all paths of l transitions; the continuations of a path are adjacent. `tail`
    # is the index of a path without its first transition.
    num_states = len(stationary)
    sequence = np.empty((num_states, 0), np.int64)
    last = np.arange(num_states)
    parent, tail = last, last
    begin_before = begin = np.zeros(0, np.int64)
    sequence_before = sequence
    for length in range(1, structure.horizon + 1):
        sequence_before, begin_before = sequence, begin
        begin, parent, step = continuations(steps.start, last)
        place = step - steps.start[last[parent]]
        tail = steps.next[step] if length == 1 else begin_before[tail[parent]] + place
        sequence = np.column_stack([sequence_before[parent], step])
        last = steps.next[step]

    first_state = (
        steps.state[sequence_before[:, 0]] if structure.horizon > 1 else np.arange(num_states)
    )
    chance = steps.probability[sequence_before].prod(axis=1)
    coefficients, reward = _expanded(steps, sequence)
    rows = None if structure.is_tabular else structure.directions
    return Windows(
        source=parent,
        target=tail,
        probability=steps.probability[sequence[:, -1]],
        states=np.column_stack([steps.state[sequence], last]),
        coefficients=coefficients,
        reward=reward,
        rows=None if rows is None else rows[kind % len(rows)],
        features=structure.features,
        first_state=first_state,
        initial=problem.initial_distribution[first_state] * chance,
        stationary=stationary[first_state] * chance,
    )


def _expanded(steps: _Steps, sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(E, n + 1) and (E,): the coefficients and the reward of each window."""
    windows, horizon = sequence.shape
    coefficients, reward, weight = (
        np.zeros((windows, horizon + 1)),
        np.zeros(windows),
        np.ones(windows),
    )
    for l in range(horizon):
        weight = weight * steps.ratio[sequence[:, l]]
        reward += weight * steps.reward[sequence[:, l]]
        coefficients[:, l] -= weight
        weight = steps.discount[sequence[:, l]] * weight
        coefficients[:, l + 1] += weight
    return coefficients, reward
