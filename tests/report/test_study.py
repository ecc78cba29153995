"""The page of a study: what it says of plateaus is what the runs did."""

from __future__ import annotations

import csv
import html
import io
import pathlib
import re
from urllib.parse import unquote

import pytest

from fegsam.cli import main

pytest.importorskip("plotly")
pytest.importorskip("pydantic")

NAN = float("nan")
QUICKSTART = pathlib.Path(__file__).parents[2] / "docs" / "quickstart.md"
TD = """
[study]
name = "first"
seeds = 8
[problem]
generator = "random_walk"
states = 9
discount = 0.8
[problem.target]
kind = "uniform"
[problem.features]
kind = "random"
dim = 2
seed = 0
[algorithm]
name = "on_policy_td"
[run]
num_steps = 4000
[grid]
num_agents = [4, 64]
sync_period = 10
step_size = 0.1
[[figures]]
kind = "error_curves"
[[figures]]
kind = "speed_up"
[[figures]]
kind = "floor"
by = "num_agents"
caption = "As asked for."
"""


def report(study: str, folder: pathlib.Path) -> tuple[list[str], list[list[dict[str, str]]]]:
    """Captions and data of the figures on the page of a study."""
    (folder / "study.toml").write_text(study)
    assert (
        main(["run", str(folder / "study.toml"), "-o", str(folder / "out"), "--workers", "1"]) == 0
    )
    assert main(["report", str(folder / "out")]) == 0
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    captions = [
        html.unescape(text) for text in re.findall(r'role="img" aria-label="([^"]*)"></div>', page)
    ]
    tables = [unquote(text) for text in re.findall(r'href="data:text/csv[^,]*,([^"]*)"', page)]
    return captions, [list(csv.DictReader(io.StringIO(text))) for text in tables]


def measured(table: list[dict[str, str]]) -> dict[int, dict[str, float]]:
    return {
        int(row["x"]): {key: float(row[key]) for key in ("y", "low", "high")}
        for row in table
        if row["style"] == "sampled"
    }


