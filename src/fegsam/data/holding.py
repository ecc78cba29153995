"""Which episodes are held out: whole ones, chosen at random, to measure quality on later.

Of every 1 / fraction episodes in a row one is held out. Which one depends on the seed, the agent
and the episode's number alone, so that a log read in pieces, resumed, or read again is divided in
the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fegsam.data.rows import Rows, joined, part
from fegsam.errors import ProblemError
from fegsam.problem.checks import flag, fraction, integer

if TYPE_CHECKING:
    from fegsam.data.federation import Reader

PURPOSE = 6
"""Part of the random numbers' key, so that no other draw of the same seed and agent repeats them"""
LARGEST_SEED = 2**64 - 1
AT_LEAST = 1024
"""A `SplitReader` reads at least this many rows at once."""
AT_ONCE = 1 << 16
"""Rows that are read at once in the search for held-out episodes."""


class Split(NamedTuple):
    """Learning rows and held-out rows of one agent, both of whole episodes.

    Examples
    --------
    >>> import numpy as np
    >>> one = Rows(*(np.zeros(2) for _ in Rows._fields))
    >>> Split(one, one).held_out is one
    True
    """

    learning: Rows
    held_out: Rows


def is_held_out(
    episodes: np.ndarray, *, fraction_held: float, seed: int, agent: int = 0
) -> np.ndarray:
    """For the numbers of some episodes, in ascending order: whether each is held out.

    >>> import numpy as np
    >>> is_held_out(np.arange(12), fraction_held=0.25, seed=0).reshape(3, 4).sum(axis=1)
    array([1, 1, 1])
    """
    share = fraction(fraction_held, "held_out")
    key = integer(seed, "seed", least=0, most=LARGEST_SEED), integer(agent, "agent", least=0)
    if not len(episodes):
        return np.zeros(0, np.bool_)
    # Stratum k has the episodes from k / share to (k + 1) / share; one of them is held out.
    strata = _stratum(episodes, share)
    first, last = int(strata[0]), int(strata[-1])
    begins = np.array([_begin(k, share) for k in range(first, last + 2)])
    sizes = np.diff(begins)
    words = _words(key, first, len(sizes)) >> np.uint64(11)
    chosen = begins[:-1] + (words * 2.0**-53 * sizes).astype(np.int64)
    return chosen[strata - first] == episodes


def _begin(stratum: int, share: float) -> int:
    return math.ceil(stratum / share)


def _stratum(episodes: np.ndarray, share: float) -> np.ndarray:
    """The stratum of each episode, by `_begin` itself, so that rounding cannot set them apart."""
    low = max(int(episodes[0] * share) - 1, 0)
    begins = [_begin(k, share) for k in range(low, int(episodes[-1] * share) + 3)]
    return low + np.searchsorted(begins, episodes, side="right") - 1


