"""`VectorSource`: many copies of an environment that step at once, each for one agent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.choosing import PolicyFunction, wrong_shape
from fegsam.data.content import content_of
from fegsam.data.copies import Copies, CopyPlace, Policy, Saved
from fegsam.data.environments import LAST_AGENT, Spaces, name_of
from fegsam.data.fleet import Fleet
from fegsam.data.live import Ends, LiveSource
from fegsam.data.rows import Rows
from fegsam.data.saved import require_kind
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import ROW_SUM_TOLERANCE, FloatArray, fraction, integer
from fegsam.randomness import alias_rows


@dataclass(frozen=True, eq=False)
class VectorSource:
    """A vector environment: copies that step at once, one for each agent that learns.

    The environment has the interface of Gymnasium's vector environments without autoreset:
    ``reset(seed=seeds, options={"reset_mask": mask})`` begins an episode in each copy of the mask,
    all of whose randomness follows from the copy's seed, and returns the observations of all
    copies. So an agent's path is the one that it would have alone, and it can be resumed. Agents
    that are opened together, as those of a run are, share an environment.

    Parameters
    ----------
    make_copies : callable
        ``make_copies(num_envs=n)`` returns an environment of n copies.
    policy, options, ends
        As in `LiveSource`. A function is called once for all copies, with observations (n, k).

    Examples
    --------
    >>> import gymnasium
    >>> import fegsam as fg
    >>> def lakes(num_envs):
    ...     each = [lambda: gymnasium.make("FrozenLake-v1")] * num_envs
    ...     return gymnasium.vector.SyncVectorEnv(each, autoreset_mode="Disabled")
    >>> go = fg.policies.uniform(16, 4)
    >>> together = fg.VectorSource(lakes, go).open(discount=0.9, seed=0, agent=3).read(100)
    >>> alone = fg.LiveSource("FrozenLake-v1", go).open(discount=0.9, seed=0, agent=3).read(100)
    >>> bool((together.observation == alone.observation).all())
    True
    """

    make_copies: Callable[..., Any]
    policy: ArrayLike | PolicyFunction
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    ends: Ends = field(default="stop", kw_only=True)
    _opened: list[_Crew] = field(default_factory=list, init=False, repr=False)
    """the crew that agents join until its first read"""

    def __post_init__(self) -> None:
        if not callable(self.make_copies):
            raise ProblemError(
                f"make_copies is {shown(self.make_copies)}: give a function that makes an "
                "environment of num_envs copies"
            )
        alone = LiveSource(self.make, self.policy, ends=self.ends)
        object.__setattr__(self, "policy", alone.policy)

    @property
    def env_name(self) -> str:
        """The name of the environment in messages."""
        return name_of(self.make_copies)

    def made(self, copies: int) -> Any:
        """A new environment with this number of copies."""
        try:
            return self.make_copies(num_envs=copies, **self.options)
        except TypeError as error:
            raise ProblemError(
                f"{self.env_name} makes no environment with num_envs={copies} and the options "
                f"{shown(dict(self.options))} ({error}): correct the options or the function"
            ) from error

    def make(self) -> Any:
        """One copy, with the interface of an environment that is not a vector."""
        return OneCopy(self.made(1))

    def spaces(self, made: Any = None) -> Spaces:
        """The numbers of states and actions, from a copy that is made for this if need be."""
        one = self.make() if made is None else _spaces_in(made)
        named = LiveSource(lambda: one, self.policy)
        return named.spaces(one)

    def fingerprint(self) -> str:
        """SHA-256 of what determines the rows, as far as Python tells what a function does."""
        parts = ("vector", self.make_copies, dict(self.options), self.policy, self.ends)
        return hashlib.sha256(content_of(parts)).hexdigest()

    def open(self, *, discount: float, seed: int, agent: int) -> VectorReader:
        """A reader of the rows of agent number `agent` under `seed`.

        Agents that are opened one after the other, before a row is read, share an environment.
        """
        if discount != 1.0:
            discount = fraction(discount, "discount")
        integer(seed, "seed", least=0, most=2**64 - 1)
        integer(agent, "agent", least=0, most=LAST_AGENT)
        crew = self._opened[0] if self._opened else None
        if crew is None or not crew.takes(discount, seed, agent):
            crew = _Crew(self, discount, seed)
            self._opened[:] = [crew]
        return crew.join(agent)


class _Crew:
    """The agents that share an environment; it is made when the first row is read."""

    def __init__(self, source: VectorSource, discount: float, seed: int) -> None:
        self._source, self._of = source, (discount, seed)
        self._agents: list[int] = []
        self.saved: list[Saved | None] = []
        """where each copy is to begin"""
        self._fleet: Fleet | None = None

    def takes(self, discount: float, seed: int, agent: int) -> bool:
        """Whether a further agent can join."""
        new = self._fleet is None and agent not in self._agents
        return new and self._of == (discount, seed)

    def join(self, agent: int) -> VectorReader:
        self._agents.append(agent)
        self.saved.append(None)
        return VectorReader(self, len(self._agents) - 1)

    @property
    def name(self) -> str:
        return self._source.env_name

    @property
    def begun(self) -> bool:
        return self._fleet is not None

    @property
    def fleet(self) -> Fleet:
        """The copies, which begin when they are first looked at."""
        if self._fleet is None:
            source, (discount, seed) = self._source, self._of
            made = source.made(len(self._agents))
            spaces = source.spaces(made)
            policy = _policy(source.policy, spaces)
            copies = Copies(source.env_name, made, spaces, policy, (seed, self._agents))
            self._fleet = Fleet(copies, discount, source.ends == "restart")
            self._fleet.begin(self.saved)
        return self._fleet


class VectorReader:
    """Reads the rows of one copy in order, in pieces of any size, and tells where it is.

    What `save` returns is the same as that of a `LiveReader`.
    """

    def __init__(self, crew: _Crew, copy: int) -> None:
        """Use `VectorSource.open`."""
        self._crew, self._copy = crew, copy

    def read(self, count: int) -> Rows:
        """The next `count` rows; an environment is never used up."""
        integer(count, "count", least=0)
        return self._crew.fleet.read(self._copy, count)

    def save(self) -> dict[str, np.ndarray]:
        """Where the reader is: the episode, its first step, the next step and the observation."""
        place, seen = self._crew.fleet.save(self._copy)
        return {"place": np.array(place, np.int64), "observation": seen}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned, by replaying open episodes."""
        require_kind(state, "place", self._crew.name)
        numbers = (int(number) for number in state["place"])
        saved = Saved(CopyPlace(*numbers), np.array(state["observation"], np.float64).ravel())
        if self._crew.begun:
            self._crew.fleet.restore(self._copy, saved)
        else:
            self._crew.saved[self._copy] = saved

    def close(self) -> None:
        """Close the environment, also for the agents that share it."""
        self._crew.fleet.copies.made.close()