def quickstart() -> str:
    return re.search(r"```toml\n(.*?)```", QUICKSTART.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_study_of_the_quickstart_shows_a_linear_speed_up_between_floors(tmp_path) -> None:
    captions, tables = report(quickstart(), tmp_path)
    assert "to a floor" in captions[0]
    assert "the error's floor" in captions[1]
    assert not any("plateau" in caption for caption in captions)
    ratios = measured(tables[1])
    assert list(ratios) == [1, 4, 16]
    for agents in (4, 16):
        assert ratios[agents]["low"] < agents < ratios[agents]["high"]
        assert ratios[agents]["y"] == pytest.approx(agents, rel=0.15)


def test_the_page_of_a_short_study_says_that_no_plateau_was_reached_and_speaks_of_no_floor(
    tmp_path,
) -> None:
    captions, tables = report(quickstart().replace("40_000", "2000"), tmp_path)
    for caption in captions:
        assert "No plateau was reached by T = 2000" in caption
        assert "floor" not in caption
    assert "; the error at the last time is shown." in captions[1]
    last = {row["series"]: float(row["y"]) for row in tables[0] if row["x"] == "2000"}
    for agents, found in measured(tables[1]).items():
        assert found["y"] == pytest.approx(last["N = 1"] / last[f"N = {agents}"])


def test_where_the_exact_error_is_known_it_decides_and_is_compared_at_the_same_time(
    tmp_path,
) -> None:
    for steps, reached in ((4000, True), (100, False)):
        folder = tmp_path / str(steps)
        folder.mkdir()
        captions, tables = report(TD.replace("4000", str(steps)), folder)
        assert ["plateau" in caption for caption in captions] == [not reached] * 3
        assert captions[2].startswith("As asked for.")
        exact = {row["x"]: float(row["y"]) for row in tables[2] if row["style"] == "exact"}
        for agents, found in measured(tables[2]).items():
            assert found["y"] == pytest.approx(exact[str(agents)], rel=0.6)
            assert found["low"] > 0
        ends = {
            row["series"]: float(row["y"])
            for row in tables[0]
            if row["x"] == str(steps) and row["style"] == "exact"
        }
        same = [
            exact[str(agents)] == pytest.approx(ends[f"N = {agents}, exact"], rel=1e-12)
            for agents in (4, 64)
        ]
        assert same == [not reached] * 2


def test_curves_are_named_in_words_and_other_axes_are_panels(tmp_path) -> None:
    study = TD.replace("sync_period = 10\n", "sync_period = [1, 10]\n").replace("4000", "200")
    curves = '[[figures]]\nkind = "error_curves"\n'
    study = study.partition("[[figures]]")[0] + f'{curves}by = "num_agents"\nbound = true\n'
    captions, tables = report(study, tmp_path)
    assert [caption.partition(": ")[0] for caption in captions] == ["K = 1", "K = 10"]
    assert {row["series"] for row in tables[0]} == {
        f"N = {agents}{style}" for agents in (4, 64) for style in ("", ", exact")
    }, "a vacuous bound is not drawn"
    for caption in captions:
        assert "The theorem's bound is vacuous with N = 4 and N = 64" in caption
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert '<pre tabindex="0"><code>[study]\nname = ' in page
    assert "8, from 0 to 7" in page
    assert "(1) first" not in page


def test_an_accuracy_is_read_by_the_speed_up_and_refused_elsewhere(tmp_path, capsys) -> None:
    begin = TD.partition("[[figures]]")[0]
    captions, tables = report(f'{begin}[[figures]]\nkind = "speed_up"\naccuracy = 3e-4\n', tmp_path)
    assert captions[0].startswith("How many times sooner the error falls to 0.0003")
    assert measured(tables[0])[4]["y"] == 1.0
    assert measured(tables[0])[64]["y"] > 0.5
    for figure in ('kind = "floor"\naccuracy = 0.1', 'kind = "floor"\nbound = true',
                   'kind = "tradeoff"\nby = "num_agents"'):  # fmt: skip
        (tmp_path / "bad.toml").write_text(f"{begin}[[figures]]\n{figure}\n")
        assert main(["run", str(tmp_path / "bad.toml"), "--check"]) == 2
        assert "remove it, or choose kind" in capsys.readouterr().err


def short(**changes: str) -> str:
    """The quickstart's study with 200 steps and other values of some keys."""
    text = quickstart().replace("40_000", "200")
    for key, value in changes.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
    return text


@pytest.mark.filterwarnings("ignore::fegsam.DivergenceWarning")
def test_the_page_of_a_study_that_diverges_says_so_and_shows_no_speed_up(tmp_path) -> None:
    captions, tables = report(short(step_size="1e12", num_steps="2000"), tmp_path)
    for caption in captions:
        assert "Runs diverged by T = 2000; a smaller step size may help." in caption
    assert "floor" not in captions[0]
    assert [found["y"] for found in measured(tables[1]).values()] == pytest.approx(
        [1.0, NAN, NAN], nan_ok=True
    )


def test_an_error_that_grows_is_said_to_grow_and_has_no_speed_up(tmp_path) -> None:
    captions, tables = report(short(step_size="2.1", num_agents="[1, 1024]"), tmp_path)
    assert "The error still grows at T = 200" in captions[0]
    assert [found["y"] for found in measured(tables[1]).values()] == pytest.approx(
        [1.0, NAN], nan_ok=True
    )


def test_agents_that_never_synchronise_are_noticed_before_the_run_and_on_the_page(
    tmp_path,
) -> None:
    text = short(sync_period="500", seeds="2")
    (tmp_path / "study.toml").write_text(text)
    for only_checked in (["--check"], ["-o", str(tmp_path / "out"), "--workers", "1"]):
        with pytest.warns(UserWarning, match="In 2 of 3 cells the agents never synchronise"):
            assert main(["run", str(tmp_path / "study.toml"), *only_checked]) == 0
    assert main(["report", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The agents never synchronise with N = 4 and N = 16, since a round is" in page


def test_the_page_says_where_fewer_agents_follow_other_policies(tmp_path) -> None:
    several = 'kind = "random"\ncount = 8\nseed = 1'
    text = short(seeds="2").replace('kind = "uniform"', several)
    assert several in text
    report(text, tmp_path)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (
        "There are 8 policies, of which only the first have an agent with N = 1 and N = 4." in page
    )


def test_the_page_of_an_unfinished_study_shows_what_is_finished(tmp_path, capsys) -> None:
    report(short(seeds="2"), tmp_path)
    cells = sorted((tmp_path / "out" / "cells").iterdir())
    cells[0].unlink()
    assert main(["report", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "2 of 3 cells are finished, and the figures show these." in page
    for cell in cells[1:]:
        cell.unlink()
    assert main(["report", str(tmp_path / "out")]) == 2
    assert "has a study, but no finished cell of it: give the" in capsys.readouterr().err
