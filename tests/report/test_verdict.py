"""An interval against bounds: inside, outside, or neither."""

from __future__ import annotations

import math

import pytest

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report import Section, Verdict, judge, summary
from fegsam.report.verdict import value_text


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


def test_the_summary_has_a_line_per_claim_and_every_number_only_if_asked_for() -> None:
    verdicts = (
        Verdict("short", "One.", "holds", Estimate(1, 1, 1), "0 to 2"),
        Verdict("short", "Two.", "holds"),
        Verdict("longer name", "One.", "does not hold", threshold="0 to 2"),
    )
    sections = [Section("a", "Title", "s.", verdicts), Section("b", "Other", "s.", verdicts[:1])]
    lines = summary(sections).splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == ["(a)", "(b)", "3"]
    assert lines[0].index("Title") == lines[1].index("Other")
    assert lines[-1] == "3 hold, 1 does not hold."
    details = summary(sections, verbose=True).splitlines()
    assert details[: len(lines)] == lines
    first = details.index("(a) Title: does not hold")
    assert [line.split()[0] for line in details[first + 1 : first + 7]] == [
        "One.",
        "Judged:",
        "+",
        "-",
        "Two.",
        "+",
    ]


def test_no_line_of_the_summary_is_wider_than_a_terminal() -> None:
    long = " ".join(["word"] * 60)
    told = {"threshold": "within 10 % of -1", "target": -1.0}
    verdicts = [
        Verdict(long, long, "holds", Estimate(-0.923, -0.946, -0.901), **told),
        Verdict("c", long, "cannot be told", role="apart"),
    ]
    section = Section("a", long, long, verdicts, finding=long, deeper="fegsam reproduce")
    lines = summary([section], verbose=True).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("(a) holds within 10 %  word")


def test_an_equality_holds_within_the_percentage_that_covers_its_whole_interval() -> None:
    def words(value: float, low: float, high: float, target: float | None) -> str:
        return Verdict("c", "s.", "holds", Estimate(value, low, high), target=target).words

    assert words(-0.963, -0.976, -0.95, -1.0) == "holds within 5 %"
    assert words(1.9, 1.9, 1.9, 2.0) == "holds within 5 %"
    assert words(2.01, 2.01, 2.01, 2.0) == "holds within 1 %"
    assert words(1.0, 1.0, 1.0 + 1e-9, 1.0) == "holds", "equal up to rounding"
    assert words(0.963, 0.95, 0.976, None) == "holds", "no equality"
    assert Verdict("c", "s.", "does not hold", Estimate(2, 2, 2), target=1.0).words == (
        "does not hold"
    )


def test_a_claim_holds_within_the_percentage_of_its_main_checks_alone() -> None:
    def checked(low: float, role: str) -> Verdict:
        return Verdict("c", "s.", "holds", Estimate(low, low, 1.0), target=1.0, role=role)

    section = Section("a", "t", "s.", (checked(0.96, "main"), checked(0.8, "support")))
    assert section.words == "holds within 4 %"


def test_a_question_apart_has_its_own_line_and_does_not_count_for_the_claim() -> None:
    apart = Verdict("c", "The condition is met.", "does not hold", role="apart")
    section = Section("d", "Schedule", "s.", (Verdict("c", "s.", "holds"), apart))
    assert section.outcome == "holds"
    lines = summary([section]).splitlines()
    assert lines[0].split() == ["(d)", "holds", "Schedule"]
    assert lines[1].split(maxsplit=3) == ["does", "not", "hold", "The condition is met."]
    assert lines[2] == "1 holds, 1 does not hold."


def test_what_cannot_be_told_names_the_command_that_can() -> None:
    section = Section(
        "c", "t", "s.", (Verdict("c", "s.", "cannot be told"),), deeper="fegsam reproduce --only c"
    )
    assert summary([section]).splitlines()[1].strip() == "to tell: fegsam reproduce --only c"


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
    assert "    =   c" in summary([section], verbose=True).splitlines()


def test_identities_alone_tell_nothing_and_a_broken_one_is_a_fault() -> None:
    assert Section("a", "t", "s.", (identity("holds"),)).outcome == "cannot be told"
    broken = Section("a", "t", "s.", (Verdict("c", "s.", "holds"), identity("does not hold")))
    assert broken.outcome == "does not hold"
    assert "1 identity, true by algebra, of which 1 failed, a fault of the code." in summary(
        [broken]
    ).replace("\n", " ")


def test_exact_numbers_are_shown_without_an_interval() -> None:
    exact = Verdict("c", "s.", "holds", Estimate(2, 2, 2), "1 to 3", kind="exact")
    assert value_text(exact) == "2"
    assert value_text(Verdict("c", "s.", "holds", Estimate(1, 1, 1))) == "1 in every run"
    assert value_text(Verdict("c", "s.", "holds", Estimate(1.0, 0.9995, 1.0005))) == (
        "1 [0.9995, 1.0005]"
    )
    with pytest.raises(ProblemError, match="'guessed'"):
        Verdict("c", "s.", "holds", kind="guessed")
    with pytest.raises(ProblemError, match="'extra'"):
        Verdict("c", "s.", "holds", role="extra")


def test_one_note_may_be_a_plain_string() -> None:
    assert Section("a", "t", "s.", notes="one").notes == ("one",)
