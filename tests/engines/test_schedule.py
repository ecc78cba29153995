"""The calls of one seed's run: every record point is handed over once, in order and within the
limits, and an output or final average does not depend on what else is recorded."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fegsam.engines.schedule import CallLimits, CallSchedule, between, most_in_a_round


class Asked(NamedTuple):
    """What a schedule is made from."""

    record: tuple[int, ...]
    output: int
    start: int
    end: int
    period: int
    logged: bool
    steps: int
    rows: int
    inside: int
    """record points inside one round"""

    def schedule(self) -> CallSchedule:
        limits = CallLimits(self.steps, self.rows, self.inside)
        record = np.array(self.record, np.int64)
        return CallSchedule(
            record, self.output, self.start, self.end, self.period, self.logged, limits
        )

    @property
    def special(self) -> set[int]:
        """The output time and the end, where they lie ahead."""
        return {time for time in (self.output, self.end) if self.start < time <= self.end}

    def round_of(self, time: int) -> int | None:
        """The round that `time` lies inside; none for a synchronisation."""
        return time // self.period if time % self.period else None


class Call(NamedTuple):
    time: int
    stop: int
    points: list[int]
    recorded: bool
    takes: list[int]
    """the special times that are taken from this call"""


def calls(asked: Asked) -> list[Call]:
    schedule = asked.schedule()
    return [
        Call(
            int(call.time),
            int(call.stop),
            [int(time) for time in call.points],
            call.recorded,
            [t for t in asked.special if t in call.points and schedule.takes(call, t)],
        )
        for call in schedule
    ]


@st.composite
def schedules(draw) -> Asked:
    period = draw(st.integers(1, 12))
    start = period * draw(st.integers(0, 3))
    end = start + draw(st.integers(0, 60))
    record = draw(st.sets(st.integers(0, end), max_size=30))
    return Asked(
        record=tuple(sorted(record)),
        output=draw(st.integers(0, max(end - 1, 0))),
        start=start,
        end=end,
        period=period,
        logged=draw(st.booleans()),
        steps=draw(st.integers(1, 80)),
        rows=draw(st.integers(1, 20)),
        inside=draw(st.integers(1, 8)),
    )


MANY = settings(max_examples=200, deadline=None)


@MANY
@given(schedules())
def test_every_record_point_ahead_is_handed_over_once_and_in_order(asked) -> None:
    handed_over = [t for call in calls(asked) if call.recorded for t in call.points]
    assert handed_over == sorted(set(handed_over))
    expected = {t for t in asked.record if asked.start < t <= asked.end}
    assert expected <= set(handed_over) <= expected | asked.special


@MANY
@given(schedules())
def test_calls_begin_at_a_synchronisation_and_cover_the_run(asked) -> None:
    reached = asked.start
    for call in calls(asked):
        assert call.time == reached
        assert call.time % asked.period == 0
        assert call.time < call.stop <= asked.end
        assert all(call.time < t <= call.stop for t in call.points)
        # A call that stops inside a round is followed by one that runs this round again, unless it
        # was the last.
        if call.recorded and (call.stop % asked.period == 0 or call.stop == asked.end):
            reached = call.stop
    assert reached == asked.end


@MANY
@given(schedules())
def test_no_call_is_longer_than_its_limits(asked) -> None:
    most_steps = max(asked.steps // asked.period, 1) * asked.period
    for call in calls(asked):
        assert call.stop - call.time <= most_steps
        assert len(call.points) <= asked.rows
        rounds = Counter(map(asked.round_of, call.points))
        assert max((rounds[r] for r in rounds if r is not None), default=0) <= asked.inside


@MANY
@given(schedules())
def test_output_and_end_are_taken_once(asked) -> None:
    assert Counter(t for call in calls(asked) for t in call.takes) == Counter(asked.special)


@MANY
@given(schedules())
def test_where_averages_are_logged_an_output_shares_its_round_with_no_other_point(asked) -> None:
    """Each average inside a round is rounded according to the points before it, so that another
    point would change its last bit."""
    for call in calls(asked._replace(logged=True)):
        for taken in call.takes:
            here = asked.round_of(taken)
            assert here is None or [t for t in call.points if asked.round_of(t) == here] == [taken]


@MANY
@given(schedules())
def test_where_averages_are_logged_an_output_changes_no_record(asked) -> None:
    """In a round with record points, they alone are handed over."""
    asked = asked._replace(logged=True)
    for call in calls(asked):
        for t in call.points if call.recorded else ():
            inside = asked.round_of(t)
            others = [other for other in asked.record if asked.round_of(other) == inside]
            assert inside is None or t in asked.record or not others


@MANY
@given(schedules())
def test_where_averages_are_not_logged_no_round_is_run_for_an_output_alone(asked) -> None:
    assert all(call.recorded for call in calls(asked._replace(logged=False)))


def test_a_run_without_steps_has_no_calls() -> None:
    assert calls(Asked((0, 4), 0, 4, 4, 4, True, 100, 10, 10)) == []


def test_rounds_go_in_one_call_up_to_the_steps_that_python_waits_for() -> None:
    asked = Asked((2, 8, 9), 8, 0, 10, 2, False, steps=6, rows=10, inside=10)
    assert calls(asked) == [
        Call(0, 6, [2], True, []),
        Call(6, 10, [8, 9, 10], True, sorted(asked.special)),
    ]


def test_a_round_with_more_points_than_fit_is_run_again_for_the_rest() -> None:
    asked = Asked(tuple(range(8)), 0, 0, 8, 8, False, steps=8, rows=10, inside=3)
    assert [(call.time, call.stop, call.points) for call in calls(asked)] == [
        (0, 3, [1, 2, 3]),
        (0, 6, [4, 5, 6]),
        (0, 8, [7, 8]),
    ]


def test_an_output_among_other_points_of_its_round_gets_a_call_of_its_own() -> None:
    asked = Asked((5, 6, 7, 8), 6, 0, 8, 4, True, steps=100, rows=100, inside=100)
    assert calls(asked) == [
        Call(0, 4, [], True, []),
        Call(4, 6, [6], False, [6]),
        Call(4, 8, [5, 6, 7, 8], True, [8]),
    ]


@pytest.mark.parametrize("period", [1, 3, 10])
def test_times_are_counted_as_a_loop_counts_them(period) -> None:
    times = np.array([0, 1, 2, 3, 4, 6, 7, 10, 11, 20, 21, 29, 30])
    for after in range(32):
        for until in range(after, 32):
            expected = [t for t in times if after < t <= until]
            assert between(times, after, until).tolist() == expected
    rounds = Counter(t // period for t in times.tolist() if t % period)
    assert most_in_a_round(times, period) == max(rounds.values(), default=0)
    assert most_in_a_round(times[:0], period) == 0
