"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from fegsam.cli import main

STUDY = """
[study]
name = "small"
seeds = 6
[problem]
generator = "garnet"
states = 4
actions = 2
branching = 2
discount = 0.8
seed = 0
[problem.target]
kind = "uniform"
[algorithm]
name = "off_policy_tabular_td"
[run]
num_steps = 200
record = 20
[grid]
num_agents = [1, 4]
sync_period = [5, 10]
step_size = 0.1
[[figures]]
kind = "error_curves"
[[figures]]
kind = "speed_up"
[[figures]]
kind = "tradeoff"
[[figures]]
kind = "floor"
by = "sync_period"
"""


@pytest.fixture
def spec(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_check_says_how_many_cells_there_are_and_writes_nothing(spec, capsys) -> None:
    assert main(["run", str(spec), "--check"]) == 0
    assert "4 cells" in capsys.readouterr().out
    assert list(spec.parent.iterdir()) == [spec]


def test_a_study_is_run_stored_and_drawn(spec, tmp_path, capsys) -> None:
    output = tmp_path / "out"
    assert main(["run", str(spec), "-o", str(output), "--workers", "1"]) == 0
    assert len(list((output / "cells").glob("*.nc"))) == 4
    assert main(["report", str(output)]) == 0
    assert str(output / "report.html") in capsys.readouterr().out
    drawn = sorted(path.name for path in (output / "figures").iterdir())
    assert [name for name in drawn if name.endswith(".svg")] == [
        "1-error-curves.svg",
        "2-speed-up.svg",
        "3-tradeoff.svg",
        "4-floor.svg",
    ]
    assert "Speed-up" in (output / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("discount = 0.8", "discount = 1.8"), "discount"),
        (('name = "off_policy_tabular_td"', 'name = "q_lerning"'), "q_lerning"),
        (("num_steps = 200", "num_steps = -1"), "num_steps"),
        (("step_size = 0.1", "step_size = nan"), "step_size"),
        (("[run]", "[run"), "line"),
    ],
)
def test_a_malformed_study_is_refused_in_one_sentence(spec, tmp_path, capsys, change, said) -> None:
    spec.write_text(STUDY.replace(*change))
    assert main(["run", str(spec), "-o", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fegsam: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", [["run", "nowhere.toml"], ["report", "nowhere"], ["plan", "nowhere.toml", "--accuracy", "1"]]
)
def test_a_file_that_is_not_there_is_named(command, capsys) -> None:
    assert main(command) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_plan_is_printed_with_its_verification_and_the_trade_off(spec, capsys) -> None:
    assert main(["plan", str(spec), "--accuracy", "0.05", "--goal", "samples", "--budget", "40"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Squared error 0.05 with the fewest samples, within 40 communications")
    for said in ("step size", "sync period", "communications", "exact moments", "over 200 seeds: met", "Trade-off"):
        assert said in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--accuracy", "-1"], "accuracy is -1.0; give a positive number."),
        (["--accuracy", "nan"], "accuracy is nan; give a positive number."),
        (["--accuracy", "1e-9", "--budget", "10"], "out of reach within 10 steps"),
        (["--accuracy", "0.1", "--budget", "0"], "budget is 0"),
        (["--accuracy", "1e9"], "already"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_one_sentence(spec, capsys, options, said) -> None:
    assert main(["plan", str(spec), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fegsam: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_doctor_names_what_is_installed(capsys) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("numpy", "numba", "plotly", "ray"):
        assert name in out


def test_the_command_is_installed_and_loads_nothing_heavy() -> None:
    code = "import sys, fegsam.cli; print(sorted({'ray', 'plotly', 'pydantic', 'matplotlib', 'gymnasium'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
