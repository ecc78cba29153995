"""The code that a study names, and who may run it.

A study is numbers and words, with three exceptions: a rule of its own is a function in a Python
file, an algorithm from outside is a class in a module that can be imported, and an environment of
Gymnasium is made by a package, in ``module:Env`` by any module that can be imported. Results carry
a copy of their study and of its files, so results from a stranger carry a stranger's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fegsam.errors import ProblemError
from fegsam.experiments.spec.problem_tables import Gymnasium
from fegsam.experiments.spec.study_tables import AlgorithmSpec, OwnAlgorithm, OwnRule

if TYPE_CHECKING:
    from fegsam.experiments.spec.cells import Cell

Trust = bool | None
"""Which code may run: all that a study names, none of it, or (None) what belongs to a study that is
not a stored copy."""


class TrustError(ProblemError):
    """A study names code that nobody has allowed to run."""


@dataclass(frozen=True)
class Code:
    """Something that runs when a cell is built."""

    what: str
    own: bool
    """whether whoever runs the study can be taken to mean it: a rule beside the study, an algorithm
    that a study names which is not a stored copy, an environment by its plain name"""

    def may_run(self, trust: Trust) -> bool:
        return self.own if trust is None else trust


def code_of(cell: Cell) -> Iterator[Code]:
    """What building a cell would run, apart from this package."""
    yield from algorithm_code(cell.algorithm)
    if isinstance(cell.problem.environment, Gymnasium):
        env_id = cell.problem.environment.env_id
        yield Code(f"the Gymnasium environment {env_id}", own=":" not in env_id)


def algorithm_code(spec: AlgorithmSpec) -> Iterator[Code]:
    """What building an algorithm would run. An entry point is code that the operator installed, as
    this package is."""
    if isinstance(spec, OwnRule):
        yield Code(f"{spec.rule.path}:{spec.rule.name}", own=not spec.rule.stored)
    if isinstance(spec, OwnAlgorithm) and ":" in spec.name:
        yield Code(spec.name, own=not spec.stored)


def check_trust(cell: Cell) -> None:
    """Refuse to build a cell that would run what nobody has allowed."""
    for code in code_of(cell):
        if not code.may_run(cell.trust):
            raise TrustError(
                f"This would run {code.what}, which the study names; if you trust whoever wrote "
                "that, add --trust "
                "(in Python: trust=True)."
            )
