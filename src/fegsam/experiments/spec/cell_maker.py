"""Makes cells from the axes of a grid.

It puts the values of the axes into the tables, checks them, and computes the corollary's schedule.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import fegsam as fg
from fegsam.errors import ProblemError
from fegsam.experiments.spec.build_checks import build_checked, inner
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.grid import GridAxis, moves, overridden
from fegsam.experiments.spec.method_tables import chosen_method, read_methods, value_of
from fegsam.experiments.spec.own_algorithms import read_algorithm
from fegsam.experiments.spec.problems import ProblemSpec, read_problem
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import AlgorithmTable, RunTable
from fegsam.experiments.spec.tables import canonical
from fegsam.experiments.spec.toml_lines import Key
from fegsam.methods.method import Method

_METHOD = ("run", "method")
_PERIOD = ("run", "sync_period")
_AS_WRITTEN = (
    "record",
    "record_params",
    "sampling",
    "output_decay",
    "stop_at_output",
    "initial_params",
    "fixed_point",
)
"""The keys of [run] that a cell has as they are."""


class CellMaker:
    """Makes the cells of a study; shared tables and schedules are computed once."""

    def __init__(self, source: SpecText, seeds: tuple[int, ...], engine: str) -> None:
        self.source, self.seeds, self.engine = source, seeds, engine
        self.made: dict[Any, Any] = {}

    def cells(self, grids: tuple[tuple[GridAxis, ...], ...]) -> Iterator[Cell]:
        """The cells of each grid in turn: the product of its axes, the last varying fastest."""
        for axes in grids:
            for indices in itertools.product(*(range(len(axis.values)) for axis in axes)):
                yield self._cell(axes, indices)

    def _cell(self, axes: tuple[GridAxis, ...], indices: tuple[int, ...]) -> Cell:
        point = {axis.name: axis.values[index] for axis, index in zip(axes, indices, strict=True)}
        places = {
            axis.target: axis.places[index] for axis, index in zip(axes, indices, strict=True)
        }
        problem: ProblemSpec = self._table("problem", axes, indices)
        algorithm: AlgorithmTable = self._table("algorithm", axes, indices)
        run: RunTable = self._table("run", axes, indices)
        methods: dict[str, Method] = self._table("methods", axes, indices)
        self._check_times(run)
        cell = Cell(
            problem=problem,
            algorithm=algorithm,
            num_agents=point["num_agents"],
            sync_period=1,
            step_size=1.0,
            num_steps=run.num_steps,
            seeds=self.seeds if run.common_paths else _own_seeds(self.seeds, point),
            engine=self.engine,
            axes=point,
            trust=self.source.trust,
            method=chosen_method(self.source, run.method, methods, places.get(_METHOD, _METHOD)),
            schedule=value_of(run.schedule),
            tail=value_of(run.tail),
            **{name: getattr(run, name) for name in _AS_WRITTEN},
        )
        periods = "sync_period", run.sync_period, places.get(_PERIOD, _PERIOD)
        steps = "step_size", point["step_size"], places["step_size",]
        return replace(
            cell,
            sync_period=self._scheduled(cell, *periods),
            step_size=self._scheduled(cell, *steps),
        )

    def _table(self, root: str, axes: tuple[GridAxis, ...], indices: tuple[int, ...]) -> Any:
        changes = list(moves(axes, indices, root))
        memo = (root, *((id(axis), index) for axis, index in changes))
        if memo not in self.made:
            table, moved = overridden(self.source, self.source.tables.get(root, {}), changes)
            self.made[memo] = self._read(root, table, moved)
        return self.made[memo]

    def _read(self, root: str, table: Any, moved: Mapping[Key, Key]) -> Any:
        if root == "problem":
            return read_problem(self.source, table, moved)
        if root == "algorithm":
            return read_algorithm(self.source, table, moved)
        if root == "methods":
            return read_methods(self.source, table, moved)
        return self.source.check(table, RunTable, ("run",), moved)

    def _check_times(self, run: RunTable) -> None:
        last = max(run.record.times) if run.record is not None and run.record.times else 0
        if last > run.num_steps:
            raise self.source.error(
                ("run", "record"),
                f"has time {last}, but num_steps is {run.num_steps}: drop later times",
            )
        if run.tail is not None and run.stop_at_output:
            raise self.source.error(
                ("run", "tail"), "needs the run to its end: leave out tail or stop_at_output"
            )

    def _scheduled(self, cell: Cell, name: str, value: Any, place: Key) -> Any:
        """The value itself, or the number that the corollary gives for a word."""
        if not isinstance(value, str):
            return value_of(value)
        if cell.on_data:
            what = f"is {value!r}, which follows from an MDP, but only data is known: give a number"
            raise self.source.error(place, what)
        which = json.dumps(canonical(cell.algorithm), sort_keys=True)
        memo = "schedule", cell.problem.digest, which, cell.num_agents, cell.num_steps
        if memo not in self.made:
            build_checked(self.source, cell)
            try:
                self.made[memo] = fg.theory.schedule(
                    *cell.build_simulated(), num_steps=cell.num_steps
                )
            except ProblemError as error:
                raise self.source.error(
                    place, f"is {value!r}, which does not work here ({inner(error)})"
                ) from None
        found = self.made[memo]
        return found.advised_sync_period if value == "advised" else getattr(found, name)


def _own_seeds(seeds: tuple[int, ...], point: Mapping[str, Any]) -> tuple[int, ...]:
    """Seeds of one cell alone, shifted by a hash of its coordinates."""
    shown = json.dumps(point, sort_keys=True, default=str)
    shift = int.from_bytes(hashlib.sha256(shown.encode()).digest()[:8], "big")
    return tuple((seed + shift) % 2**64 for seed in seeds)
