"""A reproduction that is killed goes on where it was, and ends with the same page."""

from __future__ import annotations

import importlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import Estimate
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.report.drawing import save_figures
from fegsam.report.stored import parse_section, section_json
from fegsam.reproduction import reproduce
from fegsam.reproduction.kept_claims import KeptClaims
from fegsam.reproduction.thresholds import ClaimSpec, claim_spec

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")

CHEAP = ("inequality", "problem_size")
TINY = """
import importlib, sys
module = importlib.import_module("fegsam.reproduction.reproduce")
module.CLAIMS = {claims!r}
module.reproduce(sys.argv[1], quick=True)
"""


def odd_section() -> Section:
    verdict = Verdict(
        "here",
        "A <claim>.",
        "cannot be told",
        Estimate(0.1 + 0.2, -np.inf, np.nan),
        target=-1.0,
        role="support",
    )
    line = Series("sampled", [1, 2], [1 / 3, 1e-300], [0.0, 0.0], [1.0, np.inf], group="g")
    figure = FigureData("key", "Title", "Caption.", "x", "y", series=(line,))
    return Section("a", "Title", "Sentence.", (verdict,), (figure,), ("Note.",), errata=("7a",))


def test_a_section_survives_storage_number_for_number() -> None:
    section = odd_section()
    text = section_json(section)
    again = parse_section(text)
    assert section_json(again) == text
    (before,), (after,) = section.figures[0].series, again.figures[0].series
    np.testing.assert_array_equal(before.y, after.y)
    np.testing.assert_array_equal(before.high, after.high)
    assert again.verdicts[0].estimate.value == 0.1 + 0.2
    assert again.verdicts[0].role == "support"


def test_a_kept_claim_is_read_only_under_its_own_settings_and_undamaged(tmp_path) -> None:
    spec, section = claim_spec("inequality", quick=True), odd_section()
    kept = KeptClaims(tmp_path, "cpu")
    assert kept.read("inequality", spec) is None
    kept.write("inequality", spec, section)
    assert section_json(kept.read("inequality", spec)) == section_json(section)
    for other in (spec.resized(discount=0.4), claim_spec("inequality", quick=False)):
        assert kept.read("inequality", other) is None
    assert kept.read("privacy", spec) is None
    assert KeptClaims(tmp_path, "reference").read("inequality", spec) is None
    (file,) = (tmp_path / "claims").iterdir()
    file.write_bytes(file.read_bytes().replace(b"Sentence", b"sentence"))
    assert kept.read("inequality", spec) is None


def test_a_figure_is_drawn_again_only_if_it_changed_or_a_file_is_gone(tmp_path) -> None:
    (figure,) = odd_section().figures
    assert [save_figures([figure], tmp_path) for _ in range(2)] == [1, 0]
    (tmp_path / "key.pdf").unlink()
    assert save_figures([figure], tmp_path) == 1
    other = FigureData("key", "Title", "Caption.", "x", "another y", series=figure.series)
    assert save_figures([other], tmp_path) == 1


def interrupted(*_: object) -> Section:
    raise KeyboardInterrupt


def examined(spec: ClaimSpec, engine: object) -> Section:
    """A section of the claim's letter, without any work."""
    figure = replace(odd_section().figures[0], key=f"figure-{spec.letter}")
    check = next(iter(spec.checks))
    names = dict.fromkeys(("quantity", "parameter", "order"), "x")
    verdicts = (spec.verdict(check, "here", Estimate(0.0625, 0.0, 0.09), **names),)
    return Section(spec.letter, spec.title, "Sentence.", verdicts, (figure,))


def test_an_interrupted_reproduction_keeps_what_is_finished_and_ends_with_the_same_page(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module("fegsam.reproduction.reproduce")
    monkeypatch.setattr(module, "CLAIMS", CHEAP)
    claims = [importlib.import_module(f"fegsam.reproduction.{name}") for name in CHEAP]
    for claim in claims:
        monkeypatch.setattr(claim, "examine", examined)
    page = reproduce(tmp_path / "first-folder", quick=True)[1].read_bytes()
    folder = tmp_path / "other-folder"
    for count, (place, name) in enumerate(
        ((claims[0], "examine"), (claims[1], "examine"), (module, "save_figures"))
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, interrupted)
            with pytest.raises(KeyboardInterrupt, match=f"{count} of 2 claims are kept"):
                reproduce(folder, quick=True)
    for claim in claims:
        monkeypatch.setattr(claim, "examine", interrupted)
    capsys.readouterr()
    again = reproduce(folder, quick=True)[1].read_bytes()
    assert capsys.readouterr().err.count("(kept)") == 2
    assert again.replace(b"other-folder", b"first-folder") == page
    with pytest.raises(KeyboardInterrupt, match="0 of 2"):
        reproduce(folder, quick=True, engine="reference")  # other settings: nothing is kept


def test_claims_are_chosen_by_their_letters(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemError, match="only is 'ax!'"):
        reproduce(tmp_path / "new", quick=True, only="ax!")
    assert not (tmp_path / "new").exists()
    claim = importlib.import_module("fegsam.reproduction.inequality")
    monkeypatch.setattr(claim, "examine", examined)
    sections, page = reproduce(tmp_path, quick=True, only="m", progress=False)
    assert [section.claim for section in sections] == ["m"]
    assert sections[0].command == "fegsam reproduce --only m -o claim-m --quick"
    assert "it is at least 16 times the error" in page.read_text(encoding="utf-8")


def killed_after(seconds: float, folder: pathlib.Path, claims: tuple[str, ...]) -> bool:
    """Start a reproduction and kill it after a while; whether it was still at work."""
    code = TINY.format(claims=claims)
    run = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return True
    return False


@pytest.mark.slow
def test_killed_at_ten_moments_it_ends_with_the_same_page(tmp_path) -> None:
    claims = ("privacy", "consensus", "inequality", "problem_size")
    begin = time.monotonic()
    assert not killed_after(600, tmp_path / "first-folder", claims)
    took = time.monotonic() - begin
    killed = sum(
        killed_after(took * (0.2 + 0.08 * moment), tmp_path / "other-folder", claims)
        for moment in range(10)
    )
    assert killed >= 3
    assert not killed_after(600, tmp_path / "other-folder", claims)
    pages = [
        (tmp_path / name / "report.html").read_bytes() for name in ("first-folder", "other-folder")
    ]
    assert pages[1].replace(b"other-folder", b"first-folder") == pages[0].replace(
        b"other-folder", b"first-folder"
    )
    begin = time.monotonic()
    assert not killed_after(600, tmp_path / "other-folder", claims)
    assert time.monotonic() - begin < max(0.5 * took, 10)
