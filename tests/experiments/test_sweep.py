"""A sweep ends with the same data whoever runs it, however often it is stopped, and says what went
wrong."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.errors import DivergenceWarning, ProblemError
from fegsam.experiments.spec.study import EXAMPLE, load_study
from fegsam.experiments.sweep.executors import LocalExecutor, make_executor
from fegsam.experiments.sweep.store import Store
from fegsam.experiments.sweep.sweep import Results, SweepError, load_results, run_sweep
from helpers import processes
from helpers.small_cells import SmallStudy, files, grid, with_act

STUDY = grid()
KILLED = grid(agents=tuple(range(1, 13)), pause=0.1)
"""For two workers some 1.2 s of work."""


@pytest.fixture(scope="module")
def executor():
    """Two processes for all tests that need no other."""
    with LocalExecutor(workers=2) as executor:
        yield executor


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, executor: LocalExecutor) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    run_sweep(STUDY, directory, executor=executor)
    return directory


def test_each_cell_is_stored_as_it_comes_out_when_run_alone(
    undisturbed: pathlib.Path, assert_same_bits
) -> None:
    results = Results(STUDY, undisturbed)
    assert len(results.cells) == 6
    for cell in results.cells:
        assert_same_bits(results.history(cell), cell.run("reference"))
    assert len(files(undisturbed)) == 7, "six cells and the study"


def test_results_are_found_by_their_place_in_the_grid(undisturbed: pathlib.Path) -> None:
    results = Results(STUDY, undisturbed)
    found = results.select(num_agents=2)
    assert [cell.axes for cell, _ in found] == [
        {"num_agents": 2, "step_size": step} for step in (0.1, 0.2)
    ]
    assert found[1][1].settings.step_size == 0.2
    assert results.errors(found[0][0]).sizes == {"seed": 2, "time": 4}
    assert results.select(num_agents=7) == []
    with pytest.raises(ProblemError, match="no axis 'agents'; its axes are: num_agents, step_size"):
        results.select(agents=2)


def test_one_worker_gives_the_same_bytes_as_two(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run_sweep(STUDY, tmp_path, workers=1)
    assert files(tmp_path) == files(undisturbed)


def test_what_is_stored_is_not_run_again(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    run_sweep(STUDY, tmp_path, executor=executor)
    failing = replace(STUDY, listed=tuple(replace(cell, act="fail") for cell in STUDY.cells()))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nc")}
    run_sweep(failing, tmp_path, executor=executor)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nc")}


def test_damaged_and_missing_cells_are_made_again(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    run_sweep(STUDY, tmp_path, executor=executor)
    paths = sorted((tmp_path / "cells").iterdir())
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    changed = bytearray(paths[1].read_bytes())
    changed[len(changed) // 2] ^= 1
    paths[1].write_bytes(changed)
    paths[2].unlink()
    (tmp_path / "cells" / ".0123.nc").write_bytes(b"half")
    with pytest.raises(ProblemError, match="is missing or damaged"):
        Results(STUDY, tmp_path).select()
    with pytest.warns(RuntimeWarning, match="2 stored cells are damaged and are computed again"):
        run_sweep(STUDY, tmp_path, executor=executor)
    assert files(tmp_path) == files(undisturbed)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("fail", r"this cell was told to fail\. The"),
        ("crash", r"ZeroDivisionError: an unforeseen error\. The"),
    ],
)
def test_a_cell_that_fails_is_named_and_the_others_are_done(
    undisturbed: pathlib.Path,
    tmp_path: pathlib.Path,
    executor: LocalExecutor,
    act: str,
    message: str,
) -> None:
    with pytest.raises(SweepError, match=message) as caught:
        run_sweep(with_act(STUDY, 3, act), tmp_path, executor=executor)
    assert "1 of 6 cells failed (num_agents=2, step_size=0.2)" in str(caught.value)
    assert f"The other 5 are stored in '{tmp_path}'" in str(caught.value)
    assert "small_cells.py" in caught.value.failures["num_agents=2, step_size=0.2"]
    assert len(files(tmp_path)) == 6
    run_sweep(STUDY, tmp_path, executor=executor)
    assert files(tmp_path) == files(undisturbed)


def test_of_many_failures_the_message_names_some(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    failing = replace(STUDY, listed=tuple(replace(cell, act="fail") for cell in STUDY.cells()))
    with pytest.raises(
        SweepError, match=r"6 of 6 cells failed \(num_agents=\d, .*; and 1 more\)"
    ) as caught:
        run_sweep(failing, tmp_path, executor=executor)
    assert len(caught.value.failures) == 6


def test_a_cell_whose_process_dies_is_run_again(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    run_sweep(
        with_act(STUDY, 2, "die once", tmp_path / "mark"), tmp_path / "results", executor=executor
    )
    assert (tmp_path / "mark").exists()
    assert files(tmp_path / "results") == files(undisturbed)


def test_a_cell_whose_process_always_dies_is_given_up(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    with pytest.raises(
        SweepError,
        match=r"\(num_agents=1, step_size=0.1\), the first with: its process died 3 times \(exit "
        r"-9",
    ):
        run_sweep(with_act(grid(agents=(1,)), 0, "die"), tmp_path, executor=executor)
    assert len(files(tmp_path)) == 2


def test_what_a_cell_prints_is_not_taken_for_its_result(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    run_sweep(with_act(STUDY, 0, "print"), tmp_path, executor=executor)
    assert files(tmp_path) == files(undisturbed)


def test_an_engine_that_no_worker_can_load_is_an_error_of_its_cells(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    with pytest.raises(
        SweepError, match=r"cannot be sent to a worker .* put what it uses in a module"
    ):
        run_sweep(STUDY, tmp_path, executor=executor, engine=lambda job: None)


def test_divergence_is_said_once_for_all_cells(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    study = grid(agents=(1,), steps=(0.1, 3.5, 4.5), num_steps=5000)
    with pytest.warns(
        DivergenceWarning, match="In 2 of 3 cells .*step_size=3.5; num_agents=1, step_size=4.5"
    ) as caught:
        run_sweep(study, tmp_path, executor=executor)
    assert len(caught) == 1


def test_two_engines_do_not_mix_in_one_directory(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    with pytest.raises(SweepError):
        run_sweep(with_act(STUDY, 0, "fail"), tmp_path, executor=executor)
    with pytest.raises(
        ProblemError, match="holds results of the engine 'reference', but 'cpu' is asked for"
    ):
        run_sweep(STUDY, tmp_path, executor=executor, engine="cpu")
    run_sweep(STUDY, tmp_path, executor=executor, engine="reference")


def test_cells_that_differ_in_nothing_are_run_once(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    twice = SmallStudy((STUDY.cells()[0], *STUDY.cells()[:2]))
    results = run_sweep(twice, tmp_path, executor=executor)
    assert len(files(tmp_path)) == 3
    assert len(results.select(step_size=0.1)) == 2


def test_a_spec_that_names_a_file_is_swept_and_found_again(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    """Even when the file is gone: the directory of results has all that it needs."""
    np.save(tmp_path / "start.npy", np.ones(12))
    spec = tmp_path / "spec.toml"
    spec.write_text(
        EXAMPLE.replace("num_steps = 1000", 'num_steps = 100\ninitial_params = "start.npy"')
    )
    results = run_sweep(
        load_study(spec), tmp_path / "results", executor=executor, engine="reference"
    )
    (tmp_path / "start.npy").unlink()
    again = load_results(tmp_path / "results")
    assert [cell.key for cell in again.cells] == [cell.key for cell in results.cells]
    assert len(again.select(num_agents=4)) == 2
    run_sweep(again.study, tmp_path / "results", executor=executor)


@pytest.mark.parametrize("workers", [1, 50])
def test_processes_share_the_cores(
    tmp_path: pathlib.Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core import config

    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", 2)
    study = grid(agents=(1, 2), steps=(0.1, 0.2, 0.3), pause=0.1)
    for index in range(6):
        study = with_act(study, index, "note", tmp_path / "notes")
    run_sweep(study, tmp_path / "results", workers=workers, engine="cpu")
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    processes_seen = {process for process, *_ in notes}
    assert len(notes) == 6
    assert 1 <= len(processes_seen) <= min(workers, 2)
    for _, numba, blas, engine in notes:
        assert blas == "1"
        assert int(numba) * min(workers, 2) <= 2
        assert int(engine) * min(workers, 2) <= 2


def test_bad_arguments_get_a_sentence_and_nothing_is_written(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    with pytest.raises(ProblemError, match="executor is 'slurm'; choose 'local' or 'ray'"):
        run_sweep(STUDY, tmp_path / "new", executor="slurm")
    with pytest.raises(ProblemError, match="workers is 0"):
        run_sweep(STUDY, tmp_path / "new", workers=0)
    with pytest.raises(ProblemError, match="workers is 2, but an open executor has its own"):
        run_sweep(STUDY, tmp_path / "new", workers=2, executor=executor)
    assert not (tmp_path / "new").exists()


SWEEP = """
import signal
from helpers.small_cells import grid
from fegsam.experiments.sweep.sweep import run_sweep
# Tests in the background of a shell inherit that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begun", flush=True)
try:
    run_sweep(grid(agents=tuple(range(1, {last})), pause={pause}), {directory!r}, workers=2)
