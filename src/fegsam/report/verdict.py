"""What the data say about a claim: it holds, perhaps within x %, does not hold, or cannot be told.

There is one rule: an interval is compared with bounds that were written down before the run. A
claim of equality, such as "the exponent is -1", holds within the percentage that covers the whole
interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report.figure_data import FigureData
from fegsam.text import short

Outcome = Literal["holds", "does not hold", "cannot be told"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Kind = Literal["measured", "exact", "identity"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Role = Literal["main", "support", "apart"]
ROLES: tuple[Role, ...] = get_args(Role)
_EQUAL = 1e-6
"""Relative differences below this are rounding errors: equal numbers, not numbers within 1 %."""
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
    target : float or None
        The number that the claim says the estimate equals; None if the claim is no equality.
    column : str
        The algorithm or method that was checked: the column of the table of verdicts.
    role : {"main", "support", "apart"}
        Whether it checks the claim itself, checks what the claim rests on (an engine against exact
        numbers, say), or is a question of its own, which does not count for the claim.
    check : str
        The name of the check in the claim's spec.

    Examples
    --------
    >>> estimate = Estimate(7.9, 7.5, 8.3)
    >>> verdict = Verdict(
    ...     "Garnet",
    ...     "8 agents are 8 times as accurate as one.",
    ...     judge(estimate, 7, 9),
    ...     estimate,
    ...     "7 to 9",
    ...     target=8.0,
    ... )
    >>> verdict.outcome, verdict.words
    ('holds', 'holds within 7 %')
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
    target: float | None = None
    column: str = ""
    role: Role = "main"
    check: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ProblemError(f"kind is {self.kind!r}; give one of {', '.join(map(repr, KINDS))}.")
        if self.role not in ROLES:
            raise ProblemError(f"role is {self.role!r}; give one of {', '.join(map(repr, ROLES))}.")
        if self.outcome not in OUTCOMES:
            raise ProblemError(
                f"outcome is {self.outcome!r}; give one of {', '.join(map(repr, OUTCOMES))}."
            )

    @property
    def within(self) -> int:
        """The percentage of `target` within which the whole interval lies, rounded up.

        It is 0 if the claim is no equality, or if the numbers are equal.
        """
        if not self.target or self.estimate is None:
            return 0
        ends = (self.estimate.low, self.estimate.high)
        share = max(abs(end / self.target - 1) for end in ends)
        return math.ceil(100 * share - _EQUAL) if _EQUAL < share < math.inf else 0

    @property
    def words(self) -> str:
        """The outcome in words; a claim of equality says how well it holds."""
        return outcome_words(self.outcome, self.within)


def outcome_words(outcome: Outcome, within: int = 0) -> str:
    """An outcome, with the percentage within which an equality holds.

    >>> outcome_words("holds", 7), outcome_words("holds"), outcome_words("cannot be told", 7)
    ('holds within 7 %', 'holds', 'cannot be told')
    """
    return f"holds within {within} %" if outcome == "holds" and within else outcome


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
    finding: str = ""
    """what the data say, in one sentence"""
    theorem: str = ""
    """the statement of the paper, by its number"""
    errata: tuple[str, ...] = ()
    """the numbers of the errata that concern it"""
    code: str = ""
    """the file that checks it"""
    command: str = ""
    """the command that runs it again"""
    deeper: str = ""
    """the command that can tell what cannot be told here"""

    def __post_init__(self) -> None:
        for name in ("verdicts", "figures", "errata"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        notes = (self.notes,) if isinstance(self.notes, str) else tuple(self.notes)
        object.__setattr__(self, "notes", tuple(note for note in notes if note))

    @property
    def outcome(self) -> Outcome:
        """The outcome of all verdicts together: holds if each holds, does not hold if one does not.

        Identities alone are no evidence. An identity that does not hold is a fault of the code, and
        makes the claim not hold. Verdicts on questions apart do not count.
        """
        counted = [verdict for verdict in self.verdicts if verdict.role != "apart"]
        return joint_outcome(counted)

    @property
    def within(self) -> int:
        """The percentage within which every main equality holds; 0 if there is none."""
        return max((each.within for each in self.verdicts if each.role == "main"), default=0)

    @property
    def words(self) -> str:
        """The outcome in words, as those of a verdict."""
        return outcome_words(self.outcome, self.within)

    @property
    def apart(self) -> dict[str, tuple[Verdict, ...]]:
        """The verdicts on questions of their own, by their sentences."""
        groups: dict[str, tuple[Verdict, ...]] = {}
        for verdict in self.verdicts:
            if verdict.role == "apart":
                groups[verdict.sentence] = (*groups.get(verdict.sentence, ()), verdict)
        return groups


def joint_outcome(verdicts: Sequence[Verdict]) -> Outcome:
    """The outcome of several verdicts together; identities that hold are no evidence.

    >>> joint_outcome([Verdict("a", "One.", "holds"), Verdict("b", "One.", "cannot be told")])
    'cannot be told'
    """
    if "does not hold" in {verdict.outcome for verdict in verdicts}:
        return "does not hold"
    evidence = {verdict.outcome for verdict in verdicts if verdict.kind != "identity"}
    return "holds" if evidence == {"holds"} else "cannot be told"


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


def _are_equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_EQUAL)


def value_text(verdict: Verdict) -> str:
    """The number that was judged, with its interval if it was measured.

    >>> value_text(Verdict("a", "One.", "holds", Estimate(1.0, 1.0, 1.0), kind="exact"))
    '1'
    >>> value_text(Verdict("a", "One.", "holds", Estimate(1.0, 1.0, 1.0)))
    '1 in every run'
    >>> value_text(Verdict("a", "One.", "holds", Estimate(math.inf, math.inf, math.inf)))
    'none'
    """
    found = verdict.estimate
    if found is None or math.isnan(found.value):
        return ""
    if math.isinf(found.value):
        return "none"
    if verdict.kind != "measured":
        return short(found.value)
    return f"{short(found.value)} in every run" if _are_equal(found.low, found.high) else str(found)
