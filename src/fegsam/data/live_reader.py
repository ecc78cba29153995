"""`LiveReader`: the rows of one agent in its environment, in pieces of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fegsam.data.rows import Rows
from fegsam.data.saved import require_kind
from fegsam.data.walking import OPEN, Walk
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import integer


class LiveReader:
    """Reads an agent's rows in order, in pieces of any size, and tells where it is.

    Examples
    --------
    >>> import fegsam as fg
    >>> lake = fg.LiveSource("FrozenLake-v1", fg.policies.uniform(16, 4))
    >>> reader, again = (lake.open(discount=0.9, seed=0, agent=3) for _ in range(2))
    >>> first = reader.read(50)
    >>> again.restore(reader.save())
    >>> bool((again.read(20).observation == reader.read(20).observation).all())
    True
    """

    def __init__(self, walk: Walk, discount: float) -> None:
        """Use `LiveSource.open`."""
        self._walk, self._discount = walk, discount

    def read(self, count: int) -> Rows:
        """The next `count` rows; an environment is never used up."""
        integer(count, "count", least=0)
        seen, taken, rewards, chances, stops, gaps = self._walk.run(count)
        for name, values in (("reward", rewards), ("observation", seen)):
            if not np.isfinite(values).all():
                wrong, live = values[~np.isfinite(values)][0], self._walk.live
                raise ProblemError(
                    f"{live.name}: {name} is {wrong} before step {self._walk.time}: correct "
                    "the environment"
                )
        discounts, is_gap = np.full(count, self._discount), np.zeros(count, np.bool_)
        discounts[stops], discounts[gaps], is_gap[gaps] = 0.0, 0.0, True
        return Rows(seen, taken, rewards, discounts, chances, np.full(count, np.nan), is_gap)

    def save(self) -> dict[str, np.ndarray]:
        """Where the reader is: the episode, its first step, the next step and the observation."""
        place = np.array(self._walk.place, np.int64)
        return {"place": place, "observation": np.array(self._walk.now)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned.

        The open episode is replayed from its seed and its actions. If it does not lead to the
        observation that was saved, the environment is refused.
        """
        require_kind(state, "place", self._walk.live.name)
        walk, saved = self._walk, state["observation"]
        place = tuple(int(number) for number in state["place"])
        walk.episode, walk.began, walk.time, walk.follows = place
        now = int(saved) if np.issubdtype(saved.dtype, np.integer) else np.array(saved)
        walk.now = now
        if walk.follows != OPEN:  # the episode is over, and the next one begins from its seed
            return
        steps, walk.time = walk.time - walk.began, walk.began
        walk.now = walk.reset()
        walk.run(steps)
        if walk.place != place or not np.array_equal(walk.now, now):
            raise ProblemError(
                f"{walk.live.name}: episode {place[0]}, replayed from its seed, shows "
                f"{_plain(walk.now)} after {steps} steps instead of {_plain(now)}: use an "
                "environment in which all follows from the seed, or write its rows to a "
                "fegsam.Spool"
            )

    def close(self) -> None:
        """Close the environment."""
        self._walk.live.made.close()


def _plain(observation: Any) -> str:
    return shown(observation.tolist() if isinstance(observation, np.ndarray) else observation)
