"""The table of everything that was checked: the claim, the theorem, how it can fail, the threshold
and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fegsam.report.verdict import Section, Verdict, tally

MEANING_OF_KINDS = (
    "Measured: judged in runs, by an interval over seeds. Exact: computed without sampling, so "
    "that it has no interval. "
    "Identity: true by algebra, whatever the data are; it checks the code and is not counted."
)
HEADS = (
    "Claim",
    "Theorem",
    "Kind",
    "How it can fail",
    "Threshold",
    "Where the threshold comes from",
    "Outcome",
)


class EvidenceRow(NamedTuple):
    """One sentence that was checked: `cells` stand below `HEADS` but the first."""

    letter: str
    sentence: str
    cells: tuple[str, ...]


def evidence(sections: Sequence[Section]) -> list[EvidenceRow]:
    """One row for each sentence that was checked, however often; none where no verdict says where
    it comes from.

    Examples
    --------
    >>> told = Verdict(
    ...     "coin",
    ...     "Heads is as likely as tails.",
    ...     "holds",
    ...     threshold="0.4 to 0.6",
    ...     source="The claim itself.",
    ... )
    >>> [row] = evidence([Section("a", "Coins", "Coins are fair.", (told,))])
    >>> row.sentence, row.cells[3:5]
    ('Heads is as likely as tails.', ('0.4 to 0.6', 'The claim itself.'))
    >>> evidence([Section("a", "Coins", "Coins are fair.")])
    []
    """
    if not any(verdict.source for section in sections for verdict in section.verdicts):
        return []
    return [_row(section, group) for section in sections for group in _by_sentence(section)]


def _by_sentence(section: Section) -> list[list[Verdict]]:
    """Verdicts that say the same and are held against the same."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in section.verdicts:
        groups.setdefault((verdict.sentence, verdict.threshold), []).append(verdict)
    return list(groups.values())


def _row(section: Section, group: Sequence[Verdict]) -> EvidenceRow:
    first = group[0]
    told = (first.theorem, first.kind, first.fails, first.threshold, first.source)
    return EvidenceRow(section.claim, first.sentence, (*told, _outcomes(group)))


def _outcomes(group: Sequence[Verdict]) -> str:
    if group[0].kind == "identity":
        return (
            "as it must"
            if all(verdict.outcome == "holds" for verdict in group)
            else "FAILED: a fault of the code"
        )
    return tally(group)
