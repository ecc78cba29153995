"""The laws of docs/derivations.md, against exact values and an independent enumeration."""

from __future__ import annotations

import importlib.util
import itertools
import pathlib
import re
import sys
from types import ModuleType

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_derivations", DOCS / "make_derivations.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_derivations"] = module
    spec.loader.exec_module(module)
    return module


def test_variates_of_the_last_round_have_their_rate(script) -> None:
    for panel in (script.rates(), script.spectra()):
        assert all(curve.deviation < 1e-6 for curve in panel.curves)
    assert [min(curve.exact) for curve in script.spectra().curves] == pytest.approx(
        [0.60, 0.78, 0.88], abs=5e-3
    )


def test_one_visitor_has_its_moments(script) -> None:
    """All targets of a round by enumeration: plus or minus one, three visits."""
    step_size, visits, weight = 0.3, 3, 0.4
    after = []
    for targets in itertools.product((-1.0, 1.0), repeat=visits):
        own = 0.0
        for target in targets:
            own += step_size * (target - own)
        after.append(weight * own)
    kept, variance = script.one_visitor(step_size, visits, weight)
    start = 1 - weight + weight * (1 - step_size) ** visits
    assert kept == pytest.approx(start, rel=1e-14)
    noise = sum(value**2 for value in after) / len(after)
    assert variance == pytest.approx(noise / (1 - start**2), rel=1e-12)


def test_average_by_visits_gains_from_one_time_constant_on(script) -> None:
    for curve in script.visit_gains().curves:
        gain = dict(zip(curve.at, curve.exact, strict=True))
        assert 4.3 < gain[10.0] < 4.5
        assert 1.05 < gain[1.0] < 1.07
        assert gain[0.3] < 1.01


@pytest.mark.slow
def test_all_laws_hold_and_the_figure_is_the_one_that_the_script_draws(script, tmp_path) -> None:
    panels = [make() for make in script.PANELS]
    assert max(curve.deviation for panel in panels for curve in panel.curves) < 0.006
    visits = {curve.name: curve.exact for curve in panels[4].curves}
    for apart in visits.values():
        assert apart[-2] / apart[-1] == pytest.approx(2, rel=0.05)
    stored = script.PATH.read_text(encoding="utf-8")
    script.PATH = tmp_path / "drawn.svg"
    script.draw(panels)
    drawn = script.PATH.read_text(encoding="utf-8")
    numbers = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
    now, then = ([float(value) for value in numbers.findall(text)] for text in (drawn, stored))
    assert now == pytest.approx(then, abs=0.2), "to a fifth of a pixel"
