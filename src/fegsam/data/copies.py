"""The copies of an environment that step at once, each for one agent, from seeds of its own.

Copy i draws its actions by the words of its agent and begins each episode from a seed of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fegsam.data.choosing import EpisodeSeeds
from fegsam.data.environments import Spaces
from fegsam.data.fleet_rows import draw
from fegsam.data.walking import OPEN
from fegsam.errors import ProblemError, shown


class CopyPlace(NamedTuple):
    """Where a copy is."""

    episode: int
    began: int
    """the steps before the episode"""
    time: int
    """the steps so far"""
    follows: int
    """OPEN, ENDED or RESTARTS, as in `fegsam.data.walking`"""


class Saved(NamedTuple):
    """A place and the observation there."""

    place: CopyPlace
    seen: np.ndarray
    """(k)"""


class Policy(Protocol):
    """The probabilities of actions of all copies, and the alias rows to draw from."""

    table: np.ndarray
    """uint32, flat: threshold, outcome and other outcome of each entry"""
    chances: np.ndarray
    """float64, flat: the probability of each action, by entry"""

    def starts(self, seen: np.ndarray) -> np.ndarray:
        """int64 (n): the entry of `table` at which each copy's row begins; seen is (n, k)."""
        ...


class Copies:
    """The copies of some agents: where each is, and how they choose, step and begin anew."""

    def __init__(
        self, name: str, made: Any, spaces: Spaces, policy: Policy, of: tuple[int, Sequence[int]]
    ) -> None:
        self.name: str = name
        self.made: Any = made
        self.spaces: Spaces = spaces
        self._policy = policy
        self._seed, self._agents = np.uint64(of[0]), np.array(of[1], np.uint64)
        self._seeds = [EpisodeSeeds(of[0], agent) for agent in of[1]]
        self.count: int = len(self._seeds)
        self.width: int = 1 if spaces.width is None else spaces.width
        self._first_action = spaces.first_action
        self._episodes, self._began = (np.zeros(self.count, np.int64) for _ in range(2))
        self._times, self._actions = (np.zeros(self.count, np.int64) for _ in range(2))
        self.now: np.ndarray = np.zeros((self.count, self.width))
        """(n, k): what each copy shows"""
        self.drawn: np.ndarray = np.zeros(self.count, np.int64)
        """(n): the actions of the last step"""
        self.drawn_chances: np.ndarray = np.zeros(self.count)
        """(n): their probabilities"""

    def replay(self, saved: Sequence[Saved | None]) -> np.ndarray:
        """Bring each copy to its place, or to the start; (n): whether its episode is over there.

        Open episodes are replayed: each begins as many ticks before the end as it has steps. Until
        then its copy steps without being looked at.
        """
        places = [CopyPlace(0, 0, 0, OPEN) if one is None else one.place for one in saved]
        over = np.array([place.follows != OPEN for place in places])
        self._episodes[:] = [place.episode for place in places]
        self._began[:] = [place.began for place in places]
        self._times[:] = [place.time for place in places]
        steps = np.where(over, 0, self._times - self._began)
        self._times[:] = self._began
        longest = int(steps.max())
        self.reset(np.ones(len(places), np.bool_))
        for tick in range(longest):
            begins = (longest - steps == tick) & (steps > 0) if tick else np.zeros(len(over), bool)
            if begins.any():
                self.reset(begins)
            waits = longest - steps > tick
            _, ended = self.step(waits)
            self.reset(ended)
        if longest:
            self.reset((steps == 0) & ~over)
        for copy, one in enumerate(saved):
            if one is None:
                continue
            if over[copy]:
                self.now[copy] = one.seen
            elif not np.array_equal(self.now[copy], one.seen):
                raise ProblemError(
                    f"{self.name}, agent {self._agents[copy]}: episode {places[copy].episode}, "
                    f"replayed from its seed, shows {self._plain(self.now[copy])} after "
                    f"{steps[copy]} steps instead of {self._plain(one.seen)}: let every copy begin "
                    "its episodes from the seed that it is given, or use a LiveSource"
                )
        self._times[:] = [place.time for place in places]
        return over

    def front(self, copy: int) -> CopyPlace:
        """Where a copy is, in an open episode."""
        episode, began = int(self._episodes[copy]), int(self._began[copy])
        return CopyPlace(episode, began, int(self._times[copy]), OPEN)

    def end_episodes(self, ended: np.ndarray, restarts: np.ndarray) -> None:
        """Begin the next episodes of some copies; a restart takes a step."""
        self._times += restarts
        self._episodes[ended] += 1
        self._began[ended] = self._times[ended]
        self.reset(ended)

    def choose(self) -> tuple[np.ndarray, np.ndarray]:
        """(n): the action of each copy where it is, and its probability."""
        policy, times = self._policy, self._times.astype(np.uint64)
        size = self.spaces.num_actions
        starts = policy.starts(self.now)
        first = starts.astype(np.uint64)
        draw(self._seed, self._agents, times, first, np.uint64(size), policy.table, self._actions)
        return self._actions, policy.chances[starts + self._actions]

    def step(self, idle: np.ndarray | None = None) -> tuple[tuple[np.ndarray, np.ndarray], Any]:
        """Step all copies once; rewards, terminated, and which episodes are over.

        The time of an `idle` copy stands still.
        """
        actions, self.drawn_chances = self.choose()
        self.drawn[:] = actions
        seen, rewards, terminated, truncated, _ = self.made.step(actions + self._first_action)
        self._note(seen)
        self._times += 1 if idle is None else ~idle
        stops = np.asarray(terminated, np.bool_)
        return (rewards, stops), stops | np.asarray(truncated, np.bool_)

    def reset(self, mask: np.ndarray) -> None:
        """Begin the episodes of some copies, each from its seed."""
        if not mask.any():
            return
        seeds = [
            seeds[int(episode)] if begins else 0
            for seeds, episode, begins in zip(self._seeds, self._episodes, mask, strict=True)
        ]
        try:
            seen, _ = self.made.reset(seed=seeds, options={"reset_mask": mask.copy()})
        except Exception as error:
            raise ProblemError(
                f"{self.name} cannot begin episodes of single copies ({error}): its reset must "
                "take seed=, a list with a seed for each copy, and options={'reset_mask': ...}; "
                "otherwise use a LiveSource"
            ) from error
        self._note(seen)

    def _note(self, seen: Any) -> None:
        self.now = np.array(seen, np.float64).reshape(len(self._seeds), self.width)
        states, first = self.spaces.num_states, self.spaces.first_state
        if states is None:
            return
        self.now -= first
        if self.now.min() < 0 or self.now.max() >= states:
            wrong = self.now[(self.now < 0) | (self.now >= states)][0]
            raise ProblemError(
                f"{self.name}: observation is {shown(int(wrong) + first)}, but there are {states} "
                f"states ({first} to {first + states - 1}): correct it or declare more"
            )

    def _plain(self, seen: np.ndarray) -> str:
        if self.spaces.num_states is not None:
            return shown(int(seen[0]) + self.spaces.first_state)
        return shown(seen.tolist())
