"""Figures as data: what is refused, what is downloaded, what an axis can show."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.report import FigureData, Series
from fegsam.report.figure_data import drawable, few_places, shown_range
from fegsam.report.looks import COLOURS, looks
from helpers.synthetic_sections import error_curves, exact_lines


def figure(*series: Series, **changes) -> FigureData:
    return FigureData(
        **{
            "key": "k",
            "title": "t",
            "caption": "c.",
            "x_label": "x",
            "y_label": "y",
            "series": series,
        }
        | changes
    )


def test_the_file_holds_every_number_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=5), rng.normal(size=5)
    rows = list(
        csv.DictReader(
            io.StringIO(figure(Series('a, "b"', x, y, y - 1, y + 1), Series("c", [1], [2])).csv())
        )
    )
    assert {row["series"] for row in rows} == {'a, "b"', "c"}
    assert [float(row["y"]) for row in rows[:5]] == y.tolist()
    assert [float(row["low"]) for row in rows[:5]] == (y - 1).tolist()
    assert rows[5]["low"] == ""


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for() -> None:
    part = drawable(
        figure(s := Series("a", [0, 1, 2, 3], [1.0, 0.0, 2.0, np.nan], [0.5] * 3 + [0], [2.0] * 4)),
        s,
    )
    assert part.x.tolist() == [2.0]
    assert part.y.tolist() == [2.0]


def test_an_interval_down_to_zero_is_cut_off_below_sight() -> None:
    shown = figure(s := Series("a", [1, 2], [1.0, 4.0], [-3.0, 3.0], [5.0, 5.0]))
    assert drawable(shown, s).low.min() > 0
    assert shown_range(shown)[0] > 0.4


def test_points_on_few_places_bear_their_own_numbers_unless_they_touch() -> None:
    agents = [1, 2, 4, 8, 16, 32, 64]
    assert few_places(figure(Series("a", agents, agents))) == agents
    assert few_places(figure(Series("a", [1, 100, 101, 10000], [1] * 4))) == [1, 100, 10000]
    assert few_places(figure(Series("a", agents, agents), x_scale="linear")) == []
    sizes = [0.0003125 * 2**k for k in range(6)]
    assert few_places(figure(Series("a", sizes, sizes))) == []
    beyond = Series("b", [1, 1e6], [1, 2], style="exact")
    assert few_places(figure(Series("a", agents, agents), beyond)) == []


def test_samples_and_the_exact_curve_through_them_share_a_colour() -> None:
    curves = error_curves(np.random.default_rng(0))
    assert list(looks(curves)) == ["N = 1", "N = 4", "N = 16", "N = 64", "bound, N = 64"]


def test_groups_differ_in_colour_and_in_marker_or_dash() -> None:
    many = looks(figure(*(Series(f"s{k}", [1], [1]) for k in range(14))))
    assert len({look.colour for look in list(many.values())[: len(COLOURS)]}) == len(COLOURS)
    assert len({(look.colour, look.marker) for look in many.values()}) == 14
    assert len({look.dash for look in looks(exact_lines()).values()}) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Series("a", [1, 2], [1]), "one y, low and high for each x"),
        (lambda: Series("a", [], []), "lengths"),
        (lambda: Series("a", [1], [1], low=[0]), "both low and high"),
        (lambda: Series("a", [1], [1], style="dotted"), "'dotted'"),
        (lambda: Series("a", [[1]], [1]), "flat"),
        (lambda: figure(Series("a", [1], [1]), key="../up"), "'../up'"),
        (lambda: figure(Series("a", [1], [1]), x_scale="cubic"), "'cubic'"),
        (lambda: figure(), "no series"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_sentence(make, words) -> None:
    with pytest.raises(ProblemError) as caught:
        make()
    assert words in str(caught.value)
