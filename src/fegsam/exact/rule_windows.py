"""Every window that an agent can encounter, with its stationary probability.

`rule_field` runs a rule of unknown structure on each of them. A step of an algorithm with window n
reads S_t, A_t, ..., S_{t+n}; with n = 0 it reads one state of the chain. The windows lie one after
the other in two flat arrays, as an engine lays out independent windows. Each kind of agent has its
own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.exact.windows import continuations, count_paths
from fegsam.problem.chains import stationary_laws
from fegsam.problem.federation import MarkovNoise, Problem

MOST_RULE_WINDOWS = 1 << 20
"""The rule runs on each of them about a hundred times."""


@dataclass(frozen=True, eq=False)
class RuleWindows:
    """E windows of n transitions, sorted by kind; window e begins at entry ``e * (n + 1)``."""

    states: np.ndarray
    """uint32 (E * (n + 1),)"""
    actions: np.ndarray
    """uint32 (E * (n + 1),); the last entry of each window is padding"""
    length: int
    """n + 1"""
    begin: np.ndarray
    """(M + 1,): the windows of kind k are begin[k] .. begin[k + 1] - 1"""
    probability: np.ndarray
    """(E,): of each window, under the stationary distribution of its kind"""
    mdps: np.ndarray
    """uint64 (M,): the index of each kind's MDP"""
    policies: np.ndarray
    """uint64 (M,): the index of each kind's policy"""

    def __len__(self) -> int:
        return len(self.probability)


def rule_windows(problem: Problem, algorithm: Algorithm) -> RuleWindows:
    """The windows of all kinds of agents of a `problem` that has passed the algorithm's check.

    Raises
    ------
    ProblemError
        If there are more than 2**20 windows.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> windows = rule_windows(fed, fg.QLearning())
    >>> windows.length, float(windows.probability.sum())
    (2, 1.0)
    """
    policies, window = algorithm.policies(problem), algorithm.window
    kinds, count = [], 0.0
    for kind in range(problem.num_kinds):
        steps = _KindSteps.of(problem, policies, kind)
        count += count_paths(steps.state, steps.next, problem.num_states, window)
        if count > MOST_RULE_WINDOWS:
            raise ProblemError(
                f"The fixed point of {type(algorithm).__name__} is found by running its rule on "
                f"every window that an agent can encounter, and there are at least {count:.3g} "
                f"windows of {window} transitions where at most {MOST_RULE_WINDOWS} are run; "
                "declare its structure, use a smaller window or fewer states, or pass "
                "run(..., fixed_point=...)."
            )
        kinds.append(steps)
    laws = stationary_laws(problem, policies)
    found = [each.windows(law, window) for each, law in zip(kinds, laws, strict=True)]
    states, actions, probability = (np.concatenate(parts) for parts in zip(*found, strict=True))
    index = np.arange(problem.num_kinds, dtype=np.uint64)
    num_mdps = problem.num_kinds if isinstance(problem, MarkovNoise) else len(problem.mdps)
    return RuleWindows(
        states=states.astype(np.uint32).ravel(),
        actions=actions.astype(np.uint32).ravel(),
        length=window + 1,
        begin=np.cumsum([0, *(len(each[2]) for each in found)]),
        probability=probability,
        mdps=index % np.uint64(num_mdps),
        policies=index % np.uint64(len(policies)),
    )


@dataclass(frozen=True, eq=False)
class _KindSteps:
    """The transitions that one kind can make, sorted by their first state."""

    state: np.ndarray
    action: np.ndarray
    next: np.ndarray
    probability: np.ndarray

    @classmethod
    def of(cls, problem: Problem, policies: np.ndarray, kind: int) -> _KindSteps:
        transitions = _transitions(problem, kind)
        policy = policies[kind % len(policies)]
        cell = np.repeat(np.arange(policy.size), np.diff(transitions.indptr))
        probability = policy.ravel()[cell] * transitions.data
        possible = probability > 0
        state, action = np.divmod(cell[possible], policy.shape[1])
        following = transitions.indices[possible].astype(np.int64)
        return cls(state, action, following, probability[possible])

    def windows(
        self, stationary: np.ndarray, window: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(E, n + 1), (E, n + 1) and (E,): states, actions and stationary probabilities."""
        num_states, probability = len(stationary), stationary
        start = np.searchsorted(self.state, np.arange(num_states + 1))
        states = np.arange(num_states)[:, None]
        actions = np.empty((num_states, 0), np.int64)
        for _ in range(window):
            _, parent, step = continuations(start, states[:, -1])
            states = np.column_stack([states[parent], self.next[step]])
            actions = np.column_stack([actions[parent], self.action[step]])
            probability = probability[parent] * self.probability[step]
        return states, np.column_stack([actions, np.zeros(len(states), np.int64)]), probability


def _transitions(problem: Problem, kind: int) -> csr_array:
    """(S * A, S): the transitions of a kind's environment; Markov noise has one action."""
    if isinstance(problem, MarkovNoise):
        return problem.kernels[kind]
    return problem.mdps[problem.mdp_index(kind)].transitions
