"""Gymnasium's toy-text environments as MDPs, if Gymnasium is installed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import fraction
from fegsam.problem.mdp import MDP

_Outcomes = dict[int, list[tuple[float, int, float, bool]]]
"""A state's outcomes by action: (probability, next state, reward, whether the episode ends)."""


def from_gymnasium(
    env_id: str, discount: float, *, ends: Literal["restart", "stop"] = "restart", **options: Any
) -> MDP:
    """A toy-text environment of Gymnasium: FrozenLake, Taxi or CliffWalking.

    Any installed version of them works. States that cannot be reached from the start are dropped;
    ``labels`` holds Gymnasium's number of each state that is kept. The reward is E[r | s, a]. In a
    state that ends the episode every action pays 0 and leads to a new start, drawn from the
    environment's initial distribution. There is no time limit.

    Parameters
    ----------
    env_id : str
        For instance ``"FrozenLake-v1"``.
    discount : float
    ends : "restart" or "stop"
        With "restart" values include the episodes that follow. With "stop" the value after an end
        is 0, as Gymnasium means it: the discount is 0 on every transition into a state that ends
        the episode, and on every one out of it, so that the value of that state is 0, too.
    **options
        For `gymnasium.make`, for instance ``is_slippery=False``.

    Examples
    --------
    >>> from_gymnasium("FrozenLake-v1", discount=0.99)
    MDP(states=16, actions=4, discount=0.99, successors=148)
    >>> from_gymnasium("FrozenLake-v1", discount=0.99, ends="stop")
    MDP(states=16, actions=4, discount=0 to 0.99, successors=148)
    """
    if not isinstance(ends, str) or ends not in ("restart", "stop"):
        raise ProblemError(
            f"ends is {shown(ends)}; give 'restart', which lets values include the episodes that "
            "follow, or 'stop', after which nothing counts."
        )
    if not isinstance(env_id, str):
        raise ProblemError(
            f"env_id is {shown(env_id)}; give the name of an environment, for example "
            "'FrozenLake-v1'."
        )
    env = _make(env_id, options)
    start = np.asarray(env.initial_state_distrib, dtype=np.float64)
    beginning = [int(state) for state in np.flatnonzero(start)]
    outcomes, last = _explore(env_id, env.P, beginning)
    kept = sorted(outcomes.keys() | last)
    number = {state: index for index, state in enumerate(kept)}
    actions = len(env.P[beginning[0]])
    transitions = sparse.lil_array((len(kept) * actions, len(kept)))
    rewards = np.zeros((len(kept), actions))
    for state, by_action in outcomes.items():
        for action, results in by_action.items():
            for chance, reached, reward, _ in results:
                transitions[number[state] * actions + action, number[reached]] += chance
                rewards[number[state], action] += chance * reward
    for state in last:
        for row in range(number[state] * actions, (number[state] + 1) * actions):
            for reached in beginning:
                transitions[row, number[reached]] = start[reached]
    if ends == "restart":
        return MDP(transitions, rewards, discount, labels=kept)
    going = ~np.isin(kept, list(last))
    gamma = fraction(discount, "discount")
    return MDP(transitions, rewards, gamma * (going[:, None, None] & going), labels=kept)


def _make(env_id: str, options: dict[str, Any]) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise ProblemError(
            f"{env_id} needs Gymnasium; run: pip install 'fegsam[gymnasium]'"
        ) from None
    try:
        env = gymnasium.make(env_id, **options).unwrapped
    except (gymnasium.error.Error, TypeError) as error:
        raise ProblemError(
            f"Gymnasium cannot make {env_id!r}: {str(error).rstrip('.')}; check its name and its "
            "options"
        ) from error
    if not hasattr(env, "P") or not hasattr(env, "initial_state_distrib"):
        raise ProblemError(
            f"{env_id} does not publish its transition table, so it cannot be read as a finite "
            "MDP: use FrozenLake, Taxi or CliffWalking"
        )
    if getattr(env, "fickle_passenger", False):
        raise ProblemError(
            f"{env_id} with fickle_passenger=True changes destinations in ways that its transition "
            "table leaves out: use fickle_passenger=False"
        )
    return env


def _explore(
    env_id: str, table: Any, beginning: list[int]
) -> tuple[dict[int, _Outcomes], set[int]]:
    """The outcomes of each reachable state that does not end an episode, and the states that do."""
    visited: dict[int, _Outcomes] = {}
    ends: set[int] = set()
    waiting = list(beginning)
    while waiting:
        state = waiting.pop()
        if state in visited:
            continue
        visited[state] = {
            int(action): [
                (p, int(reached), r, bool(end)) for p, reached, r, end in results if p > 0.0
            ]
            for action, results in table[state].items()
        }
        for results in visited[state].values():
            ends.update(reached for _, reached, _, end in results if end)
            waiting.extend(reached for _, reached, _, end in results if not end)
    both = sorted(ends & visited.keys())
    if both:
        raise ProblemError(
            f"{env_id}: state {both[0]} ends the episode after some transitions and not after "
            "others, so it is not one state of an MDP: use another environment"
        )
    return visited, ends
