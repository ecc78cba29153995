"""Verdicts as a table: one row per check, one column per algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fegsam.report.terminal import by_check
from fegsam.report.verdict import Outcome, Section, Verdict, joint_outcome, outcome_words

EXAMPLES = "Examples"
"""The column of checks that are about no algorithm."""


class MatrixCell(NamedTuple):
    """The verdicts of one check on one algorithm, together."""

    outcome: Outcome
    words: str
    identity: bool


class MatrixRow(NamedTuple):
    """One check; `cells` has None where it was not made."""

    verdicts: tuple[Verdict, ...]
    cells: tuple[MatrixCell | None, ...]

    @property
    def sentence(self) -> str:
        return self.verdicts[0].sentence


class Matrix(NamedTuple):
    """The checks of a claim by algorithm."""

    columns: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


def matrix(section: Section, order: Sequence[str] = ()) -> Matrix:
    """The checks of a claim by algorithm; the columns in `order` come first, in that order.

    Examples
    --------
    >>> verdicts = [
    ...     Verdict("TD, Garnet", "It falls.", "holds", column="TD"),
    ...     Verdict("coin", "It falls.", "does not hold"),
    ... ]
    >>> found = matrix(Section("a", "Speed-up", "More is better.", verdicts))
    >>> found.columns, [cell.words for cell in found.rows[0].cells]
    (('TD', 'Examples'), ['holds', 'does not hold'])
    """
    places = {name: place for place, name in enumerate(order)}
    columns = tuple(sorted(columns_of([section]), key=lambda name: places.get(name, len(places))))
    rows = [
        MatrixRow(
            tuple(group),
            tuple(cell([one for one in group if _column(one) == name]) for name in columns),
        )
        for group in by_check(section.verdicts)
    ]
    return Matrix(columns, tuple(rows))


def overview(sections: Sequence[Section]) -> tuple[tuple[str, ...], list[tuple[Section, list]]]:
    """All claims by algorithm: the columns, and the cells of each claim.

    Questions that are judged apart from their claims are not among them.
    """
    columns = columns_of(sections)
    rows = []
    for section in sections:
        counted = [verdict for verdict in section.verdicts if verdict.role != "apart"]
        groups = [[one for one in counted if _column(one) == name] for name in columns]
        rows.append((section, [cell(group) for group in groups]))
    return columns, rows


def columns_of(sections: Sequence[Section]) -> tuple[str, ...]:
    """The algorithms in the order of their appearance, then the column of examples."""
    found = dict.fromkeys(_column(each) for section in sections for each in section.verdicts)
    return tuple(sorted(found, key=lambda name: name == EXAMPLES))


def cell(group: Sequence[Verdict]) -> MatrixCell | None:
    """The verdicts of one cell together; None if there are none."""
    if not group:
        return None
    if all(one.kind == "identity" and one.outcome == "holds" for one in group):
        return MatrixCell("holds", "identity", True)
    outcome = joint_outcome(group)
    within = max((one.within for one in group if one.role != "support"), default=0)
    if all(one.role == "support" for one in group):
        within = max(one.within for one in group)
    return MatrixCell(outcome, outcome_words(outcome, within), False)


def _column(verdict: Verdict) -> str:
    return verdict.column or EXAMPLES
