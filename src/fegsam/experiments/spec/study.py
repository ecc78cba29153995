"""A study as a TOML file: `load_study` reads and checks it, `Study.cells` lists its cells.

    [study]      name, title, seeds (a number or a list), engine
    [problem]    generator and its arguments; initial_distribution (not for data), assignment
    [problem.behavior], [problem.target], [problem.features], [problem.environments],
    [problem.evaluation]
    [methods.NAME]
                 average, correction, server, participation, rounding, local_steps
    [algorithm]  name, horizon, preconditioned; rule, dim, norm, assumptions for your own rule
    [run]        num_steps, sync_period, method, schedule, tail, record, record_params, sampling,
                 output_decay, stop_at_output, initial_params, fixed_point, common_paths
    [grid]       num_agents, sync_period, step_size and other axes (see `grid`);
                 step_size = "corollary" and sync_period = "corollary" or "advised" take the value
                 that `fegsam.theory.schedule` gives for the cell
    [[figures]]  kind, by, exact, bound, accuracy, title, caption
    [claim]      thresholds, under your own names

Every error is a `SpecError`: one sentence that names the file, the line and the key.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fegsam.errors import SpecError
from fegsam.experiments.spec.array_values import INPUTS, FileRef
from fegsam.experiments.spec.build_checks import check_builds
from fegsam.experiments.spec.cell_maker import CellMaker
from fegsam.experiments.spec.cells import Cell
from fegsam.experiments.spec.data_tables import LogTable
from fegsam.experiments.spec.foreign_code import Trust, code_of
from fegsam.experiments.spec.grid import GridAxis, flat_grids, read_grids
from fegsam.experiments.spec.method_tables import chosen_method, read_methods
from fegsam.experiments.spec.problems import ProblemSpec
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import AlgorithmTable, FigureTable, StudyTable
from fegsam.experiments.spec.toml_lines import Key
from fegsam.experiments.spec.toml_text import toml_text
from fegsam.experiments.spec.wording import nearest, show
from fegsam.methods.method import Method
from fegsam.safe_files import read_plain, whole

EXAMPLE = """\
[study]
name = "speed-up"
seeds = 2

[problem]
generator = "garnet"
states = 6
actions = 2
branching = 3
discount = 0.7
seed = 0

[problem.behavior]
kind = "random"
count = 4
seed = 1

[algorithm]
name = "q_learning"

[run]
num_steps = 1000

[grid]
num_agents = [1, 4]
sync_period = 10
step_size = [0.1, 0.05]
"""
"""A small complete spec."""

MOST_BYTES = 1 << 26
"""Largest size of a spec's text; larger arrays belong in separate files."""
TABLES = ("study", "problem", "algorithm", "methods", "run", "grid", "figures", "claim")


