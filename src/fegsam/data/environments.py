"""Environments with Gymnasium's interface: how one is made, and what its spaces say.

Gymnasium is imported only to make an environment by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fegsam.errors import ProblemError, shown

Environment = str | Callable[..., Any]
"""A Gymnasium id, or a function that makes an environment."""


LAST_AGENT = 2**32 - 1
"""An agent that has rows held out beside its own reads them as the agent that is as far from this
number as its own is from 0."""


class Spaces(NamedTuple):
    """What an environment shows and takes. Its own numbers of states and actions may start at any
    number; those of rows start at 0."""

    num_states: int | None
    """None where observations are not state numbers"""
    num_actions: int
    shape: tuple[int, ...]
    """the shape of an observation of numbers; () for a state number"""
    first_state: int = 0
    first_action: int = 0

    @property
    def width(self) -> int | None:
        """How many numbers an observation has; None for a state number."""
        return None if self.num_states is not None else int(np.prod(self.shape))


def name_of(env: Environment) -> str:
    """The name of an environment in messages."""
    return env if isinstance(env, str) else getattr(env, "__name__", shown(env))


def name_of_agent(env: Environment, agent: int) -> str:
    """The name of an agent's environment in messages.

    >>> name_of_agent("Lake-v0", 3), name_of_agent("Lake-v0", LAST_AGENT - 3)
    ('Lake-v0, agent 3', 'Lake-v0, held-out rows of agent 3')
    """
    if agent > LAST_AGENT // 2:
        return f"{name_of(env)}, held-out rows of agent {LAST_AGENT - agent}"
    return f"{name_of(env)}, agent {agent}"


def make(env: Environment, options: Mapping[str, Any]) -> Any:
    """Make an environment; an error in one sentence where Gymnasium cannot."""
    if not isinstance(env, str):
        try:
            return env(**options)
        except TypeError as error:
            raise ProblemError(
                f"{name_of(env)} makes no environment with the options {shown(dict(options))} "
                f"({error}): correct the options or the function"
            ) from error
    try:
        import gymnasium
    except ImportError:
        raise ProblemError(f"{env} needs Gymnasium; run: pip install 'fegsam[gymnasium]'") from None
    try:
        return gymnasium.make(env, **options)
    except (gymnasium.error.Error, LookupError, TypeError, ValueError) as error:
        raise ProblemError(
            f"Gymnasium cannot make {env!r}: {str(error).rstrip('.')}; check its name and its "
            "options"
        ) from error


def spaces_of(name: str, made: Any, num_states: int | None) -> Spaces:
    """The spaces of an environment. `num_states` is given where `index` numbers its observations.

    Spaces are told apart by their attributes, so that an environment need not be Gymnasium's.
    """
    actions, seen = made.action_space, made.observation_space
    if not _is_discrete(actions):
        raise ProblemError(
            f"{name} has the actions {shown(actions)}, but a policy chooses among finitely many: "
            "wrap it so that its action space is Discrete"
        )
    taken = {"num_actions": int(actions.n), "first_action": int(actions.start)}
    if num_states is not None:
        return Spaces(num_states=num_states, shape=(), **taken)
    if _is_discrete(seen):
        return Spaces(int(seen.n), shape=(), first_state=int(seen.start), **taken)
    numbers = getattr(seen, "dtype", None)
    if getattr(seen, "shape", None) is None or numbers is None or numbers.kind not in "biuf":
        raise ProblemError(
            f"{name} has the observations {shown(seen)}: give index=, a function from an "
            "observation to a state number, and a policy as a table"
        )
    return Spaces(num_states=None, shape=tuple(seen.shape), **taken)


def first_of(space: Any) -> int:
    """The number that the numbers of a space begin with; 0 where a space has others."""
    return int(space.start) if _is_discrete(space) else 0


def _is_discrete(space: Any) -> bool:
    return hasattr(space, "n") and hasattr(space, "start")
