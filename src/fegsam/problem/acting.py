"""Policies that follow from an agent's own current action values, for on-policy control.

The values are a flat table with (s, a) in cell ``s * num_actions + a``. A draw uses one word of 32
bits, so that every engine draws the same action from the same values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba.extending import register_jitable

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, positive

SOFTMAX, EPSILON_GREEDY = np.uint64(0), np.uint64(1)
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Softmax:
    """Take action a in state s with probability proportional to ``exp(Q(s, a) / temperature)``.

    Parameters
    ----------
    temperature : float
        Large temperatures explore, small ones take the best action.

    Examples
    --------
    >>> Softmax(temperature=1.0).probabilities(np.array([[0.0, math.log(3.0)]]))
    array([[0.25, 0.75]])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", positive(self.temperature, "temperature"))

    @property
    def code(self) -> np.uint64:
        """What `choose_action` calls it."""
        return SOFTMAX

    @property
    def amount(self) -> float:
        """The temperature."""
        return self.temperature

    def probabilities(self, values: FloatArray) -> FloatArray:
        """(S, A): the policy at action values (S, A)."""
        weights = np.exp((values - values.max(axis=1, keepdims=True)) / self.temperature)
        return weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class EpsilonGreedy:
    """Take the best action, or with probability epsilon any action, each as likely.

    Where several actions are best, the first of them counts as the best.

    Parameters
    ----------
    epsilon : float
        Above zero and at most one.

    Examples
    --------
    >>> EpsilonGreedy(epsilon=0.5).probabilities(np.array([[0.0, 2.0]]))
    array([[0.25, 0.75]])
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        epsilon = positive(self.epsilon, "epsilon")
        if epsilon > 1:
            raise ProblemError(f"epsilon is {shown(self.epsilon)}; give at most 1.")
        object.__setattr__(self, "epsilon", epsilon)

    @property
    def code(self) -> np.uint64:
        """What `choose_action` calls it."""
        return EPSILON_GREEDY

    @property
    def amount(self) -> float:
        """Epsilon."""
        return self.epsilon

    def probabilities(self, values: FloatArray) -> FloatArray:
        """(S, A): the policy at action values (S, A)."""
        policy = np.full_like(values, self.epsilon / values.shape[1])
        policy[np.arange(len(values)), values.argmax(axis=1)] += 1 - self.epsilon
        return policy


Acting = Softmax | EpsilonGreedy


@register_jitable
def choose_action(word, params, start, count, code, amount):
    """Draw one of `count` actions, whose values begin at ``params[start]``, by a word of 32 bits.

    `code` and `amount` are those of a `Softmax` or an `EpsilonGreedy`.
    """
    best = start
    for j in range(_ONE, count):
        if params[start + j] > params[best]:
            best = start + j
    share = np.float64(word) / 4294967296.0
    if code == EPSILON_GREEDY:
        if share < amount:
            return min(np.uint64(share / amount * count), count - _ONE)
        return best - start
    total = 0.0
    for j in range(count):
        total += math.exp((params[start + j] - params[best]) / amount)
    left = share * total
    for j in range(count):
        left -= math.exp((params[start + j] - params[best]) / amount)
        if left < 0.0:
            return np.uint64(j)
    return best - start
