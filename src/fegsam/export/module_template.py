"""What a run learned, as plain Python: `value`, `action_values` and `action` of an observation.

An observation is a state number, or a sequence of numbers.
"""

import itertools
import math

MODEL: dict = {}


def value(observation):
    """The value of an observation: the largest one of its actions where actions have values."""
    return max(_values(observation))


def action_values(observation):
    """The values of the actions, as a list."""
    if MODEL["learned"] != "action values":
        raise TypeError("the model has the values of a policy, and none of actions")
    return _values(observation)


def action(observation):
    """The number of the best action; of equally good ones, the first."""
    values = action_values(observation)
    return values.index(max(values))


def _values(observation):
    count, weights = MODEL["num_actions"], MODEL["weights"]
    totals = [0.0] * count
    for index, number in _features(observation):
        for each in range(count):
            totals[each] += number * weights[index * count + each]
    return totals


def _features(observation):
    """The features that are not zero: their indices and values."""
    settings = MODEL["features"]
    kind = settings["kind"]
    if kind in ("one_hot", "table"):
        size = settings["states"] if kind == "one_hot" else len(settings["phi"])
        if not 0 <= observation < size:
            raise ValueError(f"observation is {observation}, but there are {size} states")
        return (
            [(observation, 1.0)] if kind == "one_hot" else enumerate(settings["phi"][observation])
        )
    numbers = [float(number) for number in _numbers(observation)]
    if kind == "columns":
        return enumerate(numbers)
    if kind == "radial":
        width = 2.0 * settings["width"] ** 2
        return enumerate(math.exp(-_apart(numbers, c) / width) for c in settings["centers"])
    ends = zip(numbers, settings["low"], settings["high"], strict=True)
    unit = [min(max((x - low) / (high - low), 0.0), 1.0) for x, low, high in ends]
    return _fourier(unit, settings["order"]) if kind == "fourier" else _tiles(unit, settings)


def _numbers(observation):
    return observation if hasattr(observation, "__len__") else [observation]


def _apart(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _fourier(unit, order):
    every = itertools.product(range(order + 1), repeat=len(unit))
    return enumerate(
        math.cos(math.pi * sum(c * x for c, x in zip(cs, unit, strict=True))) for cs in every
    )


def _tiles(unit, settings):
    counts, tilings = settings["tiles"], settings["tilings"]
    found, size = [], math.prod(count + 1 for count in counts)
    for tiling in range(tilings):
        index = 0
        for column, count in enumerate(counts):
            shift = (tiling * (2 * column + 1) % tilings) / tilings
            index = index * (count + 1) + math.floor(unit[column] * count + shift)
        found.append((tiling * size + index, 1.0))
    return found
