"""Figures for print: every format, one column wide, the same bytes each time, nothing cut off."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from fegsam.report import FigureData, Series, save
from fegsam.report.figures import draw
from helpers.synthetic_sections import error_curves, exact_lines, plateaus

image = pytest.importorskip("matplotlib.image")


def test_every_format_is_written_and_is_what_it_says(tmp_path) -> None:
    paths = save(exact_lines(), tmp_path / "new")
    assert [path.name for path in paths] == [
        f"floor_by_period.{ending}" for ending in ("svg", "pdf", "png")
    ]
    svg, pdf, _ = (path.read_bytes() for path in paths)
    assert b"The floor grows" in svg
    assert pdf.startswith(b"%PDF-")
    assert b"/Type3" not in pdf.replace(b" ", b""), "journals refuse Type 3 fonts"
    pixels = image.imread(paths[2])
    assert pixels.shape[1] == pytest.approx(3.4 * 300, abs=2)


def test_the_same_figure_is_the_same_bytes(tmp_path) -> None:
    for once, again in zip(
        save(exact_lines(), tmp_path / "a"), save(exact_lines(), tmp_path / "b"), strict=True
    ):
        assert once.read_bytes() == again.read_bytes(), once.suffix


def long_names() -> FigureData:
    names = (
        "Off-policy tabular TD, Random walk, environments differ, small-step law",
        "Off-policy linear TD, opposite policies",
    )
    series = tuple(
        Series(name, [2, 8, 32], [place, 2 * place, 3 * place])
        for place, name in enumerate(names, 1)
    )
    return FigureData(
        "long",
        "Long names",
        "A caption.",
        "local steps",
        "how many times sooner than one agent alone",
        series=series,
    )


@pytest.mark.parametrize(
    "data",
    [
        error_curves(np.random.default_rng(0)),
        plateaus(np.random.default_rng(0))[0],
        exact_lines(),
        long_names(),
    ],
)
def test_nothing_is_cut_off_and_the_legend_is_outside_the_data(data) -> None:
    page = draw(data)
    page.draw_without_rendering()
    (axes,), (legend,) = page.axes, page.legends
    boxes = [axes.get_tightbbox(), legend.get_window_extent()]
    for box in boxes:
        assert box.x0 >= -1
        assert box.x1 <= page.bbox.width + 1
        assert box.y0 >= -1
        assert box.y1 <= page.bbox.height + 1
    assert boxes[1].y1 <= boxes[0].y0 + 1
    assert axes.get_window_extent().height > 0.4 * page.bbox.height


def test_the_axes_say_what_and_on_which_scale() -> None:
    (axes,) = draw(error_curves(np.random.default_rng(0))).axes
    assert axes.get_xlabel() == "steps of each agent"
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


def test_a_single_curve_needs_no_legend_and_empty_ones_do_no_harm(tmp_path) -> None:
    alone = FigureData(
        "k", "t", "c.", "x", "y", series=(Series("a", [1, 2], [1, 2], style="exact"),)
    )
    assert not draw(alone).legends
    nothing = FigureData(
        "k",
        "t",
        "c.",
        "x",
        "y",
        series=(Series("a", [1, 2], [np.nan, 0.0]), Series("b", [1], [-1.0])),
    )
    assert save(nothing, tmp_path, formats=("png",))[0].stat().st_size > 0


def test_letters_beyond_ascii_are_drawn(tmp_path, recwarn) -> None:
    data = FigureData(
        "k", "t", "c.", "ε, √N, ‖θ̄ - θ*‖²", "α·β ≤ γ", series=(Series("φ₂ × η", [1, 2], [1, 2]),)
    )
    save(data, tmp_path, formats=("png",))
    assert not [w for w in recwarn if re.search("Glyph", str(w.message))]


def test_laws_of_several_groups_have_one_entry_and_tick_labels_do_not_touch() -> None:
    sizes = [0.0003125 * 2**k for k in range(6)]
    series = [
        Series(f"{name}{words}", sizes, [factor * size for size in sizes], style=style, group=name)
        for factor, name in ((1, "Garnet"), (3, "Walk"))
        for words, style in (("", "sampled"), (", small-step law", "reference"))
    ]
    drawn = draw(
        FigureData(
            "laws", "t", "c", "step size", "long-run squared error E‖θ − θ*‖²", series=series
        )
    )
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "Garnet",
        "Walk",
        "small-step law",
    ]
    assert {line.get_color() for line in axes.lines if line.get_linestyle() == "--"} == {
        line.get_color() for line in axes.lines if line.get_marker() != "None"
    }
    assert axes.get_ylabel().splitlines()[1].startswith("E‖")
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