@dataclass(frozen=True, eq=False)
class Study:
    """A checked spec.

    Attributes
    ----------
    name, title : str
    seeds : tuple of int
    engine : str
    figures : tuple of FigureTable
    claim : mapping
        Thresholds, as written.
    source : SpecText
        `source.text` is the TOML text, `source.name` its name.

    Examples
    --------
    >>> study = parse_study(EXAMPLE)
    >>> study.name, len(study.cells()), study.axes
    ('speed-up', 4, {'num_agents': (1, 4), 'sync_period': (10,), 'step_size': (0.1, 0.05)})
    """

    name: str
    title: str
    seeds: tuple[int, ...]
    engine: str
    figures: tuple[FigureTable, ...]
    claim: Mapping[str, Any]
    grids: tuple[tuple[GridAxis, ...], ...]
    source: SpecText

    def cells(self) -> list[Cell]:
        """The cells of each grid in turn: the product of its axes, the last varying fastest."""
        return list(self._cells)

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        return tuple(CellMaker(self.source, self.seeds, self.engine).cells(self.grids))

    @property
    def text(self) -> str:
        """The TOML text."""
        return self.source.text

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The values of every axis, in the order of the spec."""
        found: dict[str, tuple[Any, ...]] = {}
        for axis in itertools.chain.from_iterable(self.grids):
            known = found.get(axis.name, ())
            found[axis.name] = known + tuple(value for value in axis.values if value not in known)
        return found

    @property
    def problem(self) -> ProblemSpec:
        """The problem of the first cell; a grid may change it in others."""
        return self._cells[0].problem

    @property
    def algorithm(self) -> AlgorithmTable:
        """The algorithm of the first cell; a grid may change it in others."""
        return self._cells[0].algorithm

    def method(self, name: str) -> Method:
        """The method of a table [methods.NAME], or a published one.

        >>> parse_study(EXAMPLE).method("scafflsa").correction
        ControlVariates(of='agent', source='last_round')
        """
        methods = read_methods(self.source, self.source.tables.get("methods", {}), {})
        return chosen_method(self.source, name, methods, ("methods", name)) or Method()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the spec names."""
        return tuple(sorted({ref.path for cell in self._cells for ref in _references(cell)}))

    def copy_inputs(self, directory: str | Path) -> None:
        """Copy the files that the spec names, so that a copy of its text in `directory` works.

        Of a log only the digest is stored.
        """
        for path in map(Path, self.files):
            kept = Path(directory) / INPUTS / path.name
            if not (kept.exists() and kept.samefile(path)):
                kept.parent.mkdir(parents=True, exist_ok=True)
                with whole(kept) as waiting:
                    waiting.write_bytes(read_plain(path))
        for cell in self._cells:
            if isinstance(cell.problem.environment, LogTable):
                cell.problem.environment.path.keep(Path(directory))

    def override(self, values: Mapping[str, Any]) -> Study:
        """The study with other values, given by their full keys; its text changes too.

        >>> small = parse_study(EXAMPLE).override({"study.seeds": [7], "grid.num_agents": 2})
        >>> [(cell.num_agents, cell.seeds) for cell in small.cells()]
        [(2, (7,)), (2, (7,))]
        """
        tables = copy.deepcopy(self.source.tables)
        for key, value in values.items():
            *way, last = key.split(".")
            inner = tables
            for name in way:
                inner = inner.setdefault(name, {})
                if not isinstance(inner, dict):
                    raise self.source.error(
                        tuple(way),
                        f"is not a single table, so {key} cannot be set: change the text instead",
                    )
            inner[last] = value
            try:
                toml_text({last: value})
            except TypeError:
                raise self.source.error(
                    (*way, last),
                    f"cannot be {value!r}: give what TOML can hold (text, numbers, and lists and "
                    "dicts of them)",
                ) from None
        text = toml_text(tables | {"grid": flat_grids(tables["grid"])})
        return parse_study(text, self.source.name, self.source.directory, trust=self.source.trust)

    def check(self) -> None:
        """Build each different problem, unless that would run code without permission."""
        check_builds(
            self.source,
            [
                cell
                for cell in self._cells
                if all(code.may_run(cell.trust) for code in code_of(cell))
            ],
        )


def load_study(path: str | Path, *, trust: Trust = None) -> Study:
    """Read and check a study.

    Parameters
    ----------
    path : path of a TOML file in UTF-8
        Relative paths in the file start in its directory.
    trust : bool, optional
        Which code that the study names may run. By default this is a rule in a file beside the
        study, and Gymnasium environments with plain names. True also allows a rule that is stored
        with results, and ``module:Env``. False allows none, and no problem is built to check it.

    Examples
    --------
    >>> load_study("missing.toml")
    Traceback (most recent call last):
    fegsam.errors.SpecError: missing.toml cannot be read (No such file or directory): check the
    path.
    """
    try:
        content = read_plain(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or 'not a path'}): check "
            "the path."
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(
            f"{path}, line {line}: the text is not UTF-8: save the file as UTF-8."
        ) from None
    return parse_study(text, str(path), Path(path).parent, trust=trust)


