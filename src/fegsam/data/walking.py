"""The loops of a live agent. Beside the environment's own step they do as little as possible.

A walk is at an observation of an episode. `run` collects the rows of one `read` from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fegsam.data.choosing import ActionWords, EpisodeSeeds, TablePolicy
from fegsam.data.environments import Spaces
from fegsam.errors import ProblemError, shown

OPEN, ENDED, RESTARTS = range(3)
"""What follows an observation: an action, nothing (a gap), or the start of the next episode."""


class LiveAgent(NamedTuple):
    """One agent's environment, and the random numbers that it is run with."""

    name: str
    """the environment and the agent, for messages"""
    made: Any
    """the environment"""
    spaces: Spaces
    words: ActionWords
    seeds: EpisodeSeeds
    restarts: bool
    """whether a terminated episode leads on to the next one"""


class Walked(NamedTuple):
    """The rows of a walk."""

    seen: np.ndarray
    """state numbers (L), or numbers (L, k)"""
    taken: np.ndarray
    rewards: np.ndarray
    chances: np.ndarray
    """NaN in gaps"""
    stops: list[int]
    """rows whose action terminated the episode, with nothing after it"""
    gaps: list[int]


class Walk(ABC):
    """What all walks share: where they are, and how they get from one episode to the next."""

    def __init__(self, live: LiveAgent) -> None:
        self.live = live
        self._reset, self._seeds = live.made.reset, live.seeds
        self.episode: int = 0
        self.began: int = 0
        self.time: int = 0
        self.follows: int = OPEN
        self._after = RESTARTS if live.restarts else ENDED
        self._begin(0)
        self.now: Any = self.keep(self._first())

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The episode, the steps before it, the steps so far, and what follows (OPEN, ...)."""
        return self.episode, self.began, self.time, self.follows

    @abstractmethod
    def note(self, observation: Any) -> Any:
        """An observation of the environment as rows have it."""

    @abstractmethod
    def keep(self, now: Any) -> Any:
        """The same as a value of its own: the environment may use its array again."""

    @abstractmethod
    def run(self, count: int) -> Walked:
        """Collect `count` rows."""

    @abstractmethod
    def _act(self, now: Any, time: int) -> None:
        """Add a row with the action of step `time` and reward 0."""

    @abstractmethod
    def _rest(self, now: Any) -> None:
        """Add a row without an action."""

    def _begin(self, count: int) -> None:
        """Begin a new collection of `count` rows."""
        self._taken: list[int] = []
        self._rewards: list[float] = []
        self._stops: list[int] = []
        self._gaps: list[int] = []

    def reset(self) -> Any:
        """Begin the episode from its seed, and return what it shows first."""
        observation, _ = self._reset(seed=self._seeds[self.episode])
        return self.note(observation)

    def _first(self) -> Any:
        """What the first episode shows first, or an error if `reset` is not Gymnasium's."""
        try:
            return self.reset()
        except (TypeError, ValueError) as error:
            raise ProblemError(
                f"{self.live.name}: its first episode cannot begin ({error}): let reset(seed=...) "
                "return an observation and a dict"
            ) from error

    def _turn(self, now: Any) -> Any:
        """Add the row of an episode's last observation; begin the next episode."""
        if self.follows == RESTARTS:
            self._act(now, self.time)
            self.time += 1
        else:
            self._gaps.append(len(self._taken))
            self._rest(now)
        self.episode, self.began, self.follows = self.episode + 1, self.time, OPEN
        return self.reset()

    def _walked(self, seen: np.ndarray, chances: np.ndarray) -> Walked:
        taken, rewards = np.array(self._taken, np.int64), np.array(self._rewards, np.float64)
        stops = [] if self.live.restarts else self._stops
        return Walked(seen, taken, rewards, chances, stops, self._gaps)


class StateWalk(Walk):
    """Walks over state numbers by a table."""

    def __init__(self, live: LiveAgent, policy: TablePolicy, number: Callable[[Any], int]) -> None:
        self._policy, self._number = policy, number
        self._first_state, self._num_states = live.spaces.first_state, live.spaces.num_states or 0
        super().__init__(live)

    def _begin(self, count: int) -> None:
        super()._begin(count)
        self._seen: list[int] = []

    def note(self, observation: Any) -> int:
        return self._checked(self._number(observation) - self._first_state)

    def keep(self, now: int) -> int:
        return now

    def run(self, count: int) -> Walked:
        self._begin(count)
        now, step, number = self.now, self.live.made.step, self._number
        num_actions, first_action = self.live.spaces.num_actions, self.live.spaces.first_action
        num_states, first_state = self._num_states, self._first_state
        words, thresholds, others = self.live.words, self._policy.thresholds, self._policy.others
        seen, taken, rewards = self._seen, self._taken, self._rewards
        while (left := count - len(taken)) > 0:
            if self.follows:
                now = self._turn(now)
                continue
            place = first = words.place(self.time)
            entries, rests = words.entries, words.rests
            terminated = truncated = False
            for place in range(first, min(first + left, len(entries))):
                # TablePolicy.choose, written out: a call would cost as much as all the rest.
                action = entries[place]
                at = now * num_actions + action
                if rests[place] >= thresholds[at]:
                    action = others[at]
                seen.append(now)
                taken.append(action)
                observation, reward, terminated, truncated, _ = step(action + first_action)
                rewards.append(reward)
                now = number(observation) - first_state
                if not 0 <= now < num_states:
                    self._checked(now)
                if terminated or truncated:
                    break
            self.time += place - first + 1
            if terminated:
                self.follows = self._after
                self._stops.append(len(taken) - 1)
            elif truncated:
                self.follows = ENDED
        self.now = now
        states = np.array(seen, np.int64)
        chances = self._policy.table[states, taken]
        chances[self._gaps] = np.nan
        return self._walked(states, chances)

    def _act(self, now: int, time: int) -> None:
        self._rest(now)
        self._taken[-1] = self._policy.choose(now, *self.live.words.parts(time))

    def _rest(self, now: int) -> None:
        self._seen.append(now)
        self._taken.append(0)
        self._rewards.append(0.0)

    def _checked(self, state: int) -> int:
        if 0 <= state < self._num_states:
            return state
        first, count = self._first_state, self._num_states
        raise ProblemError(
            f"{self.live.name}: observation is {shown(state + first)}, but there are {count} "
            f"states ({first} to {first + count - 1}): correct it or declare more"
        )
