"""The table of everything that was checked: claim, theorem, how it can fail, and threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fegsam.report.terminal import by_check
from fegsam.report.verdict import Section, Verdict, tally

MEANING_OF_KINDS = (
    "A measured check is judged in runs, by an interval over seeds. An exact one is computed "
    "without sampling, so it has no interval. An identity is true by algebra, whatever the data "
    "are; it checks the code and is not counted."
)
HEADS = (
    "Claim",
    "Theorem",
    "Kind",
    "How it can fail",
    "Threshold",
    "Source of the threshold",
    "Outcome",
)


class EvidenceRow(NamedTuple):
    """One sentence that was checked; `cells` belong to all `HEADS` but the first."""

    letter: str
    sentence: str
    cells: tuple[str, ...]


def evidence(sections: Sequence[Section]) -> list[EvidenceRow]:
    """One row for each sentence that was checked, however often.

    There are no rows if no verdict states the source of its threshold.

    Examples
    --------
    >>> verdict = Verdict(
    ...     "coin",
    ...     "Heads is as likely as tails.",
    ...     "holds",
    ...     threshold="0.4 to 0.6",
    ...     source="The claim itself.",
    ... )
    >>> [row] = evidence([Section("a", "Coins", "Coins are fair.", (verdict,))])
    >>> row.sentence, row.cells[3:5]
    ('Heads is as likely as tails.', ('0.4 to 0.6', 'The claim itself.'))
    >>> evidence([Section("a", "Coins", "Coins are fair.")])
    []
    """
    if not any(verdict.source for section in sections for verdict in section.verdicts):
        return []
    return [_row(section, group) for section in sections for group in by_check(section.verdicts)]


def _row(section: Section, group: Sequence[Verdict]) -> EvidenceRow:
    first = group[0]
    details = (first.theorem, first.kind, first.fails, first.threshold, first.source)
    return EvidenceRow(section.claim, first.sentence, (*details, _outcomes(group)))


def _outcomes(group: Sequence[Verdict]) -> str:
    if group[0].kind == "identity":
        return (
            "as it must"
            if all(verdict.outcome == "holds" for verdict in group)
            else "FAILED: a fault of the code"
        )
    return tally(group)
