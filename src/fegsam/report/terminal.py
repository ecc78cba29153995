"""The verdicts for a terminal: one line per claim, then every number if asked for.

Nothing is wider than 80 columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fegsam.report.verdict import Outcome, Section, Verdict, joint_outcome, tally, value_text

WIDTH = 80
_WORDS = 17
"""The width of the longest verdict, "holds within 26 %"."""
_SIGNS: dict[Outcome, str] = {"holds": "+", "does not hold": "-", "cannot be told": "?"}


def summary(sections: Sequence[Section], *, verbose: bool = False) -> str:
    """One line per claim: its letter, its verdict and its title.

    A question that is judged apart from its claim has a line of its own, and so has the command
    that can tell what these data cannot. If `verbose`, every number follows.

    Examples
    --------
    >>> from fegsam.experiments.estimates import Estimate
    >>> verdict = Verdict(
    ...     "Garnet",
    ...     "8 agents are 8 times as accurate.",
    ...     "holds",
    ...     Estimate(7.9, 7.5, 8.3),
    ...     "7 to 9",
    ...     target=8.0,
    ... )
    >>> section = Section("a", "Linear speed-up", "N agents are better.", (verdict,))
    >>> print(summary([section]))
    (a) holds within 7 %   Linear speed-up
    1 holds.
    >>> print(summary([section], verbose=True).partition("1 holds.")[2].strip())
    (a) Linear speed-up: holds within 7 %
      8 agents are 8 times as accurate.
      Judged: 7 to 9.
        + 7.9 [7.5, 8.3]  Garnet
    """
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    lines = [line for section in sections for line in _claim_lines(section)]
    lines += textwrap.wrap(tally(verdicts), WIDTH)
    if verbose:
        for section in sections:
            lines += ["", *_details(section)]
    return "\n".join(lines)


def _claim_lines(section: Section) -> list[str]:
    rows = [(f"({section.claim})", section.words, section.title)]
    rows += [("", joint_outcome(group), said) for said, group in section.apart.items()]
    if section.outcome == "cannot be told" and section.deeper:
        rows.append(("", "", f"to tell: {section.deeper}"))
    lines = []
    for letter, words, text in rows:
        begin = f"{letter:<3} {words:<{_WORDS}}  "
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin)
        )
    return lines


def _details(section: Section) -> list[str]:
    head = f"({section.claim}) {section.title}: {section.words}"
    lines = textwrap.wrap(head, WIDTH, subsequent_indent="    ")
    if section.finding:
        # A percent sign stays with its number.
        finding = section.finding.replace(" %", "\N{NO-BREAK SPACE}%")
        lines += textwrap.wrap(finding, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for group in by_check(section.verdicts):
        lines += textwrap.wrap(
            group[0].sentence, WIDTH, initial_indent="  ", subsequent_indent="  "
        )
        if group[0].threshold:
            lines.append(f"  Judged: {group[0].threshold}.")
        widest = max(len(value_text(verdict)) for verdict in group)
        for verdict in group:
            lines += _number_lines(verdict, widest)
    return lines


def _number_lines(verdict: Verdict, widest: int) -> list[str]:
    sign = "=" if verdict.kind == "identity" else _SIGNS[verdict.outcome]
    begin = f"    {sign} {value_text(verdict):<{widest}}  "
    return textwrap.wrap(
        verdict.claim, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin)
    )


def by_check(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Groups of verdicts with the same sentence and the same threshold, in order.

    >>> ones = [Verdict(where, "One.", "holds") for where in "ab"]
    >>> [len(group) for group in by_check([*ones, Verdict("a", "Two.", "holds")])]
    [2, 1]
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.sentence, verdict.threshold), []).append(verdict)
    return list(groups.values())