class OneCopy:
    """A vector environment of one copy as an environment by itself."""

    def __init__(self, made: Any) -> None:
        self._made = made
        found = _spaces_in(made)
        self.observation_space, self.action_space = found.observation_space, found.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        mask = {"reset_mask": np.ones(1, np.bool_)}
        seen, _ = self._made.reset(seed=[seed], options=mask)
        return seen[0], {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, rewards, terminated, truncated, _ = self._made.step(np.array([action]))
        return seen[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._made.close()


def _spaces_in(made: Any) -> Any:
    return SimpleNamespace(
        observation_space=made.single_observation_space, action_space=made.single_action_space
    )


def _policy(policy: Any, spaces: Spaces) -> Policy:
    actions = spaces.num_actions
    if spaces.num_states is not None:
        table = policy
        if callable(policy):
            table = LiveSource(lambda: None, policy).table_of(spaces)
        return _ByState(np.asarray(table), by=actions)
    return _ByFunction(policy, actions) if callable(policy) else _ByState(policy, by=0)


class _ByState:
    """A table (S, A); with ``by=0`` its only row serves everywhere."""

    def __init__(self, table: FloatArray, by: int) -> None:
        rows, size = table.shape
        outcomes = np.tile(np.arange(size, dtype=np.uint32), rows)
        self.table = alias_rows(np.arange(rows + 1) * size, table.ravel(), outcomes).ravel()
        self.chances, self._by = table.ravel(), by

    def starts(self, seen: np.ndarray) -> np.ndarray:
        return seen[:, 0].astype(np.int64) * self._by


class _ByFunction:
    """A function of observations (n, k), asked for all copies at once."""

    def __init__(self, function: PolicyFunction, num_actions: int) -> None:
        self._function, self._size = function, num_actions
        self._slack = num_actions * float(np.finfo(np.float64).eps)
        self.table, self.chances = np.zeros(0, np.uint32), np.zeros(0)

    def starts(self, seen: np.ndarray) -> np.ndarray:
        count, size = len(seen), self._size
        chances = np.array(self._function(seen.copy()), np.float64)
        if chances.shape != (count, size):
            raise wrong_shape(chances, (count, size))
        totals = chances.sum(axis=1)
        if not (abs(totals - 1.0).max() <= ROW_SUM_TOLERANCE and chances.min() >= 0.0):
            raise ProblemError(
                "policy returns no probabilities: return numbers that are not negative and sum to "
                "one in each row"
            )
        # As in tables, probabilities that sum to one up to rounding stay as they are.
        off = abs(totals - 1.0) > self._slack
        chances[off] /= totals[off, None]
        starts = np.arange(count + 1) * size
        outcomes = np.tile(np.arange(size, dtype=np.uint32), count)
        self.table = alias_rows(starts, chances.ravel(), outcomes).ravel()
        self.chances = chances.ravel()
        return starts[:-1]
