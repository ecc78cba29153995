"""Checks of the arguments of a federation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import (
    FloatArray,
    IntArray,
    finite_array,
    read_only,
    real_array,
    several,
    stochastic_rows,
)
from fegsam.problem.mdp import MDP


def check_mdps(mdp: MDP | Sequence[MDP]) -> tuple[MDP, ...]:
    """One or several MDPs of the same sizes and discount."""
    cure = "but a federation needs an MDP or a sequence of them: build them with MDP"
    mdps = (mdp,) if isinstance(mdp, MDP) else several(mdp, "mdp", cure)
    if not mdps or not all(isinstance(one, MDP) for one in mdps):
        raise ProblemError(f"mdp is {shown(mdp)}, {cure}")
    first = mdps[0]
    for kind, other in enumerate(mdps):
        for name in ("num_states", "num_actions", "discount"):
            given, expected = getattr(other, name), getattr(first, name)
            if given != expected:
                raise ProblemError(
                    f"MDP {kind} has {name} {given} and MDP 0 has {expected}, but the agents "
                    f"share their parameters: give MDPs of equal {name}"
                )
    return mdps


def check_behaviors(policies: ArrayLike, states: int, actions: int) -> FloatArray:
    """Behaviour policies as an (M, S, A) array."""
    table = real_array(policies, "behavior_policies", "(M, S, A) or (S, A)")
    if table.ndim == 2:
        table = table[None]
    if table.ndim != 3 or len(table) == 0 or table.shape[1:] != (states, actions):
        raise ProblemError(
            f"behavior_policies has shape {np.shape(policies)}, but the MDP has {states} states "
            f"and {actions} actions: give shape (M, {states}, {actions}), or ({states}, {actions}) "
            "for all agents"
        )
    rows = stochastic_rows(
        sparse.csr_array(table.reshape(-1, actions)),
        lambda row: f"behavior_policies of agent kind {row // states} in state {row % states}",
    )
    return read_only(rows.toarray().reshape(table.shape))


def count_kinds(mdps: int, policies: int) -> int:
    """The number of kinds of agents, of as many MDPs and as many behaviour policies."""
    kinds = max(mdps, policies)
    if mdps not in (1, kinds) or policies not in (1, kinds):
        raise ProblemError(
            f"there are {mdps} MDPs and {policies} behavior_policies, but agent kind k has the "
            "k-th of each: give one of either, or as many of both"
        )
    return kinds


def warn_of_idle_kinds(agents: int, kinds: int, what: str) -> None:
    """Warn of kinds that have no agent."""
    if kinds > agents:
        idle = (
            f"kind {agents} has" if kinds == agents + 1 else f"kinds {agents} to {kinds - 1} have"
        )
        warnings.warn(
            f"There are {kinds} {what} and num_agents is {agents}, so {idle} no agent: give "
            f"num_agents={kinds} or more, or fewer {what}; assignment= says that it is meant.",
            UserWarning,
            stacklevel=3,
        )


def first_kinds(agents: int, kinds: int) -> IntArray | None:
    """The assignment of a federation that may have fewer agents than kinds, as a sweep over N has.

    It is the default assignment; given, it says that kinds without an agent are meant.

    >>> first_kinds(2, 3), first_kinds(4, 3)
    (array([0, 1]), None)
    """
    return np.arange(agents) if agents < kinds else None


def check_features(features: ArrayLike, states: int) -> FloatArray:
    """Features as an (S, d) array with linearly independent columns."""
    table = finite_array(features, "features", "(S, d)")
    if table.ndim != 2 or table.shape[0] != states or table.shape[1] == 0:
        raise ProblemError(
            f"features has shape {table.shape}, but needs one row for each of the {states} "
            f"states: give shape ({states}, d) with d at least 1"
        )
    columns = table.shape[1]
    # The triangular factor has the same singular values, and its size does not grow with S.
    rank = int(np.linalg.matrix_rank(np.linalg.qr(table, mode="r")))
    if rank < columns:
        raise ProblemError(
            f"features has {columns} columns but rank {rank}, so the parameters are not "
            "determined: drop the columns that are combinations of others"
        )
    return read_only(table)
