"""The random numbers of a round: who takes part, how changes are rounded, which cells are sent."""

from __future__ import annotations

import numpy as np

from fegsam.methods.participation import Participation
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.randomness import PARTICIPATION, ROUNDING, SOME_CELLS, words


def draw_participants(agents: np.ndarray, count: int, seed: int, number: int) -> np.ndarray:
    """int64 (count): some of `agents` for round `number`, uniformly and without replacement.

    They are the agents with the smallest random words.

    >>> draw_participants(np.arange(4), 2, seed=0, number=0)
    array([0, 2])
    """
    candidates = np.asarray(agents, np.uint64)
    high, low = words(np.uint64(seed), candidates, np.uint64(number), PARTICIPATION)
    order = np.lexsort((candidates, low, high))
    return np.sort(candidates[order[:count]]).astype(np.int64)


def participants(
    participation: Participation | None, num_agents: int, seed: int, number: int
) -> np.ndarray:
    """int64 (m): the agents that take part in round `number`, in order.

    >>> participants(None, 3, seed=0, number=0)
    array([0, 1, 2])
    """
    everyone = np.arange(num_agents)
    if participation is None:
        return everyone
    if participation.agents is not None:
        return draw_participants(everyone, participation.agents, seed, number)
    word, _ = words(np.uint64(seed), everyone.astype(np.uint64), np.uint64(number), PARTICIPATION)
    return everyone[word < word_threshold(participation)]


def word_threshold(participation: Participation) -> np.uint64:
    """An agent takes part with the given probability if its word is below this.

    >>> int(word_threshold(Participation(probability=0.5))) == 2**31
    True
    """
    assert participation.probability is not None
    return np.uint64(participation.probability * 2.0**32)


def reported(
    rounding: Rounding | SomeCells | None, change: np.ndarray, seed: int, agent: int, number: int
) -> np.ndarray:
    """(d): the change (d) of an agent in round `number` as the server receives it."""
    if rounding is None:
        return change
    purpose = ROUNDING if isinstance(rounding, Rounding) else SOME_CELLS
    dimension = len(change)
    counters = np.uint64(number) * np.uint64(dimension) + np.arange(dimension, dtype=np.uint64)
    high, low = words(np.uint64(seed), np.uint64(agent), counters, purpose)
    if isinstance(rounding, Rounding):
        return rounding.rounded(change, (high + 0.5) / 2.0**32)
    chosen = np.lexsort((np.arange(dimension), low, high))[: rounding.count]
    sent = np.zeros(dimension)
    sent[chosen] = change[chosen] * (dimension / rounding.count)
    return sent