def _words(key: tuple[int, int], first: int, count: int) -> np.ndarray:
    """uint64 words number `first` and on of the Philox stream of a seed and an agent."""
    counter = np.array([first // 4, key[1], PURPOSE, 0], dtype=np.uint64)
    stream = np.random.Philox(key=np.array([key[0], 0], dtype=np.uint64), counter=counter)
    return stream.random_raw(count + first % 4)[first % 4 :]


def hold_out(rows: Rows, fraction_held: float, *, seed: int, agent: int = 0) -> Split:
    """Divide rows into learning and held-out rows, by whole episodes.

    Parameters
    ----------
    rows : Rows
        All rows of one agent.
    fraction_held : float
        The share of the episodes that is held out, strictly between 0 and 1.
    seed : int
    agent : int
        The number of the agent: agents with the same seed hold out other episodes.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.csv", walk, go, episodes=20, length=5, seed=0
    ...     )
    ...     rows = fg.LogSource(path).read(discount=0.9)
    >>> learning, held_out = fg.data.hold_out(rows, 0.1, seed=0)
    >>> int(learning.gap.sum()), int(held_out.gap.sum())
    (18, 2)
    """
    held, _ = _rows_held(rows, 0, (fraction_held, seed, agent))
    return Split(_where(rows, ~held), _where(rows, held))


def _rows_held(
    rows: Rows, first: int, key: tuple[float, int, int], in_pass: int = 0
) -> tuple[np.ndarray, int]:
    """(L): whether each row is held out, and the number of the episode behind the rows.

    The first row is of episode `first`. With `in_pass` the numbers begin again after so many.
    """
    place = np.cumsum(rows.gap) - rows.gap
    last = int(place[-1]) if len(place) else -1
    numbers = np.arange(first, first + last + 1)
    if in_pass:
        numbers %= in_pass
    episodes, back = np.unique(numbers, return_inverse=True)
    share, seed, agent = key
    held = is_held_out(episodes, fraction_held=share, seed=seed, agent=agent)[back]
    behind = first + int(rows.gap.sum())
    return held[place], behind % in_pass if in_pass else behind


def _where(rows: Rows, chosen: np.ndarray) -> Rows:
    return rows if chosen.all() else Rows(*(array[chosen] for array in rows))


class SplitReader:
    """A reader of only the learning episodes of another reader, or of only the held-out ones.

    It keeps at most `AT_LEAST` rows beyond those that were asked for.

    Parameters
    ----------
    reader : a reader of rows
        It stands at the beginning of an episode that is number 0.
    fraction_held : float
    seed, agent : int
    held_out : bool
        Whether to yield the episodes that are held out, or the others.
    episodes : int, optional
        The number of episodes in one pass, for a log that is read several times: each pass is
        divided in the same way.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.csv", walk, go, episodes=20, length=5, seed=0
    ...     )
    ...     reader = fg.LogSource(path).open(discount=0.9)
    ...     rows = fg.data.SplitReader(reader, 0.1, seed=0).read(1000)
    >>> int(rows.gap.sum())
    18
    """

    def __init__(
        self,
        reader: Reader,
        fraction_held: float,
        *,
        seed: int,
        agent: int = 0,
        held_out: bool = False,
        episodes: int | None = None,
    ) -> None:
        self._reader, self._held_out = reader, flag(held_out, "held_out")
        self._key = fraction(fraction_held, "held_out"), seed, agent
        self._pass = 0 if episodes is None else integer(episodes, "episodes")
        self._episode, self._used = 0, 0
        self._held: Rows | None = None
        self._before = self._here()

    def read(self, count: int) -> Rows:
        """The next `count` rows of its episodes; fewer only when the data is used up."""
        parts: list[Rows] = []
        missing = count
        while True:
            parts.append(self.read_some(missing))
            missing -= len(parts[-1].gap)
            if missing <= 0 or not len(parts[-1].gap):
                return joined(parts)

    def read_some(self, most: int) -> Rows:
        """At least one and at most `most` rows, as many as are at hand; none at the end."""
        while self._held is None or self._used >= len(self._held.gap):
            # Small pieces would make a long search of the episodes that are left out.
            self._before, self._used = self._here(), 0
            rows = self._reader.read(max(most, AT_LEAST))
            self._held = self._own(rows)
            if not len(rows.gap):
                return rows
        begin, self._used = self._used, min(self._used + most, len(self._held.gap))
        return part(self._held, begin, self._used)

    def _own(self, rows: Rows) -> Rows:
        held, self._episode = _rows_held(rows, self._episode, self._key, self._pass)
        return _where(rows, held == self._held_out)

    def _here(self) -> dict[str, np.ndarray]:
        return self._reader.save() | {"episode": np.array(self._episode, dtype=np.int64)}

    def save(self) -> dict[str, np.ndarray]:
        """Where the other reader was at its latest piece, and the rows of it that are used."""
        return self._before | {"used": np.array(self._used, dtype=np.int64)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned."""
        own = ("episode", "used")
        self._reader.restore({name: state[name] for name in state if name not in own})
        self._episode, self._used, self._held = int(state["episode"]), 0, None
        self._before = self._here()
        if int(state["used"]):
            self.read(int(state["used"]))


def read_held_out(
    reader: Reader, fraction_held: float, *, seed: int, agent: int = 0, most: int = 10**6
) -> Rows:
    """The held-out episodes of a reader, until there are `most` rows of them.

    Parameters
    ----------
    reader : a reader of rows
        One of its own, which reads a single pass.
    fraction_held, seed, agent
        As for `hold_out`.
    most : int
        Reading ends soon after this number, with a whole episode.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(
    ...         f"{folder}/log.csv", walk, go, episodes=20, length=5, seed=0
    ...     )
    ...     rows = fg.data.read_held_out(fg.LogSource(path).open(discount=0.9), 0.1, seed=0)
    >>> int(rows.gap.sum())
    2
    """
    parts: list[Rows] = []
    found, episode = 0, 0
    while True:
        rows = reader.read(AT_ONCE)
        if not len(rows.gap):
            break
        held, episode = _rows_held(rows, episode, (fraction_held, seed, agent))
        parts.append(_where(rows, held))
        found += len(parts[-1].gap)
        if found >= most and parts[-1].gap[-1:].all():
            break
    if not found:
        raise ProblemError(
            f"no episode of {episode} is held out at the fraction {fraction_held}: hold out more, "
            "or give more episodes"
        )
    return joined(parts)
