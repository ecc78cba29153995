"""Checks that the problems of a spec can be built and run, before anything runs.

An error names the key that is at fault.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Sequence
from typing import Any

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.experiments.spec.cells import Cell, dimension_of
from fegsam.experiments.spec.data_tables import LogTable
from fegsam.experiments.spec.foreign_code import TrustError
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import OwnAlgorithmTable
from fegsam.experiments.spec.tables import canonical
from fegsam.experiments.spec.toml_lines import Key
from fegsam.methods.method import Method
from fegsam.methods.schedules import rounds_of
from fegsam.prepare import check_rounds
from fegsam.prepare_data import check_data
from fegsam.problem.chains import check_chains
from fegsam.problem.checks import flat_params
from fegsam.problem.federation import Problem

MOST_BUILT = 100
"""Number of different problems that are built as a check; others may fail when they run."""


def check_builds(source: SpecText, cells: Sequence[Cell]) -> None:
    """Build each different problem for its smallest number of agents, and check its algorithm.

    The cells of stored results whose log is elsewhere were checked when they were run.
    """
    cells = [cell for cell in cells if not _is_elsewhere(cell)]
    smallest: dict[Any, Cell] = {}
    for cell in cells:
        which = json.dumps(canonical(cell.algorithm), sort_keys=True)
        memo = cell.problem.digest, which, cell.initial_params, cell.fixed_point
        if memo not in smallest or _hardness(cell) < _hardness(smallest[memo]):
            smallest[memo] = cell
    for cell in itertools.islice(smallest.values(), MOST_BUILT):
        build_checked(source, cell)
    for cell in cells:
        if cell.problem.environment.assignment is not None:
            build_checked(source, max(cells, key=lambda other: other.num_agents))
            break
    _check_methods(source, cells)
    apart = [cell for cell in cells if cell.never_synchronises]
    if apart:
        warnings.warn(
            f"In {len(apart)} of {len(cells)} cells the agents never synchronise, since num_steps "
            f"is {apart[0].num_steps}: give a sync_period of at most that.",
            UserWarning,
            stacklevel=2,
        )


def _is_elsewhere(cell: Cell) -> bool:
    environment = cell.problem.environment
    return isinstance(environment, LogTable) and environment.path.is_elsewhere


def _hardness(cell: Cell) -> tuple[float, ...]:
    """The least of these is checked: of data, the cell that demands most of it."""
    if cell.on_data:
        return -cell.num_agents, -cell.num_steps, -cell.step_size
    return (cell.num_agents,)


def _check_methods(source: SpecText, cells: Sequence[Cell]) -> None:
    """Check that methods and schedules fit the problems, each of which is built once."""
    groups: dict[Any, dict[Any, Cell]] = {}
    for cell in cells:
        if not cell.is_plain:
            which = json.dumps(canonical(cell.algorithm), sort_keys=True)
            group = groups.setdefault((cell.problem.digest, which, cell.num_agents), {})
            memo = cell.method, repr(cell.schedule), cell.sync_period
            if memo not in group or cell.step_size > group[memo].step_size:
                group[memo] = cell
    for group in itertools.islice(groups.values(), MOST_BUILT):
        problem, algorithm = build_checked(source, next(iter(group.values())))
        dimension = dimension_of(algorithm, problem)
        for cell in group.values():
            try:
                check_rounds(
                    problem,
                    algorithm,
                    Method() if cell.method is None else cell.method,
                    cell.schedule,
                    rounds_of(cell.sync_period),
                    cell.step_size,
                    cell.num_steps,
                    dimension,
                )
            except ProblemError as error:
                what = f"does not fit num_agents = {cell.num_agents} and this problem"
                raise source.error(_rounds_key(source, cell), f"{what} ({inner(error)})") from None


def _rounds_key(source: SpecText, cell: Cell) -> Key:
    """The key that chose the cell's method or, without a method, its schedule."""
    name = "schedule" if cell.method is None else "method"
    grids = [("grid",), *(("grid", number) for number in range(len(source.tables["grid"])))]
    keys = [*((*grid, name) for grid in grids), ("run", name)]
    return next(filter(source.has, keys), ("run", name))