except KeyboardInterrupt as stop:
    print(stop)
"""


def start(directory: pathlib.Path, last: int = 13, pause: float = 0.1) -> subprocess.Popen[str]:
    """A sweep in a process group of its own; returns when it begins."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SWEEP.format(directory=str(directory), last=last, pause=pause),
        ],
        env=processes.python_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def kill_group(process: subprocess.Popen[str], how: signal.Signals) -> tuple[str, str]:
    os.killpg(process.pid, how)
    return process.communicate(timeout=processes.HANG)


def wait_for_cells(directory: pathlib.Path, count: int) -> None:
    deadline = time.monotonic() + processes.HANG
    while len(list(directory.glob("cells/[!.]*.nc"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def left_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes of its group that still run."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = file.read_text().rpartition(")")[2].split()[:3]
            if int(group) == process.pid and state != "Z":
                found.append(int(file.parent.name))
    return found


def wait_until_gone(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 10
    while left_of(process):
        assert time.monotonic() < deadline, left_of(process)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def killed_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the sweep that the others are compared with is stored."""
    directory = tmp_path_factory.mktemp("whole")
    process = start(directory)
    _, err = process.communicate(timeout=processes.HANG)
    assert process.returncode == 0, err
    assert err == "", "silent where no person is watching"
    return directory


@pytest.mark.parametrize(
    "moment",
    [pytest.param(moment, marks=[pytest.mark.slow] if moment >= 2 else []) for moment in range(20)],
)
def test_a_sweep_killed_at_any_moment_resumes_to_the_same_data(
    killed_undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor, moment: int
) -> None:
    """Each kill comes in another stage of the sweep, from its start to its last cells, at a random
    moment."""
    stages = np.random.default_rng(0).permutation(20)
    process = start(tmp_path, pause=0.3)
    wait_for_cells(tmp_path, stages[moment])
    time.sleep(np.random.default_rng([1, moment]).uniform(0, 0.15))
    kill_group(process, signal.SIGKILL)
    wait_until_gone(process)
    stored = len(list(tmp_path.glob("cells/[!.]*.nc")))
    run_sweep(KILLED, tmp_path, executor=executor)
    assert files(tmp_path) == files(killed_undisturbed), f"killed with {stored} cells stored"
    assert stages[moment] <= stored < 24


def test_workers_do_not_outlive_a_sweep_that_is_killed_alone(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path, last=3, pause=60)
    while len(left_of(process)) < 3:
        time.sleep(0.05)
    time.sleep(2)  # into the cells
    process.kill()
    process.wait()
    wait_until_gone(process)
    process.communicate()


def test_ctrl_c_stops_the_sweep_and_says_how_to_go_on(
    killed_undisturbed: pathlib.Path, tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    process = start(tmp_path, pause=1.0)  # so that a slow machine stops it in time
    wait_for_cells(tmp_path, 3)
    out, err = kill_group(process, signal.SIGINT)
    stored = len(list(tmp_path.glob("cells/[!.]*.nc")))
    assert (
        out
        == f"Stopped: {stored} of 24 cells are stored in '{tmp_path}'; run the same study again to "
        "continue.\n"
    )
    assert err == ""
    assert process.returncode == 0
    assert 3 <= stored < 24
    assert not list(tmp_path.glob("cells/.*"))
    assert left_of(process) == []
    run_sweep(KILLED, tmp_path, executor=executor)
    assert files(tmp_path) == files(killed_undisturbed)


def test_ctrl_c_waits_for_the_cell_that_is_being_stored(
    tmp_path: pathlib.Path, executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt inside the library that writes the file would leave that library's lock held."""
    write = Store.write

    def interrupted(store: Store, *what: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        write(store, *what)

    monkeypatch.setattr(Store, "write", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="Stopped: 1 of 24 cells are stored"):
            run_sweep(KILLED, tmp_path, executor=executor)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(list(tmp_path.glob("cells/*.nc"))) == 1


def test_a_directory_takes_one_sweep_at_a_time(
    tmp_path: pathlib.Path, executor: LocalExecutor
) -> None:
    process = start(tmp_path, last=3, pause=60)
    try:
        while not (tmp_path / "study.toml").exists():
            time.sleep(0.02)
        with pytest.raises(
            ProblemError,
            match=f"A sweep is at work in '{tmp_path}' .process {process.pid}.; wait for it",
        ):
            run_sweep(grid(agents=(1, 2), pause=60), tmp_path, executor=executor)
    finally:
        kill_group(process, signal.SIGKILL)


def test_who_watches_sees_cells_speed_and_the_time_left(tmp_path: pathlib.Path) -> None:
    with processes.on_terminal(
        SWEEP.format(directory=str(tmp_path), last=3, pause=1.5)
    ) as terminal:
        terminal.wait_for("2 of 4 cells")
        terminal.wait_for("agent-steps/s")
        assert terminal.finish() == "begun\n"
    assert "<00:0" in terminal.shown, "the time left"
    assert "Traceback" not in terminal.shown


RAY = """
import pathlib, sys
from helpers.small_cells import BigCell, SmallStudy, grid, with_act
from fegsam.experiments.sweep.executors import make_executor
from fegsam.experiments.sweep.sweep import SweepError, run_sweep
directory = pathlib.Path({directory!r})
big = SmallStudy(tuple(BigCell(num_agents, {{"num_agents": num_agents}}) for num_agents in (2, 3)))
run_sweep(grid(), directory / "local", workers=2)
run_sweep(big, directory / "big local", workers=2)
print("imported" if "ray" in sys.modules else "not imported")
executor = make_executor("ray", 2)
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
run_sweep(grid(), directory / "ray", executor=executor)
run_sweep(big, directory / "big ray", executor=executor)
dying = with_act(grid(), 1, "die once", directory / "mark")
run_sweep(dying, directory / "killed", executor=executor)
study = with_act(with_act(grid(), 1, "crash"), 4, "fail")
try:
    run_sweep(study, directory / "failing", executor=executor)
except SweepError as error:
    print(str(error).splitlines()[0])
executor.close()
print("left running" if ray.is_initialized() else "shut down")
ray.shutdown()
"""


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[str]]:
    """One local Ray for all: where the sweeps are stored, and what was printed."""
    directory = tmp_path_factory.mktemp("ray")
    environment = {"OPENBLAS_NUM_THREADS": "2", "RAY_USAGE_STATS_ENABLED": "0"}
    printed = processes.run(RAY.format(directory=str(directory)), **environment).splitlines()
    return directory, [line for line in printed if "(raylet)" not in line]


def test_cells_on_gpus_claim_one_each() -> None:
    from fegsam.experiments.sweep.ray_executor import claimed, places

    assert claimed("cpu") == claimed(None) == {"num_cpus": 1}
    assert claimed("cuda") == claimed(fg.engines.Cuda("float32")) == {"num_cpus": 1, "num_gpus": 1}
    assert places(claimed("cpu"), {"CPU": 16.0, "GPU": 2.0}) == 16
    assert places(claimed("cuda"), {"CPU": 16.0, "GPU": 2.0}) == 2
    with pytest.raises(ProblemError, match="the Ray cluster has no GPU; add a machine"):
        places(claimed("cuda"), {"CPU": 16.0})


@pytest.mark.slow
def test_ray_is_imported_only_when_asked_for(on_ray: tuple[pathlib.Path, list[str]]) -> None:
    assert on_ray[1][0] == "not imported"


@pytest.mark.slow
def test_local_and_ray_store_the_same_bytes(on_ray: tuple[pathlib.Path, list[str]]) -> None:
    directory, _ = on_ray
    assert len(files(directory / "local")) == 7
    assert files(directory / "ray") == files(directory / "local")
    assert len(files(directory / "big local")) == 3
    assert files(directory / "big ray") == files(directory / "big local")


@pytest.mark.slow
def test_a_cell_whose_ray_worker_is_killed_is_run_again(
    on_ray: tuple[pathlib.Path, list[str]],
) -> None:
    directory, _ = on_ray
    assert (directory / "mark").exists()
    assert files(directory / "killed") == files(directory / "local")


@pytest.mark.slow
def test_on_ray_too_failing_cells_are_named_and_the_others_are_done(
    on_ray: tuple[pathlib.Path, list[str]],
) -> None:
    directory, printed = on_ray
    assert "2 of 6 cells failed" in printed[1]
    assert "num_agents=1, step_size=0.2" in printed[1]
    assert "num_agents=3, step_size=0.1" in printed[1]
    assert len(files(directory / "failing")) == 5
    assert printed[2] == "left running", "a Ray that somebody else started is theirs"


@pytest.mark.slow
def test_a_cell_whose_ray_workers_always_die_is_given_up(tmp_path: pathlib.Path) -> None:
    """On a Ray that the sweep itself starts and ends."""
    code = f"""
from helpers.small_cells import grid, with_act
from fegsam.experiments.sweep.sweep import SweepError, run_sweep
try:
    run_sweep(with_act(grid(), 1, "die"), {str(tmp_path)!r}, executor="ray")
except SweepError as error:
    print(error)
import ray
print(ray.is_initialized())
"""
    said, started = (line for line in processes.run(code).splitlines() if "(raylet)" not in line)
    assert said.startswith(
        "1 of 6 cells failed (num_agents=1, step_size=0.2), the first with: Ray lost it ("
    )
    assert started == "False"
    assert len(files(tmp_path)) == 6


def test_without_ray_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(processes.sys.modules, "ray", None)
    monkeypatch.delitem(
        processes.sys.modules, "fegsam.experiments.sweep.ray_executor", raising=False
    )
    with pytest.raises(ProblemError, match=r"pip install 'fegsam\[ray\]'"):
        make_executor("ray", None)
