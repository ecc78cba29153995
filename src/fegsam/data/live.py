"""`LiveSource`: an environment that runs while its agent learns."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.choosing import (
    ActionWords,
    EpisodeSeeds,
    FunctionPolicy,
    PolicyFunction,
    TablePolicy,
    wrong_shape,
)
from fegsam.data.content import content_of
from fegsam.data.environments import (
    LAST_AGENT,
    Environment,
    Spaces,
    make,
    name_of,
    name_of_agent,
    spaces_of,
)
from fegsam.data.live_reader import LiveReader
from fegsam.data.vector_walks import ConstantWalk, FunctionWalk
from fegsam.data.walking import LiveAgent, StateWalk, Walk
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, fraction, integer, real_array
from fegsam.problem.policies import check_policy

Ends = Literal["stop", "restart"]


@dataclass(frozen=True, eq=False)
class LiveSource:
    """An environment with Gymnasium's interface, in which agents act by a fixed policy.

    The actions of an agent depend on the seed, the agent and the step, and each of its episodes has
    a seed of its own. So what an agent sees does not depend on the number of agents, and an agent
    that was stopped continues where it was.

    Parameters
    ----------
    env : str or callable
        A Gymnasium id, such as ``"FrozenLake-v1"``, or a function that makes an environment. All
        that is random in an episode must follow from the seed that ``reset`` is given.
    policy : (S, A) array or callable
        The probabilities of actions. A table is for observations that are state numbers, or with
        S = 1 for the same probabilities everywhere. A function of observations (L, k) returns them
        with shape (L, A). It is called at every step with one observation, since the next one
        depends on the action; a function of state numbers (L,) is called once, with all of them.
    options : mapping
        Arguments for ``gymnasium.make``, or for the function `env`.
    index : callable, optional
        A function from an observation to a state number from 0 on, where observations are neither
        state numbers nor arrays. It needs a table as policy.
    ends : "stop" or "restart"
        What follows an episode that terminated: nothing, so that the value of its end is 0, or the
        next episode. With "restart" any action in the last observation has reward 0 and leads to
        the next start, as in `fegsam.examples.from_gymnasium`. A truncated episode is cut
        in both cases, and the value of its last observation counts.

    Examples
    --------
    >>> import fegsam as fg
    >>> lake = fg.LiveSource("FrozenLake-v1", fg.policies.uniform(16, 4))
    >>> rows = lake.open(discount=0.95, seed=0, agent=0).read(100)
    >>> rows.observation.shape, bool(rows.gap.any())
    ((100,), True)
    """

    env: Environment
    policy: ArrayLike | PolicyFunction
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    index: Callable[[Any], int] | None = field(default=None, kw_only=True)
    ends: Ends = field(default="stop", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.env, str) and not callable(self.env):
            raise ProblemError(
                f"env is {shown(self.env)}: give a Gymnasium id or a function that makes an "
                "environment"
            )
        if self.ends not in ("stop", "restart"):
            raise ProblemError(f"ends is {shown(self.ends)}: give 'stop' or 'restart'")
        if self.index is not None and not callable(self.index):
            raise ProblemError(f"index is {shown(self.index)}: give a function of an observation")
        if not isinstance(self.options, Mapping):
            raise ProblemError(f"options is {shown(self.options)}: give a mapping of arguments")
        if callable(self.policy):
            if self.index is not None:
                raise ProblemError(
                    "policy is a function, but index= numbers the states: give a table (S, A)"
                )
            return
        table = real_array(self.policy, "policy", "(S, A)")
        if table.ndim != 2 or 0 in table.shape:
            raise ProblemError(f"policy has shape {table.shape}: give shape (S, A)")
        object.__setattr__(
            self, "policy", check_policy(table, table.shape[0], table.shape[1], "policy")
        )

    @property
    def env_name(self) -> str:
        """The name of the environment in messages."""
        return name_of(self.env)

    def make(self) -> Any:
        """A new environment."""
        return make(self.env, self.options)

    def spaces(self, made: Any = None) -> Spaces:
        """The numbers of states and actions, from an environment that is made for this if need be.

        >>> import fegsam as fg
        >>> fg.LiveSource("CartPole-v1", [[0.5, 0.5]]).spaces().width
        4
        """
        table = None if callable(self.policy) else np.asarray(self.policy)
        numbered = None if self.index is None or table is None else table.shape[0]
        found = spaces_of(self.env_name, self.make() if made is None else made, numbered)
        if table is None:
            return found
        needed = (1 if found.num_states is None else found.num_states, found.num_actions)
        if table.shape == needed:
            return found
        if found.num_states is None:
            raise ProblemError(
                f"policy has shape {table.shape}, but {self.env_name} has observations of shape "
                f"{found.shape} and {needed[1]} actions: give a function of observations, shape "
                f"{needed} for the same probabilities everywhere, or index="
            )
        raise ProblemError(
            f"policy has shape {table.shape}, but {self.env_name} has {needed[0]} states and "
            f"{needed[1]} actions: give shape {needed}"
        )

    def fingerprint(self) -> str:
        """SHA-256 of what determines the rows, as far as Python tells what a function does.

        >>> import fegsam as fg
        >>> go = fg.policies.uniform(16, 4)
        >>> lake = fg.LiveSource("FrozenLake-v1", go)
        >>> lake.fingerprint() == fg.LiveSource("FrozenLake-v1", go, ends="restart").fingerprint()
        False
        """
        parts = (self.env, dict(self.options), self.policy, self.index, self.ends)
        return hashlib.sha256(content_of(parts)).hexdigest()

    def open(self, *, discount: float, seed: int, agent: int) -> LiveReader:
        """A reader of the rows of agent number `agent` under `seed`, in its own environment."""
        if discount != 1.0:
            discount = fraction(discount, "discount")
        integer(seed, "seed", least=0, most=2**64 - 1)
        integer(agent, "agent", least=0, most=LAST_AGENT)
        made = self.make()
        spaces = self.spaces(made)
        live = LiveAgent(
            name_of_agent(self.env, agent),
            made,
            spaces,
            ActionWords(spaces.num_actions, seed, agent),
            EpisodeSeeds(seed, agent),
            self.ends == "restart",
        )
        return LiveReader(self._walk(live), discount)

    def _walk(self, live: LiveAgent) -> Walk:
        spaces, policy = live.spaces, self.policy
        if spaces.width is None:
            return StateWalk(live, TablePolicy(self.table_of(spaces)), self._number())
        if callable(policy):
            return FunctionWalk(live, FunctionPolicy(policy, spaces.width, spaces.num_actions))
        return ConstantWalk(live, TablePolicy(np.asarray(policy)))

    def _number(self) -> Callable[[Any], int]:
        index = self.index
        if index is None:
            return int
        return lambda observation: operator.index(index(observation))

    def table_of(self, spaces: Spaces) -> FloatArray:
        """(S, A): the policy of an environment whose observations are state numbers."""
        assert spaces.num_states is not None
        if not callable(self.policy):
            return np.asarray(self.policy)
        needed = (spaces.num_states, spaces.num_actions)
        found = np.asarray(self.policy(np.arange(spaces.num_states)))
        if found.shape != needed:
            raise wrong_shape(found, needed)
        return check_policy(found, *needed, "policy")
