"""What the data say about a claim: it holds, does not hold, or cannot be told.

There is one rule: an interval is compared with bounds that were written down before the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report.figure_data import FigureData
from fegsam.text import aligned, short

Outcome = Literal["holds", "does not hold", "cannot be told"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Kind = Literal["measured", "exact", "identity"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PLURAL: dict[Outcome, str] = {
    "holds": "hold",
    "does not hold": "do not hold",
    "cannot be told": "cannot be told",
}


def judge(estimate: Estimate, low: float | None = None, high: float | None = None) -> Outcome:
    """Whether the interval of `estimate` shows that the truth lies in [low, high].

    None is no bound. An interval that overlaps a bound decides nothing.

    Examples
    --------
    >>> judge(Estimate(7.9, 7.5, 8.3), low=7, high=9)
    'holds'
    >>> judge(Estimate(7.9, 7.5, 8.3), low=9)
    'does not hold'
    >>> judge(Estimate(7.9, 7.5, 8.3), low=8)
    'cannot be told'
    """
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    if not least <= most:
        raise ProblemError(
            f"The threshold runs from {least} to {most}; give a lower bound that is not above the "
            "upper one."
        )
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return "cannot be told"
    if least <= estimate.low and estimate.high <= most:
        return "holds"
    return "does not hold" if estimate.high < least or estimate.low > most else "cannot be told"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check.

    Attributes
    ----------
    claim : str
        A few words: which algorithm, on which problem.
    sentence : str
        The claim in one plain sentence.
    outcome : {"holds", "does not hold", "cannot be told"}
    estimate : Estimate or None
        The number that was judged.
    threshold : str
        The bounds that it was compared with.
    detail : str
        Anything else that a reader should know.
    kind : {"measured", "exact", "identity"}
        Measured in runs and judged by an interval; computed without sampling; or true by algebra,
        whatever the data are. An identity checks the code, not the claim, so it is shown but not
        counted as evidence.
    theorem : str
        The statement of the paper that is checked.
    fails : str
        How the check can fail.
    source : str
        The source of the threshold.

    Examples
    --------
    >>> estimate = Estimate(7.9, 7.5, 8.3)
    >>> Verdict(
    ...     "Garnet",
    ...     "8 agents are 8 times as accurate as one.",
    ...     judge(estimate, 7, 9),
    ...     estimate,
    ...     "7 to 9",
    ... ).outcome
    'holds'
    """

    claim: str
    sentence: str
    outcome: Outcome
    estimate: Estimate | None = None
    threshold: str = ""
    detail: str = ""
    kind: Kind = "measured"
    theorem: str = ""
    fails: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ProblemError(f"kind is {self.kind!r}; give one of {', '.join(map(repr, KINDS))}.")
        if self.outcome not in OUTCOMES:
            raise ProblemError(
                f"outcome is {self.outcome!r}; give one of {', '.join(map(repr, OUTCOMES))}."
            )