def parse_study(
    text: str, name: str = "<text>", directory: str | Path = ".", *, trust: Trust = None
) -> Study:
    """Check the TOML text of a study.

    `name` names the text in errors, `directory` holds its files, and `trust` is as in `load_study`.

    >>> parse_study(EXAMPLE.replace("states = 6", "stats = 6"), "speed.toml")
    Traceback (most recent call last):
    fegsam.errors.SpecError: speed.toml, line 7: problem.stats is not a known key here
    (generator = 'garnet'): did you mean 'states'?
    """
    source = SpecText(text, name, Path(directory), trust)
    tables = source.tables
    for key in tables:
        if key not in TABLES:
            raise source.error((key,), f"is not a known table{nearest(key, TABLES)}")
    for key in ("study", "problem", "algorithm", "grid"):
        if key not in tables:
            raise source.error((key,), f"is missing: add the table [{key}]")
    head = source.check(tables["study"], StudyTable, ("study",))
    study = Study(
        name=head.name,
        title=head.title or head.name,
        seeds=head.seeds,
        engine=head.engine,
        figures=(),
        claim=_claim(source, tables.get("claim", {}), ("claim",)),
        grids=read_grids(source),
        source=source,
    )
    study = replace(study, figures=_figures(source, tables.get("figures", []), study.axes))
    _check_files(study)
    if trust is not False:
        check_builds(source, study.cells())
    return study


def _figures(source: SpecText, given: Any, axes: Mapping[str, Any]) -> tuple[FigureTable, ...]:
    if not isinstance(given, list):
        raise source.error(
            ("figures",), f"is {show(given)}, but figures are a list of tables: write [[figures]]"
        )
    figures = tuple(
        source.check(table, FigureTable, ("figures", number)) for number, table in enumerate(given)
    )
    for number, figure in enumerate(figures):
        if figure.by is not None and figure.by not in axes:
            raise source.error(
                ("figures", number, "by"),
                f"is {show(figure.by)}, which is not an axis of [grid]{nearest(figure.by, axes)}",
            )
        if figure.kind == "floor" and figure.by is not None:
            other = next((each for each in axes[figure.by] if isinstance(each, str)), None)
            if other is not None:
                raise source.error(
                    ("figures", number, "by"),
                    f"is {show(figure.by)}, which has the value {show(other)}, but a floor is "
                    "drawn over numbers: choose another axis, and each value of this one is a "
                    "curve",
                )
    return figures


def _claim(source: SpecText, given: Any, key: Key) -> Any:
    """Thresholds: numbers, text, booleans, and lists and tables of them."""
    if key == ("claim",) and not isinstance(given, dict):
        raise source.error(key, f"is {show(given)}, but must be a table: write [claim]")
    if isinstance(given, dict):
        return {name: _claim(source, value, (*key, name)) for name, value in given.items()}
    if isinstance(given, list):
        return tuple(_claim(source, value, (*key, index)) for index, value in enumerate(given))
    if not isinstance(given, int | float | str) or (
        isinstance(given, float) and not math.isfinite(given)
    ):
        raise source.error(key, f"is {show(given)}, but a threshold is a finite number: correct it")
    return given


def _check_files(study: Study) -> None:
    names: dict[str, str] = {}
    for path in study.files:
        other = names.setdefault(Path(path).name, path)
        if other != path:
            raise SpecError(
                f"{study.source.name}: {other} and {path} have the same name: rename one of them."
            )


def _references(cell: Cell) -> Iterator[FileRef]:
    problem = cell.problem
    tables = [
        problem.environment,
        problem.behavior,
        problem.target,
        problem.features,
        cell.algorithm,
    ]
    values = itertools.chain.from_iterable(
        vars(table).values() for table in tables if table is not None
    )
    return (
        value
        for value in (*values, cell.initial_params, cell.fixed_point)
        if isinstance(value, FileRef)
    )
