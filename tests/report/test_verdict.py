"""An interval against bounds: inside, outside, or neither."""

from __future__ import annotations

import math

import pytest

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report import Section, Verdict, judge, summary


@pytest.mark.parametrize(
    ("interval", "bounds", "outcome"),
    [
        ((2, 3), (1, 4), "holds"),
        ((1, 4), (1, 4), "holds"),
        ((2, 5), (1, 4), "cannot be told"),
        ((0, 5), (1, 4), "cannot be told"),
        ((5, 6), (1, 4), "does not hold"),
        ((-2, 0), (1, 4), "does not hold"),
        ((2, 3), (None, 4), "holds"),
        ((2, 3), (4, None), "does not hold"),
        ((2, math.inf), (1, None), "holds"),
        ((math.inf, math.inf), (None, 4), "does not hold"),
        ((math.nan, math.nan), (None, None), "cannot be told"),
    ],
)
def test_the_interval_decides(interval, bounds, outcome) -> None:
    assert judge(Estimate(sum(interval) / 2, *interval), *bounds) == outcome


def test_a_claim_holds_only_if_all_that_was_checked_does() -> None:
    def outcome(*outcomes: str) -> str:
        return Section("a", "t", "s.", tuple(Verdict("c", "s.", each) for each in outcomes)).outcome

    assert outcome("holds", "holds") == "holds"
    assert outcome("holds", "cannot be told") == "cannot be told"
    assert outcome("holds", "cannot be told", "does not hold") == "does not hold"
    assert outcome() == "cannot be told"


def test_bounds_the_wrong_way_round_and_unknown_outcomes_are_refused() -> None:
    with pytest.raises(ProblemError, match="from 4 to 1"):
        judge(Estimate(1, 1, 1), 4, 1)
    with pytest.raises(ProblemError, match="'perhaps'"):
        Verdict("c", "s.", "perhaps")


def test_the_summary_names_every_verdict_under_its_sentence_and_aligns_them() -> None:
    verdicts = (
        Verdict("short", "One.", "holds", Estimate(1, 1, 1), "0 to 2"),
        Verdict("short", "Two.", "holds"),
        Verdict("longer name", "One.", "does not hold"),
    )
    heading, *lines, total = summary([Section("a", "Title", "s.", verdicts)]).splitlines()
    assert lines[0] == "(a) Title: does not hold"
    assert [line.split()[0] for line in lines[1:]] == ["One.", "short", "longer", "Two.", "short"]
    assert heading.index("verdict") == lines[2].index("holds")
    assert total == "2 hold, 1 does not hold."
    assert lines[2].index("holds") == lines[3].index("does not hold")
    assert lines[2].endswith("0 to 2")


def identity(outcome: str) -> Verdict:
    return Verdict("c", "1 = 1.", outcome, kind="identity")


def test_identities_are_shown_but_not_counted() -> None:
    section = Section(
        "a", "t", "s.", (Verdict("c", "s.", "holds"), identity("holds"), identity("holds"))
    )
    assert section.outcome == "holds"
    assert (
        summary([section]).splitlines()[-1]
        == "1 holds. Not counted: 2 identities, true by algebra."
    )
    assert "identity" in summary([section]).splitlines()[5]


def test_identities_alone_tell_nothing_and_a_broken_one_is_a_fault() -> None:
    assert Section("a", "t", "s.", (identity("holds"),)).outcome == "cannot be told"
    broken = Section("a", "t", "s.", (Verdict("c", "s.", "holds"), identity("does not hold")))
    assert broken.outcome == "does not hold"
    assert "1 identity, true by algebra, of which 1 failed, a fault of the code." in summary(
        [broken]
    )


def test_exact_numbers_are_shown_without_an_interval() -> None:
    exact = Verdict("c", "s.", "holds", Estimate(2, 2, 2), "1 to 3", kind="exact")
    assert summary([Section("a", "t", "s.", (exact,))]).splitlines()[3].split() == [
        "c",
        "holds",
        "exact",
        "2",
        "1",
        "to",
        "3",
    ]
    with pytest.raises(ProblemError, match="'guessed'"):
        Verdict("c", "s.", "holds", kind="guessed")


def test_one_note_may_be_a_plain_string() -> None:
    assert Section("a", "t", "s.", notes="one").notes == ("one",)
