"""The part of `prepare` for agents that learn from recorded data."""

from __future__ import annotations

import numpy as np

from fegsam.algorithms.on_data import OnData, needs_of
from fegsam.algorithms.rule import Algorithm
from fegsam.data.demands import check_log
from fegsam.data.federation import DataFederation
from fegsam.engines.job import Agents, Chain, Job, Sampling
from fegsam.errors import ProblemError
from fegsam.history.history import Checkpoint
from fegsam.history.recorder import Truth
from fegsam.history.settings import Settings
from fegsam.methods.method import Method


def check_data(
    data: DataFederation,
    algorithm: Algorithm,
    step_size: float,
    num_steps: int,
    sampling: Sampling,
) -> OnData:
    """How the algorithm runs on the data; a `ProblemError` if the data does not suffice.

    Every log is read once, so that a damaged one is refused before any step.
    """
    if sampling != "markov":
        raise ProblemError(
            "sampling='iid' draws windows from a stationary distribution, which recorded data does "
            "not have; leave it out."
        )
    needs = needs_of(algorithm, data)
    for source in data.logs:
        check_log(
            source,
            algorithm=type(algorithm).__name__,
            num_steps=num_steps,
            step_size=step_size,
            discount=data.discount,
            num_states=data.num_states,
            num_actions=data.num_actions,
            target_policy=data.target_policy,
            features=needs.features,
        )
    live = any(not kind.is_log for kind in data.kinds)
    if needs.weighted and live and data.target_policy is None:
        raise ProblemError(
            f"{type(algorithm).__name__} evaluates a policy and the data has none; pass "
            "target_policy= to DataFederation."
        )
    return needs


def data_job(
    data: DataFederation,
    algorithm: Algorithm,
    on_data: OnData,
    method: Method,
    settings: Settings,
    initial: np.ndarray,
    start: Checkpoint,
    known: np.ndarray | None,
    output_times: np.ndarray,
) -> Job:
    """The job of checked settings on recorded data."""
    kinds = np.arange(data.num_kinds, dtype=np.uint32)
    nothing = np.zeros(0, np.uint32)
    return Job(
        settings=settings,
        form=algorithm.form,
        rule=algorithm.rule,
        tables=None,
        window=algorithm.window,
        dimension=on_data.dimension,
        agents=Agents(data.assignment.astype(np.uint32), kinds, kinds),
        chain=Chain(nothing, nothing, nothing, nothing, nothing, np.uint64(0), np.uint64(0)),
        initial_params=initial,
        start=start,
        truth=Truth(np.full_like(initial, np.nan) if known is None else known, algorithm.norm),
        output_times=output_times,
        method=method,
        data=data,
        on_data=on_data,
    )
