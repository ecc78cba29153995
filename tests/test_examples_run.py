"""The examples run as they stand, at a smaller size."""

from __future__ import annotations

import importlib.util
import math
import pathlib
import re
import types

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def load(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(name: str, capsys) -> str:
    load(EXAMPLES / f"{name}.py").main()
    return capsys.readouterr().out


def test_the_quickstart_learns_the_best_policy(capsys) -> None:
    learned, best = re.search(
        r"worth (\S+) on average, the best one (\S+)", printed("quickstart", capsys)
    ).groups()
    assert float(learned) == pytest.approx(float(best), rel=0.01)


def test_the_hospitals_find_together_what_none_finds_alone(capsys) -> None:
    lines = printed("own_operator", capsys).splitlines()
    together, exact, first, second = (
        [float(value) for value in re.findall(r"-?\d*\.\d+", line.partition("[")[2])]
        for line in lines
    )
    assert together == pytest.approx(exact, abs=0.05)
    for alone in (first, second):
        assert math.dist(alone, exact) > 0.1


def test_local_steps_of_agents_that_disagree_cost_what_more_agents_do_not_cure(capsys) -> None:
    rows = re.findall(
        r"^ +(\d+) +(\S+) +(\S+) +(\S+)$", printed("heterogeneous_agents", capsys), re.MULTILINE
    )
    (_, *few), (_, *many) = ([float(value) for value in row] for row in rows[1:])
    assert few[0] / many[0] == pytest.approx(100, rel=0.01), (
        "a hundred times as many agents, a hundredth of the error at K = 1"
    )
    assert few[2] / many[2] < 5, "but not at K = 100"


def test_exact_and_sampled_errors_agree(capsys) -> None:
    rows = re.findall(
        r"^ +(\d+) +(\S+) +(\S+) +([+-]\S+)$",
        printed("exact_against_sampled", capsys),
        re.MULTILINE,
    )
    assert len(rows) == 6
    assert all(abs(float(off)) < 4 for *_, off in rows)


def test_the_planner_trades_samples_for_communications(capsys) -> None:
    out = printed("planning_communications", capsys)
    assert out.count(": met") == 2
    steps = [int(value) for value in re.findall(r"^steps +(\d+)$", out, re.MULTILINE)]
    meetings = [int(value) for value in re.findall(r"^communications +(\d+)$", out, re.MULTILINE)]
    assert meetings[0] < meetings[1]
    assert steps[0] > steps[1]


def test_the_lake_is_crossed(capsys) -> None:
    pytest.importorskip("gymnasium")
    rows = printed("gymnasium_lake", capsys).splitlines()[-4:]
    lake = [row.strip() for row in rows]
    row = column = steps = 0
    while lake[row][column] != "G":
        down, right = {"<": (0, -1), "v": (1, 0), ">": (0, 1), "^": (-1, 0)}[lake[row][column]]
        row, column, steps = row + down, column + right, steps + 1
    assert steps == 6, "the shortest way"


def test_the_wards_find_the_treatment_that_helps(capsys) -> None:
    pytest.importorskip("pyarrow")
    chosen = re.findall(
        r"^level \d: treatment (\d)", printed("hospital_wards", capsys), re.MULTILINE
    )
    assert chosen == ["1", "1", "0", "0"]


def test_a_log_of_clicks_gives_the_self_normalised_estimate(capsys) -> None:
    pytest.importorskip("pyarrow")
    rows = re.findall(
        r": (\S+) clicks a visit, .* (\S+), in truth (\S+)$",
        printed("bandit_log", capsys),
        re.MULTILINE,
    )
    assert len(rows) == 2
    for learned, weighted, known in rows:
        assert float(learned) == pytest.approx(float(weighted), abs=0.003)
        assert float(weighted) == pytest.approx(float(known), abs=0.02)


def test_live_agents_learn_to_cross_the_lake(capsys) -> None:
    pytest.importorskip("gymnasium")
    crossed = re.findall(r"in (\d+)%", printed("live_lake", capsys))
    assert crossed == ["0", "100"]


def test_live_agents_learn_to_balance(capsys) -> None:
    pytest.importorskip("gymnasium")
    before, after = re.search(
        r"for (\d+) steps .* (\d+) after", printed("live_cart_pole", capsys)
    ).groups()
    assert int(after) > 4 * int(before)


def test_every_example_is_run_here() -> None:
    named = pathlib.Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert path.stem in named, path.name


def test_the_picture_of_the_readme_is_what_its_script_draws() -> None:
    script = load(EXAMPLES.parent / "docs" / "make_picture.py")
    drawn, stored = script.svg(script.data()), script.PATH.read_text(encoding="utf-8")
    numbers = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
    assert numbers.sub("", drawn) == numbers.sub("", stored)
    now, then = ([float(value) for value in numbers.findall(text)] for text in (drawn, stored))
    assert now == pytest.approx(then, abs=0.2), "the drawing, to a fifth of a pixel"
    data = [re.search("<desc>(.*?)</desc>", text)[1] for text in (drawn, stored)]
    now, then = ([float(value) for value in numbers.findall(text)] for text in data)
    assert now == pytest.approx(then, rel=1e-2), "the data"
    said = re.search("<desc>(.*?)</desc>", stored)[1].split("; ")
    assert [int(part.split()[0]) for part in said] == list(script.AGENTS)
    for part in said:
        low, high, exact = (
            float(value) for value in re.search(r" in (\S+) to (\S+), exactly (\S+)", part).groups()
        )
        assert low**2 / high < exact < high**2 / low, "within twice the interval"


def test_the_agents_that_meet_are_those_that_the_docs_show(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["agents_that_meet.py", "-o", str(tmp_path / "agents.svg")])
    load(EXAMPLES / "agents_that_meet.py").main()
    assert "synchronisations=5" in capsys.readouterr().out
    stored = (EXAMPLES.parent / "docs" / "agents.svg").read_text(encoding="utf-8")
    drawn = (tmp_path / "agents.svg").read_text(encoding="utf-8")
    number = re.compile(r"-?\d+(?:\.\d+)?")
    assert number.sub("", drawn) == number.sub("", stored)
    now, then = ([float(value) for value in number.findall(text)] for text in (drawn, stored))
    assert now == pytest.approx(then, abs=0.2)


def test_the_speed_up_study_prints_its_table_and_draws_its_figure(
    tmp_path, monkeypatch, capsys
) -> None:
    image = pytest.importorskip("matplotlib.image")
    example = load(EXAMPLES / "speed_up.py")
    agents = tuple(range(1, 1 + len(example.AGENTS)))
    for name, value in (("AGENTS", agents), ("SEEDS", range(4)), ("NUM_STEPS", 300)):
        monkeypatch.setattr(example, name, value)
    monkeypatch.setattr("sys.argv", ["speed_up.py", "--output", str(tmp_path / "new" / "folder")])
    example.main()

    printed = capsys.readouterr().out
    rows = re.findall(r"^ +(\d+) +(\d\.\d+e[-+]\d+) \[(\S+), (\S+)\] ", printed, re.MULTILINE)
    assert tuple(int(number) for number, *_ in rows) == agents
    assert all(
        0 < float(low) < float(error) < float(high) < math.inf for _, error, low, high in rows
    )
    assert "No plateau was reached by T = 300" in printed, "the test's runs are short"
    assert math.isfinite(float(re.search(r"slope of log error against log N: (\S+)", printed)[1]))
    (figure,) = (tmp_path / "new" / "folder").iterdir()
    assert figure.name in printed
    pixels = image.imread(figure)
    assert min(pixels.shape[:2]) > 300
    assert len({tuple(pixel) for pixel in pixels[::7, ::7].reshape(-1, pixels.shape[2])}) > 5, (
        "more than a white page"
    )


@pytest.mark.slow
def test_the_federation_here_has_the_simulators_numbers(capsys) -> None:
    communications, apart = re.search(
        r"after (\d+) communications, the largest difference from the simulation is (\S+)",
        printed("federation_here", capsys),
    ).groups()
    assert int(communications) == 2
    assert float(apart) <= 1e-12


@pytest.mark.slow
def test_three_hospitals_learn_from_their_logs_as_one_process_would(capfd) -> None:
    load(EXAMPLES / "private_logs.py").main()
    said = capfd.readouterr().out
    assert float(re.search(r"difference from one process is (\S+)", said).group(1)) <= 1e-12
