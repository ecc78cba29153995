"""The part of `prepare` for agents that learn from recorded data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fegsam.algorithms.on_data import OnData, needs_of
from fegsam.algorithms.rule import Algorithm
from fegsam.data.demands import check_log, require_steps
from fegsam.data.division import Division, divide
from fegsam.data.facts import facts_by_agent, warn_of_truncation
from fegsam.data.federation import DataFederation
from fegsam.data.log import LogSource
from fegsam.data.quality import HeldOut
from fegsam.data.tally import LogSummary
from fegsam.engines.job import Agents, Chain, Job, Sampling
from fegsam.errors import ProblemError
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import Measure, Truth
from fegsam.history.settings import Settings
from fegsam.methods.method import Method


class DataPlan(NamedTuple):
    """How an algorithm runs on data, and which rows are held out."""

    needs: OnData
    division: Division
    facts: dict[str, np.ndarray]
    """what is in the logs, by agent"""


class RunEnds(NamedTuple):
    """Where a run begins, where its output is taken, and where it should lead."""

    initial_params: np.ndarray
    """(d): where every agent starts at time 0"""
    start: Checkpoint
    """time 0, or the last synchronisation of the run that this one continues"""
    output_times: np.ndarray
    """int64 (seeds,)"""
    fixed_point: np.ndarray | None
    """(d): a known theta*; None: it is solved for where the problem has a model"""


def check_data(
    data: DataFederation,
    algorithm: Algorithm,
    step_size: float,
    num_steps: int,
    sampling: Sampling,
) -> DataPlan:
    """How the algorithm runs on the data; a `ProblemError` if the data does not suffice.

    Every log is read once, so that a damaged one is refused before any step. Of a part that no
    agent reads, it does not matter how long it is.
    """
    if sampling != "markov":
        raise ProblemError(
            "sampling='iid' draws windows from a stationary distribution, which recorded data does "
            "not have; leave it out."
        )
    needs = needs_of(algorithm, data)
    summaries: dict[int, LogSummary] = {}
    for source in data.logs:
        found = check_log(
            source,
            algorithm=type(algorithm).__name__,
            step_size=step_size,
            discount=data.discount,
            num_states=data.num_states,
            num_actions=data.num_actions,
            target_policy=data.target_policy,
            features=needs.features,
        )
        read = {
            agent: data.kinds[kind].value
            for agent, kind in enumerate(data.assignment)
            if data.kinds[kind].source is source
        }
        for agent, value in read.items():
            summaries[agent] = found[value]
            require_steps(source, value, found[value], num_steps)
            if not needs.corrected:
                who = f"{source.path}" + ("" if value is None else f", {value}")
                warn_of_truncation(found[value], who, control=needs.control)
    unchecked = any(not isinstance(kind.source, LogSource) for kind in data.kinds)
    if needs.weighted and unchecked and data.target_policy is None:
        raise ProblemError(
            f"{type(algorithm).__name__} evaluates a policy and the data has none; pass "
            "target_policy= to DataFederation."
        )
    facts = facts_by_agent(summaries, data.num_agents)
    return DataPlan(needs, divide(data, summaries, num_steps), facts)


def measure_of(data: DataFederation, plan: DataPlan, horizon: int) -> Measure | None:
    """What is measured of the averages: on held-out rows, and by trying the greedy policy."""
    needs, rows = plan.needs, plan.division.held_out()
    held = None
    if rows:
        held = HeldOut(
            rows,
            kind="control" if needs.control else "values",
            features=needs.features,
            num_states=data.num_states,
            num_actions=data.num_actions,
            off_policy=needs.weighted,
            target_policy=data.target_policy,
            horizon=horizon,
        )
    tried = data.evaluation if needs.control else None
    if held is None and tried is None:
        return None

    def measure(averages: np.ndarray) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        if held is not None:
            # TDC's second half of the parameters has no values.
            found |= held.measure(averages[:, : held.dimension])
            del found["moved"]
        if tried is not None:
            place = next(kind.live for kind in data.kinds if kind.live is not None)
            index = getattr(place, "index", None)
            found |= tried.measure(place.make, averages, features=needs.features, index=index)
        return found

    return measure


def data_job(
    data: DataFederation,
    algorithm: Algorithm,
    plan: DataPlan,
    method: Method,
    settings: Settings,
    ends: RunEnds,
) -> Job:
    """The job of checked settings on recorded data."""
    kinds = np.arange(data.num_kinds, dtype=np.uint32)
    nothing, known = np.zeros(0, np.uint32), ends.fixed_point
    if known is None:
        known = np.full_like(ends.initial_params, np.nan)
    return Job(
        settings=settings,
        form=algorithm.form,
        rule=algorithm.rule,
        tables=None,
        window=algorithm.window,
        dimension=plan.needs.dimension,
        agents=Agents(data.assignment.astype(np.uint32), kinds, kinds),
        chain=Chain(nothing, nothing, nothing, nothing, nothing, np.uint64(0), np.uint64(0)),
        initial_params=ends.initial_params,
        start=ends.start,
        truth=Truth(known, algorithm.norm),
        output_times=ends.output_times,
        method=method,
        data=data,
        on_data=plan.needs,
        reader=plan.division.learning,
        measure=measure_of(data, plan, algorithm.window),
        facts=plan.facts,
    )
