"""What a notebook shows: a picture in SVG that parses, and the key numbers beside it."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import fegsam as fg
from fegsam.experiments.estimates import curve_estimate
from fegsam.pictures import bars, blocks, curve, matrix

SPACE = "{http://www.w3.org/2000/svg}"


def federation(**changes) -> fg.Federation:
    mdp = fg.examples.garnet(30, 4, 3, discount=0.9, seed=0)
    return fg.Federation(mdp, fg.policies.random(30, 4, count=6, seed=1), num_agents=12, **changes)


def history(**changes) -> fg.History:
    settings = {"step_size": 0.1, "sync_period": 10, "num_steps": 200, "seeds": range(3)}
    return fg.run(federation(), fg.QLearning(), **(settings | changes))


def page(shown: object) -> ElementTree.Element:
    """The HTML of an object, which is XML too."""
    return ElementTree.fromstring(f"<html>{shown._repr_html_()}</html>")


def numbers(element: ElementTree.Element) -> dict[str, str]:
    rows = [["".join(cell.itertext()) for cell in row.iter("td")] for row in element.iter("tr")]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def test_an_mdp_shows_its_transitions_and_its_size() -> None:
    shown = page(federation().mdps[0])
    assert numbers(shown)["states"] == "30"
    assert len(list(shown.iter(f"{SPACE}rect"))) > 30


def test_a_federation_shows_a_row_of_its_policies_for_each_kind() -> None:
    shown = page(federation())
    heights = {rect.get("y") for rect in shown.iter(f"{SPACE}rect") if rect.get("y")}
    assert numbers(shown)["agents"] == "12"
    assert len(heights) == 6
    page(fg.Federation(fg.examples.two_state(), num_agents=1))


def test_a_history_shows_its_curve_and_what_became_of_the_error() -> None:
    run = history()
    shown = page(run)
    error = run.data.squared_error.mean("seed")
    assert f"{float(error[-1]):.3g} at the end" in numbers(shown)["squared error"]
    (line,) = shown.iter(f"{SPACE}polyline")
    assert len(line.get("points").split()) == len(run.data.time)


@pytest.mark.filterwarnings("ignore::fegsam.errors.DivergenceWarning")
def test_a_history_that_diverged_is_shown_and_said_to_be_so() -> None:
    run = history(step_size=50.0, num_steps=2000)
    assert "(3 diverged)" in numbers(page(run))["steps, seeds"]
    assert "nan" in repr(run)


def band(axes) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of the band that was painted last, in the order of time."""
    (path,) = axes.collections[-1].get_paths()
    corners = path.vertices[: (len(path.vertices) - 3) // 2 * 2 + 3]
    times = np.unique(corners[:, 0])
    edges = [
        np.array([pick(corners[corners[:, 0] == time, 1]) for time in times])
        for pick in (np.min, np.max)
    ]
    return edges[0], edges[1]


@pytest.mark.parametrize("error", ["squared_error", "squared_error_2"])
def test_the_band_of_few_seeds_is_the_interval_of_the_estimates_and_never_reaches_zero(
    error,
) -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    line = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    walk = fg.examples.random_walk(9, discount=0.8)
    walkers = fg.Federation(
        walk, num_agents=4, target_policy=fg.policies.uniform(9, 2), features=line
    )
    run = fg.run(
        walkers, fg.OnPolicyTD(), step_size=0.1, sync_period=10, num_steps=4000, seeds=range(4)
    )
    run.plot(axes, error=error)
    low, high = band(axes)
    expected = curve_estimate(run.data[error], positive=True)
    assert len(low) == len(run.data.time) > 100
    assert (low > 0).all()
    assert (curve_estimate(run.data[error]).low < 0).mean() > 0.1, (
        "where an interval to both sides alike does reach it"
    )
    np.testing.assert_allclose(low, expected.low, rtol=1e-12)
    np.testing.assert_allclose(high, expected.high, rtol=1e-12)


def test_the_card_of_a_history_shows_the_same_band_as_its_plot() -> None:
    run = history(seeds=range(4))
    found = curve_estimate(run.data.squared_error, positive=True)
    (drawn,) = page(run).iter(f"{SPACE}polygon")
    expected = curve(run.data.time.values, found.value, found.low, found.high)
    assert drawn.get("points") in expected
    assert "in its 95 % interval" in run._repr_html_()


def test_one_seed_has_a_curve_and_no_band() -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    run = history(seeds=[3])
    run.plot(axes)
    assert len(axes.lines) == 1
    assert not axes.collections
    assert "one seed" in run._repr_html_()


def test_zeros_and_what_came_after_divergence_are_left_out_of_the_band() -> None:
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    run = history(seeds=range(4))
    data = run.data.copy(deep=True)
    errors = data.squared_error.values
    errors[:, 0], errors[1:, 1], errors[2, -5:] = 0.0, 0.0, np.nan
    lost = dataclasses.replace(run, data=data)
    lost.plot(axes)
    low, high = band(axes)
    assert len(low) == len(data.time) - 5, "up to where the first seed is lost"
    assert low[0] == high[0] == 0.0
    assert (low[1:] > 0).all()
    ElementTree.fromstring(lost._repr_html_())


def test_a_bound_shows_its_terms_beside_the_error_at_the_start() -> None:
    evaluated = federation(target_policy=fg.policies.uniform(30, 4))
    bound = fg.theory.error_bound(
        evaluated, fg.OffPolicyTabularTD(), step_size=0.01, sync_period=10, num_steps=1000
    )
    shown = page(bound)
    assert len(list(shown.iter(f"{SPACE}rect"))) == sum(value > 0 for value in bound.terms.values())
    assert len(list(shown.iter(f"{SPACE}line"))) == 1
    assert "FAIL" in numbers(shown)["conditions"]


def test_pictures_of_what_cannot_be_drawn_are_empty_but_there() -> None:
    for picture in (
        curve([0, 1], [np.nan, np.nan]),
        bars(["a"], [np.inf]),
        bars([], []),
        matrix(np.zeros((2, 2)), "none"),
    ):
        ElementTree.fromstring(picture)
    assert "nothing to draw" in curve([0], [0.0])
    assert np.bincount(blocks(1000)).max() <= 42


def test_a_plot_returns_axes_that_another_history_may_share() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    run = history()
    assert run.plot(axes) is axes
    run.plot(axes, error="sync_error", label="apart")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["12 agents", "apart"]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), run.data.squared_error.mean("seed"))
    with pytest.raises(fg.ProblemError, match="error is 'sqared_error'"):
        run.plot(axes, error="sqared_error")
