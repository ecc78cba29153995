"""The data of a node's agents: the table [data] of its node.toml, which its owner writes.

Nothing of it is ever sent. A node whose study is a charter reads it when it starts, and ``fegsam
federate check`` checks it on the node's machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from fegsam.algorithms.on_data import needs_of
from fegsam.data.charter import Charter
from fegsam.data.demands import check_log, require_steps
from fegsam.data.live import LiveSource
from fegsam.data.log import LogSource
from fegsam.data.private import OwnData, private_reader
from fegsam.data.spool_reader import SpoolSource
from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_values import load_array
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study import MOST_BYTES
from fegsam.experiments.spec.tables import Array, BeforeValidator, Count, Field, TableModel, Text
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.safe_files import read_plain

DATA_KEY = "data"
_TRIED = 100
"""Rows of a live environment that a check reads."""

TEMPLATE = """
# The data of this node's agents, which its owner fills in and which is never sent. For example:
#
# [data]
# source = "log"             # or "live" (env_id, policy) or "spool" (path)
# path = "visits.parquet"    # relative paths start in this directory
#
# Agents with logs of their own get a table [[data]] each, in the order of `agents`.
"""
"""What `init` writes into the node.toml of a charter."""


def _names(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return value
    raise ValueError("must be a name or a list of names: correct it")


Names = Annotated[Any, BeforeValidator(_names)]


class _Source(TableModel):
    tag = "source"
    source: str


class _Log(_Source):
    path: Names
    """a .parquet or .csv file, a folder of them, or the files of one log in order"""
    columns: dict[str, Names] = Field(default_factory=dict)
    by: Text | None = None
    value: str | int | None = None
    """the part of the log for this agent; by default the parts are those of the node's agents"""
    passes: Count = 1
    missing_final: Literal["error", "drop"] = "error"
    policy: Array | None = None
    """(S, A): the policy that chose the actions, where the log has no probabilities"""


class _Live(_Source):
    env_id: Text
    policy: Array
    """(S, A)"""
    options: dict[str, Any] = Field(default_factory=dict)
    ends: Literal["stop", "restart"] = "stop"


class _Spool(_Source):
    path: Text


_SOURCES: dict[str, type[_Source]] = {"log": _Log, "live": _Live, "spool": _Spool}


def load_data(path: Path, agents: Sequence[int]) -> dict[int, OwnData]:
    """What each agent of a node reads, from the node's file."""
    text = SpecText(read_plain(path, MOST_BYTES).decode(), str(path), path.parent)
    given = text.tables.get(DATA_KEY)
    if given is None:
        raise FederationError(
            f"{path} has no table [data], but the study leaves the data to the nodes: add it."
        )
    found: list[OwnData] = []
    if isinstance(given, list):
        for number, table in enumerate(given):
            found += _own(text.choose(table, _SOURCES, (DATA_KEY, number), {}), path.parent, 1)
    else:
        found += _own(text.choose(given, _SOURCES, (DATA_KEY,), {}), path.parent, len(agents))
    if len(found) != len(agents):
        raise FederationError(
            f"{path}: [data] feeds {len(found)} agents, but this node has {len(agents)}: give each "
            "its data, in tables [[data]] or by the values of a column `by`."
        )
    return dict(zip(agents, found, strict=True))


def _own(spec: _Source, directory: Path, count: int) -> list[OwnData]:
    """What one table gives to read: one agent's data, or that of all `count` agents."""
    if isinstance(spec, _Live):
        live = LiveSource(
            spec.env_id, load_array(spec.policy), options=spec.options, ends=spec.ends
        )
        return [OwnData(live)] * count
    if isinstance(spec, _Spool):
        return [OwnData(SpoolSource(directory / spec.path))]
    assert isinstance(spec, _Log)
    several = isinstance(spec.path, list)
    source = LogSource(
        [directory / each for each in spec.path] if several else directory / spec.path,
        columns=spec.columns,
        by=spec.by,
        passes=spec.passes,
        missing_final=spec.missing_final,
        policy=None if spec.policy is None else load_array(spec.policy),
    )
    values = source.agents() if spec.value is None else (spec.value,)
    return [OwnData(source, value) for value in values]


def check_data(
    experiment: Experiment, data: Mapping[int, OwnData], *, enough: bool = True
) -> Iterator[str]:
    """Check the data of a node against the charter, and say in a line what each agent has.

    With `enough`, a log must have a transition for every step of the run. Without it, the
    federation continues without the agent when its log is used up.
    """
    charter = experiment.problem
    assert isinstance(charter, Charter)
    found: dict[int, Any] = {}
    for agent, own in data.items():
        source = own.source
        if not isinstance(source, LogSource):
            yield f"agent {agent}: {_check_rows(experiment, charter, own, agent)}"
            continue
        if id(source) not in found:
            found[id(source)] = _check_whole(experiment, charter, source)
        summary = found[id(source)].get(own.value)
        if summary is None:
            raise ProblemError(
                f"{source.files[0]}: no row has {own.value!r} in {source.by!r}: name one of "
                f"{', '.join(map(repr, list(found[id(source)])[:8]))}"
            )
        if enough:
            require_steps(source, own.value, summary, experiment.num_steps)
        yield (
            f"agent {agent}: {source.files[0]}: {summary.transitions} transitions in "
            f"{summary.episodes} episodes, for {experiment.num_steps} steps"
        )


def _check_whole(experiment: Experiment, charter: Charter, source: LogSource) -> Any:
    return check_log(
        source,
        algorithm=type(experiment.algorithm).__name__,
        step_size=experiment.step_size,
        discount=charter.discount,
        num_states=charter.num_states,
        num_actions=charter.num_actions,
        target_policy=charter.target_policy,
        features=needs_of(experiment.algorithm, charter).features,
    )


def _check_rows(experiment: Experiment, charter: Charter, own: OwnData, agent: int) -> str:
    """Check that an environment or a spool fits the charter, on some of its rows."""
    needs, source = needs_of(experiment.algorithm, charter), own.source
    assert not isinstance(source, LogSource)
    if isinstance(source, SpoolSource):
        name, numbered, sizes = str(source.path), source.width is None, (None, None)
    else:
        spaces = source.spaces()
        name, numbered = f"agent {agent}'s environment", spaces.num_states is not None
        sizes = spaces.num_states, spaces.num_actions
    for what, here, agreed in zip(
        ("states", "actions"), sizes, (charter.num_states, charter.num_actions), strict=True
    ):
        if agreed is not None and here is not None and here != agreed:
            raise ProblemError(
                f"{name} has {here} {what}, but the study says {agreed}: use what was agreed."
            )
    if needs.features is None and not numbered:
        raise ProblemError(
            f"{name} has observations that are not state numbers, but the study has no features: "
            "use what was agreed."
        )
    if needs.weighted and charter.target_policy is None:
        raise ProblemError(
            f"{name} needs a target policy for {type(experiment.algorithm).__name__}, and the "
            "study has none: add [problem.target] to it."
        )
    rows = private_reader(charter, own, seed=experiment.seed, agent=agent).read(_TRIED)
    if needs.features is not None:
        needs.features(rows.observation)
    if needs.weighted and np.isnan(rows.behavior[~rows.gap]).any():
        raise ProblemError(
            f"{name}: {type(experiment.algorithm).__name__} needs behavior_probability: append it "
            "with each row, or use Q-learning, which does without."
        )
    return f"{name}, of which {len(rows.gap)} rows were tried"
