"""The table of everything that was checked: the claim, the theorem, how it can fail, the threshold
and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fegsam.report.verdict import Section, Verdict, tally

MEANING_OF_KINDS = (
    "Measured: judged in runs, by an interval over seeds. Exact: computed without sampling, so "
    "that it has no interval. "
    "Identity: true by algebra, whatever the data are; it checks the code and is not counted."
)
_HEADS = (
    "Claim",
    "Theorem",
    "Kind",
    "How it can fail",
    "Threshold",
    "Where the threshold comes from",
    "Outcome",
)


def evidence(sections: Sequence[Section]) -> str:
    """HTML: one row for each sentence that was checked, however often; empty where no verdict says
    where it comes from.

    Examples
    --------
    >>> told = Verdict(
    ...     "coin",
    ...     "Heads is as likely as tails.",
    ...     "holds",
    ...     threshold="0.4 to 0.6",
    ...     source="The claim itself.",
    ... )
    >>> "The claim itself." in evidence([Section("a", "Coins", "Coins are fair.", (told,))])
    True
    >>> evidence([Section("a", "Coins", "Coins are fair.")])
    ''
    """
    if not any(verdict.source for section in sections for verdict in section.verdicts):
        return ""
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in _HEADS)
    rows = [_row(section, group) for section in sections for group in _by_sentence(section)]
    return (
        f'<h2>Every verdict</h2>\n<p class="lead">{MEANING_OF_KINDS}</p>\n'
        f'<table class="verdicts" role="table"><thead role="rowgroup"><tr '
        f'role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{chr(10).join(rows)}\n</tbody></table>'
    )


def _by_sentence(section: Section) -> list[list[Verdict]]:
    """Verdicts that say the same and are held against the same."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in section.verdicts:
        groups.setdefault((verdict.sentence, verdict.threshold), []).append(verdict)
    return list(groups.values())


def _row(section: Section, group: Sequence[Verdict]) -> str:
    first, letter = group[0], escape(section.claim)
    cells = (
        first.theorem,
        first.kind,
        first.fails,
        first.threshold,
        first.source,
        _outcomes(group),
    )
    return (
        f'<tr role="row"><th role="rowheader" scope="row"><a href="#claim-{letter}">({letter})</a> '
        f"{escape(first.sentence)}</th>"
        + "".join(
            f'<td role="cell" data-label="{name}">{escape(cell) or "none"}</td>'
            for name, cell in zip(_HEADS[1:], cells, strict=True)
        )
        + "</tr>"
    )


def _outcomes(group: Sequence[Verdict]) -> str:
    if group[0].kind == "identity":
        return (
            "as it must"
            if all(verdict.outcome == "holds" for verdict in group)
            else "FAILED: a fault of the code"
        )
    return tally(group)
