"""`fegsam bench`: what it times, keeps, compares, prints and draws. No test here asserts a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fegsam.bench import command, suite, timing
from fegsam.bench.contestants import Contestant, Unfit, c_threads, cpu, everyone
from fegsam.bench.cpu_limit import load_seconds, path_limit, random_cycle
from fegsam.bench.problems import ALGORITHMS, BenchSetting, make_case
from fegsam.bench.results import BenchResults, Limit, TimedCell, compare, load_results
from fegsam.bench.text import cell_text, comparison, efficiency, rows
from fegsam.bench.timing import Effort, Entry, Field
from fegsam.cli import main

TINY = BenchSetting(num_agents=3, sync_period=2, states=4, actions=2)
EFFORT = Effort(seconds=0.05, repeats=2)


def entry(name: str, seconds: float, *, threads: int = 1, spread: float = 0.01) -> Entry:
    times = (seconds, seconds * (1 + spread), seconds * (1 + 2 * spread))
    return Entry(name, threads, "wall", agent_steps=1000, seconds=times)


def results(*entries: Entry, axis: str = "agents") -> BenchResults:
    cell = TimedCell(axis, "N=3", 3.0, TINY, entries, (Limit("limit, 3 loads at once", 1e-9),))
    return BenchResults({"processor": "a test"}, EFFORT, (cell,))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_problem_that_runs_and_does_not_diverge(algorithm) -> None:
    case = make_case(replace(TINY, algorithm=algorithm, horizon=2, num_seeds=2))
    (timed,) = Field(EFFORT).race("algorithm", case, [cpu(1)])
    assert timed.skipped is None
    assert len(timed.seconds) >= 1
    assert timed.agent_steps % case.setting.agent_steps_per_round == 0


def test_all_contestants_run_or_say_why_not() -> None:
    entries = Field(EFFORT).race("agents", make_case(TINY), everyone(quick=True))
    assert not any(one.fault for one in entries), [one.skipped for one in entries]
    assert {one.family for one in entries if one.seconds} >= {"reference", "NumPy", "cpu"}
    assert all(one.skipped for one in entries if not one.seconds)


def test_a_contestant_that_is_unfit_too_slow_or_broken_is_left_out_with_the_reason() -> None:
    def unfit(case):
        raise Unfit("too small")

    def broken(case):
        raise ZeroDivisionError("by zero")

    field = Field(Effort(seconds=1e-9, repeats=1))
    case = make_case(TINY)
    no, fault = field.race("agents", case, [Contestant("a", unfit), Contestant("b", broken)])
    assert (no.skipped, no.fault) == ("too small", False)
    assert fault.fault
    assert "ZeroDivisionError: by zero" in fault.skipped
    assert field.race("agents", case, [cpu(1)])[0].seconds
    assert "would take" in field.race("agents", case, [cpu(1)])[0].skipped, (
        "after the first, its time is known"
    )


@pytest.mark.parametrize(
    ("call", "round_", "late", "least", "most"),
    [
        pytest.param(1e-3, 1e-3, 0, 90, 110, id="the wanted time"),
        pytest.param(0.5, 0.01, 0, 50, 120, id="calls that cost much: many rounds"),
        pytest.param(0.0, 0.5, 0, 1, 1, id="rounds that take long: one"),
        pytest.param(1e-3, 1e-3, 1, 90, 110, id="a call that was late once"),
    ],
)
def test_rounds_make_the_wanted_time_whatever_a_call_costs(
    monkeypatch, call, round_, late, least, most
) -> None:
    clock, calls = [0.0], [0]

    def run(rounds: int) -> None:
        calls[0] += 1
        clock[0] += call + rounds * round_ + (late if calls[0] == 2 else 0)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    contestant = Contestant("a", lambda case: run, clock="wall")
    (found,) = Field(Effort(seconds=0.1, repeats=3)).race("agents", make_case(TINY), [contestant])
    assert least <= found.agent_steps / TINY.agent_steps_per_round <= most


def test_results_are_the_same_after_a_trip_through_json(tmp_path) -> None:
    kept = results(entry("C", 1e-5), Entry("cuda float32", 1, "wall", skipped="no GPU"))
    kept.save(tmp_path / "a.json")
    assert load_results(tmp_path / "a.json") == kept
    assert json.loads((tmp_path / "a.json").read_text())["machine"] == {"processor": "a test"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_changes_are_marked_only_beyond_noise() -> None:
    old = results(
        entry("C", 1e-5), entry("cpu", 2e-5), entry("NumPy", 3e-5), entry("noisy", 1e-5, spread=0.2)
    )
    new = results(
        entry("C", 1.02e-5),
        entry("cpu", 3e-5),
        entry("NumPy", 1e-5),
        entry("noisy", 1.3e-5, spread=0.2),
    )
    found = {change.name: (round(change.ratio, 2), change.verdict) for change in compare(old, new)}
    assert found == {
        "C": (1.02, ""),
        "cpu": (1.5, "slower"),
        "NumPy": (0.33, "faster"),
        "noisy": (1.3, ""),
    }
    printed = comparison(compare(old, new), markdown=False)
    assert [
        line.split()[-1] for line in printed.splitlines() if "cpu" in line or "NumPy" in line
    ] == ["slower", "faster"]


def test_the_table_has_ratios_to_the_fastest_and_to_c_the_limit_and_who_is_missing() -> None:
    (cell,) = results(
        entry("C", 2e-5), entry("cpu", 4e-5), Entry("cuda float32", 1, "wall", skipped="no GPU")
    ).cells
    by_name = {row[1]: row for row in rows(cell)}
    assert by_name["cpu"][2:8] == ("40", "40.4", "2.50e+07", "0.24", "2", "2")
    assert by_name["limit, 3 loads at once"][2] == "1"
    assert by_name["cuda float32"][2] == "– no GPU"
    widths = {line.count("|") for line in cell_text(cell, markdown=True).splitlines()}
    assert widths == {10}


def test_efficiency_is_the_share_of_the_ideal_speed_up() -> None:
    (cell,) = results(entry("cpu", 8e-5), entry("cpu", 2.5e-5, threads=4), axis="threads").cells
    assert efficiency(cell, cell.entries[1]) == pytest.approx(0.8)
    assert rows(cell)[1][7] == "80 %"


def test_the_chase_goes_through_the_whole_table() -> None:
    table = random_cycle(100)
    at, seen = 0, set()
    for _ in range(100):
        seen.add(at)
        at = int(table[at])
    assert (len(seen), at) == (100, 0)
    assert load_seconds(1024, 1) > 0
    chains, seconds = path_limit(make_case(TINY).job.chain, 3)
    assert chains == 3
    assert seconds > 0


def test_the_gpu_kernels_gather_inside_the_table_chase_and_copy_all_in_the_simulator() -> None:
    code = """