def build_checked(source: SpecText, cell: Cell) -> tuple[Problem | fg.DataFederation, Algorithm]:
    """The problem and algorithm of a cell; errors name the key in the spec."""
    try:
        problem, algorithm = cell.build()
        if isinstance(problem, fg.DataFederation):
            _require_data_tables(cell, problem)
            check_data(problem, algorithm, cell.step_size, cell.num_steps, cell.sampling)
        else:
            _require_tables(cell, problem)
        dimension = dimension_of(algorithm, problem)
        if not isinstance(problem, fg.DataFederation):
            check_chains(problem, algorithm.policies(problem))
        arguments = cell.arguments(dimension)
        for name in ("initial_params", "fixed_point"):
            if arguments[name] is not None:
                flat_params(arguments[name], name, dimension)
    except TrustError:
        raise
    except ProblemError as error:
        raise source.error(*_blame(source, cell, inner(error))) from None
    except (MemoryError, OverflowError):
        raise source.error(("problem",), "does not fit into memory: make it smaller") from None
    return problem, algorithm


def inner(error: ProblemError) -> str:
    """A message as part of a sentence.

    >>> inner(ProblemError("It is so."))
    'It is so'
    """
    return " ".join(str(error).split()).rstrip(".")


def _require_tables(cell: Cell, problem: Problem) -> None:
    """Check that [problem] has the tables that an algorithm of the package needs.

    Other algorithms check the problem themselves.
    """
    spec = cell.algorithm
    if isinstance(spec, OwnAlgorithmTable):
        return
    if isinstance(problem, fg.MarkovNoise) != spec.on_noise:
        wanted = "generator = 'noise'" if spec.on_noise else "the generator of an MDP"
        raise ProblemError(f"{spec.name} needs a [problem] with {wanted}: choose one")
    if isinstance(problem, fg.MarkovNoise):
        return
    policies = problem.target_policy, problem.behavior_policies
    given = {"target": policies[0], "features": problem.features}
    missing = [table for table in spec.needs if given[table] is None]
    missing += ["behavior"] if all(policy is None for policy in policies) else []
    if missing:
        raise ProblemError(f"{spec.name} needs the table [problem.{missing[0]}]: add it")


def _require_data_tables(cell: Cell, problem: fg.DataFederation) -> None:
    """Check that [problem] has what an algorithm of the package needs to run on data."""
    spec = cell.algorithm
    if isinstance(spec, OwnAlgorithmTable):
        return
    if spec.on_noise:
        raise ProblemError(f"{spec.name} needs a [problem] with generator = 'noise': choose one")
    if "features" in spec.needs and problem.features is None:
        raise ProblemError(f"{spec.name} needs the table [problem.features]: add it")
    off_policy = "target" in spec.needs and spec.name != "on_policy_td"
    if off_policy and problem.target_policy is None and not problem.logs:
        raise ProblemError(f"{spec.name} needs the table [problem.target]: add it")
    wanted = []
    if "features" not in spec.needs and problem.num_states is None:
        wanted.append("states")
    if "target" not in spec.needs and problem.num_actions is None:
        wanted.append("actions")
    if wanted:
        name = wanted[0]
        raise ProblemError(f"{spec.name} needs the number of {name}: add {name} to [problem]")


def _blame(source: SpecText, cell: Cell, message: str) -> tuple[Key, str]:
    """The key of the spec that a message of the library is about, and the rest of the message.

    Messages begin with the name of the argument that is at fault.
    """
    word, _, rest = message.partition(" ")
    names = tuple(word.split("."))
    parts = tuple(("problem", part) for part in ("behavior", "target", "features", "environments"))
    for table in ((), ("problem",), *parts, ("run",), ("algorithm",)):
        if source.has((*table, *names)):
            return (*table, *names), rest
    environment = cell.problem.environment
    if isinstance(environment, LogTable) and message.startswith(environment.path.paths):
        return ("problem", "path"), f"cannot be used ({message})"
    if word == cell.algorithm.name:
        return ("algorithm", "name"), f"is {word!r}, which {rest}"
    return ("problem",), f"cannot be used ({message})"
