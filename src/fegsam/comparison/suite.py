"""The suite: small problems on which agents differ in different ways.

One cell rule (Q-learning) and one linear algorithm (off-policy TD with features) serve for all, so
that little has to be compiled and the linear ones have exact answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.problem.federation import Federation

_STATES, _ACTIONS, _DISCOUNT = 6, 2, 0.8
_BIAS = 0.8
"""How far a kind prefers its own action where policies differ."""
_STAY = 0.95
"""The probability of staying where mixing is slow."""


@dataclass(frozen=True)
class SuiteProblem:
    """One problem of the suite, for any number of agents.

    Attributes
    ----------
    key, title : str
    about : str
        What it is, in one sentence.
    algorithm : Algorithm
    problem : function of N
        The problem for N agents.
    has_exact : bool
        Whether the algorithm is linear, so that exact errors exist.

    Examples
    --------
    >>> entry("alike").problem(8).num_agents
    8
    """

    key: str
    title: str
    about: str
    algorithm: Algorithm
    problem: Callable[[int], Federation]
    has_exact: bool

    @property
    def has_cells(self) -> bool:
        return self.algorithm.form == "cell"


def garnet(seed: int = 2) -> fg.MDP:
    """The suite's environment.

    >>> garnet().num_states
    6
    """
    return fg.examples.garnet(_STATES, _ACTIONS, 3, discount=_DISCOUNT, seed=seed, connected=True)


def smooth_features() -> np.ndarray:
    """(S, 2): a constant and half a cosine over the states."""
    place = (np.arange(_STATES) + 0.5) / _STATES
    return np.cos(np.pi * place[:, None] * np.arange(2)) / np.sqrt(2)


def opposite_policies() -> np.ndarray:
    """(2, S, A): each kind prefers its own action in every state.

    >>> opposite_policies()[:, 0]
    array([[0.9, 0.1],
           [0.1, 0.9]])
    """
    own = _BIAS * np.eye(_ACTIONS) + (1 - _BIAS) / _ACTIONS
    return np.repeat(own[:, None, :], _STATES, axis=1)


def _slow(mdp: fg.MDP) -> fg.MDP:
    moves = mdp.transitions.toarray().reshape(_STATES, _ACTIONS, _STATES)
    still = np.eye(_STATES)[:, None, :]
    return fg.MDP(_STAY * still + (1 - _STAY) * moves, mdp.rewards, mdp.discount)


def _uniform() -> np.ndarray:
    return fg.policies.uniform(_STATES, _ACTIONS)


def _linear(mdps: fg.MDP | list[fg.MDP], own: np.ndarray) -> Callable[[int], Federation]:
    return lambda agents: Federation(
        mdps, own, num_agents=agents, target_policy=_uniform(), features=smooth_features()
    )


def _one_action_each(agents: int) -> Federation:
    """Kind k takes action k alone, so that the agents cover the cells only together."""
    alone = np.repeat(np.eye(_ACTIONS)[:, None, :], _STATES, axis=1)
    return Federation(garnet(), alone, num_agents=agents)


def entries() -> tuple[SuiteProblem, ...]:
    """All problems, in the order of the report."""
    q, td = fg.QLearning(), fg.OffPolicyLinearTD()
    return (
        SuiteProblem(
            "alike",
            "Agents that are alike",
            "Q-learning on a Garnet, all agents with the uniform policy.",
            q,
            lambda agents: Federation(garnet(), _uniform(), num_agents=agents),
            False,
        ),
        SuiteProblem(
            "policies",
            "Policies that differ",
            "Off-policy linear TD on a Garnet; two kinds of agents prefer opposite actions.",
            td,
            _linear(garnet(), opposite_policies()),
            True,
        ),
        SuiteProblem(
            "cells",
            "Cells that differ",
            "Q-learning on a Garnet; two kinds of agents prefer opposite actions, so each visits "
            "the other's cells rarely.",
            q,
            lambda agents: Federation(garnet(), opposite_policies(), num_agents=agents),
            False,
        ),
        SuiteProblem(
            "environments",
            "Environments that differ",
            "On-policy data for linear TD; two kinds of agents have Garnets of their own.",
            td,
            _linear([garnet(2), garnet(3)], _uniform()),
            True,
        ),
        SuiteProblem(
            "joint",
            "Coverage only together",
            "Q-learning on a Garnet; each kind of agents takes one action alone.",
            q,
            _one_action_each,
            False,
        ),
        SuiteProblem(
            "slow",
            "Slow mixing",
            f"Linear TD on two Garnets whose chains stay where they are with probability {_STAY}.",
            td,
            _linear([_slow(garnet(2)), _slow(garnet(3))], _uniform()),
            True,
        ),
    )


def entry(key: str) -> SuiteProblem:
    """The problem of that key.

    >>> entry("slow").has_exact
    True
    """
    return {each.key: each for each in entries()}[key]


def refusal(one: SuiteProblem, agents: int) -> str:
    """Why the algorithm does not accept the problem; empty if it does.

    >>> refusal(entry("alike"), 4)
    ''
    """
    try:
        fg.fixed_point(one.problem(agents), one.algorithm)
    except ProblemError as error:
        return str(error)
    return ""