import numpy as np
from fegsam.bench import gpu_kernels, gpu_limit
from fegsam.bench.cpu_limit import random_cycle
from fegsam.bench.gpu_kernels import LOADS, SECTOR, chase, copy, gather
gpu_kernels.TURNS = 2
assert gpu_limit.gpu_missing() is not None
table, out = np.ones(3 * SECTOR, np.uint32), np.zeros(8, np.uint32)
gather[2, 4](table, np.uint64(3), out)
print(set(out.tolist()) == {2 * LOADS})
source, target = np.arange(37.0), np.zeros(37)
copy[2, 4](source, target)
print(np.array_equal(source, target))
cycle, last = random_cycle(10), np.zeros(1, np.uint64)
chase[1, 1](cycle, 3, last)
print(last[0] == cycle[cycle[cycle[0]]])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "True"]


@pytest.fixture
def tiny_axes(monkeypatch) -> None:
    def agents(quick):
        for number in (1, 3):
            yield f"N={number}", number, replace(TINY, num_agents=number), [cpu(1)]

    def threads(quick):
        yield "2 seeds", 2, replace(TINY, num_seeds=2), [cpu(1), cpu(2)]

    monkeypatch.setattr(suite, "AXES", {"agents": agents, "threads": threads})
    monkeypatch.setattr(command, "QUICK", EFFORT)


@pytest.mark.usefixtures("tiny_axes")
def test_the_command_runs_keeps_compares_and_draws(tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    stored, pictures = tmp_path / "new.json", tmp_path / "figures"
    assert (
        main(
            [
                "bench",
                "--quick",
                "--axes",
                "agents,threads",
                "--output",
                str(stored),
                "--figures",
                str(pictures),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert "processor" in printed
    assert "N=3" in printed
    assert [cell.axis for cell in load_results(stored).cells] == ["agents", "agents", "threads"]
    drawn = sorted(path.stem for path in pictures.glob("*.svg"))
    assert drawn == ["bench-agents", "bench-threads-2-seeds"]

    assert main(["bench", "--show", str(stored), "--compare", str(stored), "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "### Agents" in printed
    ratios = [
        line.split("|")[5].strip()
        for line in printed.partition("Compared with")[2].splitlines()
        if "N=" in line
    ]
    assert ratios == ["1.00", "1.00"]


def test_contestants_can_be_chosen(monkeypatch) -> None:
    monkeypatch.setattr(
        suite, "AXES", {"agents": lambda quick: [("N=3", 3, TINY, [cpu(1), c_threads(1)])]}
    )
    (cell,) = suite.run_axes(["agents"], EFFORT, True, ["C"])
    assert [entry.family for entry in cell.entries] == ["C"]
    assert list(suite.run_axes(["agents"], EFFORT, True, ["JAX"])) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--axes", "agnets"], "agnets"),
        (
            ["--contestants", "cpu,Fortran"],
            "no contestant 'Fortran'; choose among reference, NumPy, JAX, C, cpu, cuda",
        ),
        (["--show", "nowhere.json"], "nowhere.json"),
        (["--compare", "nowhere.json"], "nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(arguments, said, capsys) -> None:
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_something_else_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "x.json").write_text("[1, 2]")
    assert main(["bench", "--show", str(tmp_path / "x.json")]) == 2
    assert "fegsam bench --output" in capsys.readouterr().err


def test_the_axes_cover_what_they_say() -> None:
    cells = {
        axis: [setting for _, _, setting, _ in lanes(False)] for axis, lanes in suite.AXES.items()
    }
    assert [setting.num_agents for setting in cells["agents"]][:6] == [
        1,
        16,
        256,
        4096,
        65_536,
        10**6,
    ]
    assert [setting.sync_period for setting in cells["period"]] == [1, 10, 100, 1000]
    assert [setting.states * setting.actions for setting in cells["table"]] == [
        100,
        1000,
        10_000,
        100_000,
        10**6,
    ]
    assert [setting.algorithm for setting in cells["algorithm"]] == list(ALGORITHMS)
    assert {setting.horizon for setting in cells["horizon"]} == {1, 5}
    assert np.unique([setting.num_seeds for setting in cells["threads"]]).tolist() == [1, 64]
