"""Which agents are alike under a method, and which methods have exact moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError
from fegsam.exact.shares import Groups
from fegsam.methods.average import ByVisits, Mean
from fegsam.methods.method import Method
from fegsam.methods.rounding import Rounding
from fegsam.problem.federation import Problem

MOST_OWN_VARIATES = 8
"""The most agents that may each have a control variate of their own."""


@dataclass(frozen=True, eq=False)
class AgentGroups:
    """The agents by kind, weight, number of local steps and control variate."""

    groups: Groups
    kinds: list[int]
    """for each group, the kind whose steps it makes"""
    steps: np.ndarray | None
    """(M,): the number of local steps of each group; None if they make all steps of a round"""
    factors: np.ndarray
    """(M,): what multiplies the reported change"""


def agent_groups(problem: Problem, method: Method, alike: bool) -> AgentGroups:
    """The groups of agents; `alike` says that all kinds make the same steps."""
    variates = method.correction
    own = variates is not None and variates.source == "last_round" and variates.of == "agent"
    shared = variates is not None and variates.of == "kind"
    weights = method.average.weights if isinstance(method.average, Mean) else None
    if own or (weights is not None and len(weights) == problem.num_agents):
        kind = np.asarray(problem.assignment)
        counts = np.ones(len(kind))
    else:
        kind = np.flatnonzero(problem.kind_counts)
        counts = np.asarray(problem.kind_counts, float)[kind]
    agents = _weights(problem, method, kind, counts)
    steps = np.ones(len(kind), np.int64)
    if method.local_steps is not None:
        steps = method.local_steps.of_agents(kind)
    variate = np.arange(len(kind)) if own else kind if shared else np.zeros(len(kind), np.int64)
    dynamics = np.zeros(len(kind), np.int64) if alike else kind
    keys = np.stack([dynamics, agents, steps, variate], axis=1)
    found, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    sizes = np.bincount(group, weights=counts)
    number = np.unique(found[:, 3], return_inverse=True)[1].ravel()
    factors = np.ones(len(found))
    if method.local_steps is not None and method.local_steps.normalised:
        factors = (found[:, 2] @ sizes / sizes.sum()) / found[:, 2]
    return AgentGroups(
        Groups(sizes, found[:, 1], number),
        [int(each) for each in found[:, 0]],
        None if method.local_steps is None else found[:, 2].astype(np.int64),
        factors,
    )


def _weights(problem: Problem, method: Method, kind: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The weight of an agent of each row: of one agent, or of all agents of a kind."""
    if not isinstance(method.average, Mean) or method.average.weights is None:
        return np.full(len(kind), 1.0 / problem.num_agents)
    if len(method.average.weights) == problem.num_agents:
        return method.average.of_agents(kind, problem.num_kinds)
    if len(counts) < problem.num_kinds or len(method.average.weights) != problem.num_kinds:
        return method.average.of_agents(np.asarray(problem.assignment), problem.num_kinds)
    by_kind = np.array(method.average.weights)
    return by_kind[kind] / by_kind.sum() / np.asarray(problem.kind_counts)[kind]


def require_exact(method: Method, num_agents: int, sampling: str) -> None:
    """Raise `ProblemError` if the moments under a method do not satisfy a closed recursion."""
    cure = "sample it with fegsam.run"
    if isinstance(method.average, ByVisits):
        raise ProblemError(
            "Exact moments need a mean whose weights do not depend on the paths, and ByVisits() "
            f"weighs by visits; {cure}."
        )
    if isinstance(method.rounding, Rounding) and not method.rounding.dither:
        raise ProblemError(
            "The error of rounding without dither depends on the rounded change, so the moments "
            f"are not linear; give Rounding(step, dither=True), or {cure}."
        )
    variates, some = method.correction, method.participation
    own = variates is not None and variates.source == "last_round" and variates.of == "agent"
    if own and num_agents > MOST_OWN_VARIATES:
        raise ProblemError(
            f"Exact moments with a control variate for each of {num_agents} agents need too many "
            f"unknowns; give ControlVariates(of='kind'), or at most {MOST_OWN_VARIATES} agents."
        )
    if some is None:
        return
    if variates is not None and variates.source == "first_step":
        raise ProblemError(
            "Exact moments of first-step control variates need all agents in every round; leave "
            f"out participation, or {cure}."
        )
    if waits(method, sampling) and not is_by_own_coin(method):
        raise ProblemError(
            "While agents wait, their chains depend on who took part in all rounds, so the moments "
            "do not close; give Participation(others='go_on') or sampling='iid', or "
            "Participation(probability=..., divide_by='all') without control variates and "
            f"dither, or {cure}."
        )


def waits(method: Method, sampling: str) -> bool:
    """Whether chains stand still while their agents do not take part."""
    some = method.participation
    return some is not None and some.others == "wait" and sampling == "markov"


def is_by_own_coin(method: Method) -> bool:
    """Whether an agent's share in a round depends on its own coin alone.

    The coin is then part of the agent's path, and the agents are independent. Dither is added only
    by those who take part, which would tie it to the modes.
    """
    some = method.participation
    return (
        some is not None
        and some.probability is not None
        and some.divide_by == "all"
        and method.correction is None
        and not isinstance(method.rounding, Rounding)
    )
