"""Lowering: from a problem and an algorithm to flat arrays, all that an engine sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from fegsam.algorithms.rule import Algorithm
from fegsam.engines.randomness import build_alias
from fegsam.errors import ProblemError, shown
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import Truth
from fegsam.history.settings import Settings
from fegsam.problem.chains import stationary_laws
from fegsam.problem.checks import several
from fegsam.problem.federation import Federation, MarkovNoise

Sampling = Literal["markov", "iid"]

LARGEST = 1e140
"""A parameter beyond this counts as no longer finite: its square, summed over parameters and
agents, would overflow next."""


class Chain(NamedTuple):
    """The laws that paths are drawn from, as alias tables (see `randomness`), for any number of
    MDPs and policies.

    All are flat arrays of uint32, entry behind entry. Markov noise without actions is a chain of
    one action.
    """

    policy: np.ndarray
    """threshold and alias of each entry; row ``policy * S + s`` has A entries"""
    row: np.ndarray
    """first entry and number of entries of each row ``(mdp * S + s) * A + a``"""
    entry: np.ndarray
    """threshold, next state and other next state of each entry; rows hold only the reachable
    ones"""
    first: np.ndarray
    """the law of the first state: threshold and alias"""
    law: np.ndarray
    """the stationary law of each kind, likewise; empty unless sampling is i.i.d."""
    num_states: np.uint64
    num_actions: np.uint64


class Agents(NamedTuple):
    """Who is of which kind."""

    kinds: np.ndarray
    """uint32 (N)"""
    mdps: np.ndarray
    """uint32 (M): the MDP of each kind"""
    policies: np.ndarray
    """uint32 (M): the policy of each kind"""


@dataclass(frozen=True)
class Plan:
    """One problem and one algorithm, ready to run."""

    form: str
    """which write the rule needs: "cell", "row" or "dense" (see `algorithms.rule`)"""
    rule: Callable[..., Any]
    tables: Any
    window: int
    dimension: int
    num_agents: int
    agents: Agents
    chain: Chain
    start: Checkpoint
    """time 0, or the last synchronisation of the run that this one goes on from"""
    truth: Truth
    output_times: np.ndarray
    """int64 (seeds): when each seed's output is taken, drawn before the run"""


def plan_end(plan: Plan, settings: Settings) -> int:
    """Where a run leaves its checkpoint: its last synchronisation, or for one agent its end."""
    if plan.num_agents == 1:
        return settings.num_steps
    return max(plan.start.time, settings.num_steps // settings.sync_period * settings.sync_period)


def lower(
    problem: Federation | MarkovNoise,
    algorithm: Algorithm,
    *,
    start: Checkpoint,
    truth: Truth,
    output_times: np.ndarray,
    sampling: Sampling = "markov",
) -> Plan:
    """Check that `algorithm` can run on `problem` and flatten both."""
    return Plan(
        form=algorithm.form,
        rule=algorithm.rule,
        tables=algorithm.tables(problem),
        window=algorithm.window,
        dimension=algorithm.dimension(problem),
        num_agents=problem.num_agents,
        agents=lower_agents(problem, algorithm),
        chain=lower_chain(problem, algorithm, sampling),
        start=start,
        truth=truth,
        output_times=output_times,
    )


def lower_agents(problem: Federation | MarkovNoise, algorithm: Algorithm) -> Agents:
    kinds = np.arange(problem.num_kinds, dtype=np.uint32)
    shared = np.zeros_like(kinds)
    return Agents(
        kinds=np.ascontiguousarray(problem.assignment, dtype=np.uint32),
        mdps=kinds if len(_transition_rows(problem)) > 1 else shared,
        policies=kinds if len(algorithm.policies(problem)) > 1 else shared,
    )


def lower_chain(
    problem: Federation | MarkovNoise, algorithm: Algorithm, sampling: Sampling = "markov"
) -> Chain:
    policies = algorithm.policies(problem)
    _, num_states, num_actions = policies.shape
    transitions = sp.csr_array(sp.vstack(_transition_rows(problem), format="csr"))
    laws = stationary_laws(problem, policies) if sampling == "iid" else np.empty((0, num_states))
    if transitions.nnz >= 2**32:
        raise ProblemError(
            f"The MDPs have {transitions.nnz} possible transitions together; at most 2**32 - 1 "
            "can be run: use fewer kinds."
        )
    start = np.asarray(transitions.indptr, np.int64)
    return Chain(
        policy=_index_rows(policies.reshape(-1, num_actions)),
        row=np.stack([start[:-1], np.diff(start)], axis=1).astype(np.uint32).ravel(),
        entry=_alias_rows(start, transitions.data, transitions.indices).ravel(),
        first=_index_rows(problem.initial_distribution[None]),
        law=_index_rows(laws),
        num_states=np.uint64(num_states),
        num_actions=np.uint64(num_actions),
    )


def _transition_rows(problem: Federation | MarkovNoise) -> list[Any]:
    """One (S * A, S) matrix per MDP, or per kernel."""
    return (
        [mdp.transitions for mdp in problem.mdps]
        if isinstance(problem, Federation)
        else list(problem.kernels)
    )


def _index_rows(laws: np.ndarray) -> np.ndarray:
    """Alias rows over 0, 1, ..."""
    rows, size = laws.shape
    outcomes = np.tile(np.arange(size, dtype=np.uint32), rows)
    return _alias_rows(np.arange(rows + 1) * size, laws.ravel(), outcomes)[:, (0, 2)].ravel()


def _alias_rows(start: Any, probabilities: Any, outcomes: Any) -> np.ndarray:
    """uint32 (entries, 3)"""
    table = np.empty((len(probabilities), 3), np.uint32)
    build_alias(
        start,
        np.ascontiguousarray(probabilities, np.float64),
        np.asarray(outcomes, np.uint32),
        table,
    )
    return table


def check_seeds(seeds: Any) -> tuple[int, ...]:
    """Whole numbers in 0..2^64-1, each once, at least one."""
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        count = max(2, seeds) if type(seeds) is int and seeds < 10**6 else 10
        raise ProblemError(f"seeds is {shown(seeds)}; give several, for example range({count}).")
    values = several(seeds, "seeds", "but must be a list: give several, for example range(10)")
    if not values:
        raise ProblemError("seeds is empty; give at least one, for example seeds=(0,).")
    for seed in values:
        if (
            isinstance(seed, bool)
            or not isinstance(seed, int | np.integer)
            or not 0 <= seed < 2**64
        ):
            raise ProblemError(f"seeds has {shown(seed)}; give whole numbers from 0 to 2**64 - 1.")
    if len(set(values)) < len(values):
        twice = next(seed for seed in values if values.count(seed) > 1)
        raise ProblemError(
            f"seeds has {twice} more than once; give each seed once, since a seed repeats its run "
            "exactly."
        )
    return tuple(int(seed) for seed in values)


def check_sampling(sampling: Any) -> None:
    if not isinstance(sampling, str) or sampling not in ("markov", "iid"):
        raise ProblemError(f"sampling is {shown(sampling)}; give 'markov' or 'iid'.")
