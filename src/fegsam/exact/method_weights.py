"""How much each kind of agent counts in the mean change of a method, and whether the method fits.

If only some agents take part and the change is divided by their weights, an agent counts as often
as it answers, and the more the lighter the others are. Agent i then has the mean weight ``E[1{i
takes part} w_i / W]``, where W is the total weight of those who take part. With ``1/W = int_0^inf
exp(-s W) ds`` this is one integral over a product of the agents' factors.
"""

from __future__ import annotations

import math

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.data.federation import DataFederation
from fegsam.errors import ProblemError
from fegsam.methods.average import Mean
from fegsam.methods.method import Method
from fegsam.methods.participation import Participation
from fegsam.problem.federation import Problem

_SPACING = 0.125
"""The distance of the nodes u of the trapezoidal rule; s = exp(u - exp(-u))."""
_REACH = 4.0
"""The nodes begin at -_REACH and end where the smallest weight times s is exp(_REACH)."""
_DEVIATIONS = 12.0
"""Numbers of participants this many standard deviations apart are told from each other."""
_MOST_FACTORS = 1 << 20
"""A node takes at most this many factors."""


def check_agents(
    problem: Problem | DataFederation, algorithm: Algorithm, method: Method, dimension: int
) -> None:
    """Raise `ProblemError` where a method does not fit the agents or the algorithm.

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> check_agents(coin, average, Method(Mean((0.5, 0.25, 0.25))), 1)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: There are 3 weights, but 2 agents of 1 kinds; give one ...
    """
    method.check_agents(
        kinds=np.asarray(problem.assignment),
        num_kinds=problem.num_kinds,
        form=algorithm.form,
        dimension=dimension,
        acts_by_parameters=getattr(algorithm, "acting", None) is not None,
    )


def method_weights(problem: Problem, method: Method) -> np.ndarray:
    """(M,): the share of each kind in the mean change of a short round.

    >>> import fegsam as fg
    >>> coins = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=2)
    >>> method_weights(coins, Method(Mean((0.75, 0.25))))
    array([0.75, 0.25])
    """
    weights = problem.kind_counts / problem.num_agents
    if isinstance(method.average, Mean) and method.average.weights is not None:
        kinds = np.asarray(problem.assignment)
        agents = method.average.of_agents(kinds, problem.num_kinds)
        if _divides_unequally(method, agents):
            assert method.participation is not None
            agents = answered_weights(agents, method.participation)
        weights = np.bincount(kinds, weights=agents, minlength=problem.num_kinds)
    if method.local_steps is not None and not method.local_steps.normalised:
        weights = weights * method.local_steps.of_agents(np.arange(problem.num_kinds))
    return weights / weights.sum()


def _divides_unequally(method: Method, weights: np.ndarray) -> bool:
    """Whether the mean weights of the agents differ from their `weights`.

    Control variates of the last round carry the weights of all agents: the corrections of those who
    take part lead their mean to that of all.
    """
    some, variates = method.participation, method.correction
    return (
        some is not None
        and some.divide_by == "answered"
        and some.agents != len(weights)
        and (variates is None or variates.source == "first_step")
        and bool((weights != weights[0]).any())
    )


def answered_weights(weights: np.ndarray, participation: Participation) -> np.ndarray:
    """(N,): the mean weights of agents whose change is divided by the weights of those who answer.

    They sum to one: a round in which nobody takes part changes nothing.

    One of two agents at a time counts in full, whatever its weight:

    >>> answered_weights(np.array([0.75, 0.25]), Participation(1)).round(12)
    array([0.5, 0.5])
    """
    each, group, counts = np.unique(weights, return_inverse=True, return_counts=True)
    chance, turns, phases = _generating(participation, len(weights))
    if len(turns) * len(each) > _MOST_FACTORS:
        raise ProblemError(
            f"The mean weights of {len(each)} groups of agents of different weights take too long "
            f"with {participation!r}; give Participation(probability=...), divide_by='all', or "
            "the point itself to fegsam.run as fixed_point=."
        )
    found, sizes = np.zeros(len(each)), counts.astype(float)
    for u in np.arange(-_REACH, _REACH - math.log(each[0]) + _SPACING, _SPACING):
        log_z = u - math.exp(-u) + np.log(each)
        with np.errstate(over="ignore"):
            z = np.exp(log_z)
        # 1 - chance + chance exp(-z) turn, for every agent; `turn` counts who takes part.
        factors = (1.0 - chance) + chance * np.multiply.outer(turns, np.exp(-z))
        product = np.exp(np.log(factors) @ sizes) * phases
        others = np.real(product @ (1.0 / factors))
        found += (1.0 + math.exp(-u)) * np.exp(log_z - z) * others
    return (found / (sizes @ found))[group]


def _generating(participation: Participation, agents: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The chance of an agent, and the points and weights that select the number of participants.

    To draw a fixed number of agents is to draw each independently, given that this number takes
    part. The mean over the roots of unity selects that number.
    """
    if participation.probability is not None:
        return participation.probability, np.ones(1), np.ones(1)
    assert participation.agents is not None
    chance = participation.agents / agents
    spread = math.sqrt(agents * chance * (1.0 - chance))
    apart = min(agents + 1, math.ceil(_DEVIATIONS * (spread + _DEVIATIONS)))
    # With an odd number of roots, -1 is none of them, and no factor vanishes. Those below the real
    # line add the conjugate of what those above it add.
    half = apart // 2
    angles = 2.0 * np.pi * np.arange(half + 1) / (2 * half + 1)
    twice = np.where(angles > 0.0, 2.0, 1.0)
    return chance, np.exp(1j * angles), twice * np.exp(1j * angles * (1 - participation.agents))
