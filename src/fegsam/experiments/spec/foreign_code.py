"""The code that a study names, and whether it may run.

A study consists of numbers and words, with three exceptions: its own rule, policy or features are
functions in a Python file, an external algorithm is a class in an importable module, and a
Gymnasium environment is made by a package or, as ``module:Env``, by any importable module. Results
carry a copy of their study and of its files, so results from a stranger carry a stranger's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fegsam.errors import ProblemError
from fegsam.experiments.spec.data_tables import (
    FunctionFeaturesTable,
    FunctionPolicyTable,
    LiveTable,
)
from fegsam.experiments.spec.problem_tables import GymnasiumTable
from fegsam.experiments.spec.study_tables import AlgorithmTable, OwnAlgorithmTable, OwnRuleTable

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell

Trust = bool | None
"""Which code may run: all that a study names, none, or (None) only code marked `Code.own`."""


class TrustError(ProblemError):
    """A study names code that was not allowed to run."""


@dataclass(frozen=True)
class Code:
    """Code that runs when a cell is built."""

    what: str
    own: bool
    """whether the user is assumed to trust it

    This holds for a function beside the study, an algorithm of a study that is not a stored copy,
    and an environment with a plain name.
    """

    def may_run(self, trust: Trust) -> bool:
        return self.own if trust is None else trust


def code_of(cell: Cell) -> Iterator[Code]:
    """The code outside this package that building a cell would run."""
    yield from algorithm_code(cell.algorithm)
    problem = cell.problem
    for table in (problem.behavior, problem.target, problem.features):
        if isinstance(table, FunctionPolicyTable | FunctionFeaturesTable):
            named = table.function
            yield Code(f"{named.path}:{named.name}", own=not named.stored)
    if isinstance(problem.environment, GymnasiumTable | LiveTable):
        env_id = problem.environment.env_id
        yield Code(f"the Gymnasium environment {env_id}", own=":" not in env_id)


def algorithm_code(spec: AlgorithmTable) -> Iterator[Code]:
    """The code that building an algorithm would run.

    An entry point does not count: the operator installed it, as they installed this package.
    """
    if isinstance(spec, OwnRuleTable):
        yield Code(f"{spec.rule.path}:{spec.rule.name}", own=not spec.rule.stored)
    if isinstance(spec, OwnAlgorithmTable) and ":" in spec.name:
        yield Code(spec.name, own=not spec.stored)


def check_trust(cell: Cell) -> None:
    """Refuse to build a cell that would run code without permission."""
    for code in code_of(cell):
        if not code.may_run(cell.trust):
            raise TrustError(
                f"This would run {code.what}, which the study names; if you trust its author, add "
                "--trust (in Python: trust=True)."
            )
