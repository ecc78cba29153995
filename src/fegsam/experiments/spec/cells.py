"""A cell of a study: one setting under all its seeds, with a key that identifies its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

import fegsam as fg
from fegsam.algorithms.on_data import needs_of
from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_sizes import require_memory
from fegsam.experiments.spec.array_values import load_array
from fegsam.experiments.spec.data_tables import DataTable
from fegsam.experiments.spec.foreign_code import Trust, check_trust
from fegsam.experiments.spec.problems import ProblemSpec, build_algorithm
from fegsam.experiments.spec.study_tables import AlgorithmTable, RecordTable
from fegsam.experiments.spec.tables import canonical
from fegsam.methods.method import Method
from fegsam.methods.schedules import Growing, StepSchedule, rounds_of
from fegsam.methods.tail import Tail
from fegsam.problem.federation import Problem

FORMAT = 1
"""Increased whenever the same spec would give different data, so that old cells are not reused."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One point of a study's grid; it is small and can be sent to another process.

    Unless the study says ``common_paths = false``, all its cells run under the same seeds. Cells
    with the same chains then share their paths, whatever their num_agents, sync_period and
    step_size.

    Attributes
    ----------
    problem, algorithm
        The specs of what `build` returns.
    num_agents, sync_period, step_size, num_steps
        N, K, alpha and T; a schedule of the corollary is already a number. Rounds of different
        lengths are a tuple or `schedules.Growing`.
    method, schedule, tail
        As in `fegsam.run`; None for plain averaging, a constant step size and no tail.
    seeds : tuple of int
    engine : str
    record : RecordTable or None
        The times to record; `record_times` gives them in the form that `fegsam.run` takes.
    record_params, sampling, output_decay, stop_at_output, initial_params, fixed_point
        As in `fegsam.run`. Arrays are nested tuples or files; a single number for initial_params
        sets all parameters.
    axes : mapping
        Its coordinates, named and written as in [grid].
    trust : bool or None
        As in `load_study`.

    Examples
    --------
    >>> from fegsam.experiments.spec.study import EXAMPLE, parse_study
    >>> cell = parse_study(EXAMPLE).cells()[0]
    >>> cell.axes
    {'num_agents': 1, 'sync_period': 10, 'step_size': 0.1}
    >>> history = cell.run()
    >>> history.data.squared_error.sizes["seed"]
    2
    """

    problem: ProblemSpec
    algorithm: AlgorithmTable
    num_agents: int
    sync_period: int | tuple[int, ...] | Growing
    step_size: float
    num_steps: int
    seeds: tuple[int, ...]
    engine: str = "cpu"
    method: Method | None = None
    schedule: StepSchedule | None = None
    tail: Tail | None = None
    record: RecordTable | None = None
    record_params: bool = False
    sampling: Literal["markov", "iid"] = "markov"
    output_decay: float | None = None
    stop_at_output: bool = False
    initial_params: Any = None
    fixed_point: Any = None
    axes: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = None

    def canonical(self) -> dict[str, Any]:
        """All that determines the cell's data, as plain JSON with a digest of the problem."""
        parts = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("problem", "axes", "trust")
        }
        return {"format": FORMAT, "problem": self.problem.digest, **canonical(parts)}

    @cached_property
    def key(self) -> str:
        """SHA-256 of `canonical`, equal for equal data in every process."""
        return hashlib.sha256(
            json.dumps(self.canonical(), sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Cell)
            and self.key == other.key
            and dict(self.axes) == dict(other.axes)
        )

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def agent_steps(self) -> int:
        """The amount of work: agents x steps x seeds."""
        return self.num_agents * self.num_steps * len(self.seeds)

    @property
    def is_plain(self) -> bool:
        """Whether it averages plainly, with equal rounds and a constant step size."""
        return self.method is None and self.schedule is None and isinstance(self.sync_period, int)

    @property
    def communications(self) -> int:
        """The number of times that agents and server communicate."""
        exchanges = 1 if self.method is None else self.method.exchanges
        return rounds_of(self.sync_period).count(self.num_steps) * exchanges

    @property
    def never_synchronises(self) -> bool:
        """Whether it has several agents that do not communicate once."""
        return self.num_agents > 1 and not self.communications

    @property
    def record_count(self) -> int:
        """Largest number of times to record; 0 if the spec leaves it to `fegsam.run`."""
        record = self.record
        if record is None:
            return 0
        if record.every is not None:
            return self.num_steps // record.every + 2
        return len(record.times) if record.times is not None else record.points or 0

    @property
    def record_times(self) -> int | np.ndarray | None:
        """The argument `record` of `fegsam.run`."""
        record = self.record
        if record is None or record.every is not None:
            return None if record is None else record.every
        if record.times is not None:
            return np.array(record.times, dtype=np.int64)
        points = min(record.points or 2, self.num_steps + 1)
        if record.spacing == "log":
            growing = np.round(np.geomspace(1, self.num_steps, points - 1)).astype(np.int64)
            return np.unique([0, *growing, self.num_steps])
        return np.unique(np.round(np.linspace(0, self.num_steps, points)).astype(np.int64))

    def build(self) -> tuple[Problem | fg.DataFederation, Algorithm]:
        """The problem and the algorithm; `TrustError` if that would run code without permission."""
        check_trust(self)
        return self.problem.build(self.num_agents), build_algorithm(self.algorithm, self.problem)

    def build_simulated(self) -> tuple[Problem, Algorithm]:
        """As `build`, for what needs a problem that is known: a `ProblemError` if it is data."""
        problem, algorithm = self.build()
        if isinstance(problem, fg.DataFederation):
            raise ProblemError(
                f"problem.generator is {self.problem.environment.generator!r}, of which only data "
                "is known: choose the generator of an MDP for this."
            )
        return problem, algorithm

    @property
    def on_data(self) -> bool:
        """Whether its agents learn from logs or live environments."""
        return isinstance(self.problem.environment, DataTable)

    def arguments(self, dimension: int) -> dict[str, Any]:
        """The arguments of `fegsam.run` other than problem, algorithm and engine.

        The method, the schedule and the tail are among them only if the study has them.
        """
        times = self.record_count * (dimension if self.record_params else 1)
        require_memory(8 * len(self.seeds) * max(times, dimension), "run.record")
        initial = None if self.initial_params is None else load_array(self.initial_params)
        rounds = {"method": self.method, "schedule": self.schedule, "tail": self.tail}
        return {
            **{name: value for name, value in rounds.items() if value is not None},
            "step_size": self.step_size,
            "sync_period": self.sync_period,
            "num_steps": self.num_steps,
            "seeds": self.seeds,
            "record": self.record_times,
            "record_params": self.record_params,
            "initial_params": np.full(dimension, initial)
            if initial is not None and initial.ndim == 0
            else initial,
            "sampling": self.sampling,
            "output_decay": self.output_decay,
            "stop_at_output": self.stop_at_output,
            "fixed_point": None if self.fixed_point is None else load_array(self.fixed_point),
        }

    def run(self, engine: Any = None) -> fg.History:
        """Run the cell, on `engine` or by default on its own."""
        problem, algorithm = self.build()
        dimension = dimension_of(algorithm, problem)
        return fg.run(problem, algorithm, engine=engine or self.engine, **self.arguments(dimension))


def dimension_of(algorithm: Algorithm, problem: Problem | fg.DataFederation) -> int:
    """d, the number of parameters; an error if the algorithm does not fit the problem."""
    if isinstance(problem, fg.DataFederation):
        return needs_of(algorithm, problem).dimension
    check_algorithm(algorithm, problem)
    return algorithm.dimension(problem)