@dataclass(frozen=True)
class Section:
    """One claim of the paper: what it says, the verdicts on it, and the figures that show it.

    Examples
    --------
    >>> Section("a", "Linear speed-up", "N agents are N times as accurate as one.").outcome
    'cannot be told'
    """

    claim: str
    """its letter"""
    title: str
    sentence: str
    verdicts: tuple[Verdict, ...] = ()
    figures: tuple[FigureData, ...] = ()
    notes: tuple[str, ...] = ()
    """one paragraph each"""

    def __post_init__(self) -> None:
        for name in ("verdicts", "figures"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        notes = (self.notes,) if isinstance(self.notes, str) else tuple(self.notes)
        object.__setattr__(self, "notes", tuple(note for note in notes if note))

    @property
    def outcome(self) -> Outcome:
        """The outcome of all verdicts together: holds if each holds, does not hold if one does not.

        Identities alone are no evidence. An identity that does not hold is a fault of the code, and
        makes the claim not hold.
        """
        if "does not hold" in {verdict.outcome for verdict in self.verdicts}:
            return "does not hold"
        evidence = {verdict.outcome for verdict in self.verdicts if verdict.kind != "identity"}
        return "holds" if evidence == {"holds"} else "cannot be told"


def summary(sections: Sequence[Section]) -> str:
    """An aligned table of every verdict, for a terminal: below each sentence where it was checked.

    Examples
    --------
    >>> verdict = Verdict(
    ...     "Garnet",
    ...     "8 agents are 8 times as accurate.",
    ...     "holds",
    ...     Estimate(7.9, 7.5, 8.3),
    ...     "7 to 9",
    ... )
    >>> print(
    ...     summary(
    ...         [Section("a", "Linear speed-up", "N agents are N times as accurate.", (verdict,))]
    ...     )
    ... )
        where    verdict   kind       value [95 % interval]   threshold
    (a) Linear speed-up: holds
      8 agents are 8 times as accurate.
        Garnet   holds     measured   7.9 [7.5, 8.3]          7 to 9
    1 holds.
    """
    grouped = [_by_sentence(section) for section in sections]
    verdicts = [one for groups in grouped for group in groups.values() for one in group]
    head = ("where", "verdict", "kind", "value [95 % interval]", "threshold")
    table = (f"    {line}" for line in aligned([head, *map(_cells, verdicts)], gap="   "))
    lines = [next(table)]
    for section, groups in zip(sections, grouped, strict=True):
        lines.append(f"({section.claim}) {section.title}: {section.outcome}")
        for sentence, group in groups.items():
            lines += [f"  {sentence}", *itertools.islice(table, len(group))]
    return "\n".join([*lines, tally(verdicts)])


def _by_sentence(section: Section) -> dict[str, list[Verdict]]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in section.verdicts:
        groups.setdefault(verdict.sentence, []).append(verdict)
    return groups


def tally(verdicts: Sequence[Verdict]) -> str:
    """The number of verdicts with each outcome; identities, which cannot fail, are separate.

    Examples
    --------
    >>> tally(
    ...     [
    ...         Verdict("a", "One.", "holds"),
    ...         Verdict("b", "Two.", "holds"),
    ...         Verdict("c", "Three.", "cannot be told"),
    ...     ]
    ... )
    '2 hold, 1 cannot be told.'
    >>> tally([Verdict("a", "One.", "holds"), Verdict("b", "1 = 1.", "holds", kind="identity")])
    '1 holds. Not counted: 1 identity, true by algebra.'
    """
    parts = []
    for outcome in OUTCOMES:
        count = sum(
            verdict.outcome == outcome for verdict in verdicts if verdict.kind != "identity"
        )
        if count:
            parts.append(f"{count} {outcome if count == 1 else _PLURAL[outcome]}")
    counted = f"{', '.join(parts)}." if parts else "Nothing was checked."
    return f"{counted} {_identities(verdicts)}".rstrip()


def _identities(verdicts: Sequence[Verdict]) -> str:
    found = [verdict for verdict in verdicts if verdict.kind == "identity"]
    if not found:
        return ""
    broken = sum(verdict.outcome != "holds" for verdict in found)
    fault = f", of which {broken} failed, a fault of the code" if broken else ""
    what = "identity" if len(found) == 1 else "identities"
    return f"Not counted: {len(found)} {what}, true by algebra{fault}."


def _cells(verdict: Verdict) -> tuple[str, ...]:
    return verdict.claim, verdict.outcome, verdict.kind, value_text(verdict), verdict.threshold


def value_text(verdict: Verdict) -> str:
    """The number that was judged, with its interval if it was measured.

    >>> value_text(Verdict("a", "One.", "holds", Estimate(1.0, 1.0, 1.0), kind="exact"))
    '1'
    """
    if verdict.estimate is None:
        return ""
    return str(verdict.estimate) if verdict.kind == "measured" else short(verdict.estimate.value)
