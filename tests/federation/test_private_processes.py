"""Nodes with their own data as their owners start them: processes, which are killed."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import subprocess
import time
from itertools import pairwise

import numpy as np
import pytest

import fegsam as fg
from fegsam.cli import main
from helpers import private_data as private
from helpers.grpc_commands import command, free_port, named
from helpers.grpc_federation import wait_for

PATIENCE = 1800.0
NODES = tuple(f"node-{number}" for number in range(4))


@contextlib.contextmanager
def deployment(folder: pathlib.Path, num_steps: int, *options: str, period: int = private.PERIOD):
    """`init` and the owners' data; the log of the wards, and a function that starts a part."""
    log = private.write_log(folder / "wards.parquet", (num_steps // 8, num_steps // 8))
    private.plant_log(log, num_steps // 5)
    study, place, output = folder / "study.toml", folder / "fed", folder / "out"
    text = private.STUDY.replace(f"num_steps = {private.STEPS}", f"num_steps = {num_steps}")
    study.write_text(text.replace(f"period = {private.PERIOD}", f"period = {period}"))
    host = ["--host", "127.0.0.1", "--port", str(free_port())]
    assert main(["federate", "init", str(place), str(study), *host, *options]) == 0
    private.fill_in([place / "nodes" / name for name in NODES], log)
    with contextlib.ExitStack() as stack:

        def start(part: str) -> subprocess.Popen[str]:
            words = ["node", place / "nodes" / part]
            if part == "server":
                words = ["server", place / "server", "-o", output]
            return stack.enter_context(command(*words, log=folder / f"{part}.log"))

        yield log, output, start


def assert_numbers_of_a_run(log: pathlib.Path, output: pathlib.Path, num_steps: int) -> None:
    history = fg.load_history(output / "history.nc")
    settings = {"record": history.settings.record, "sync_period": history.settings.sync_period}
    expected = private.simulated(log, num_steps=num_steps, **settings)
    for name in ("average_params", "final_params", "output_params"):
        np.testing.assert_allclose(history.data[name], expected.data[name], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_number(tmp_path) -> None:
    draw, kills, steps = random.Random(3), 0, 8000
    with deployment(tmp_path, steps) as (log, output, start):
        parts = {part: start(part) for part in ("server", *NODES)}
        while kills < 20:
            time.sleep(draw.uniform(0.0, 2.0))
            assert parts["server"].poll() is None, "it ended before it was killed 20 times"
            part = draw.choice(list(parts))
            parts[part].kill()
            parts[part].wait()
            parts[part] = start(part)
            kills += 1
        assert parts["server"].wait(PATIENCE) == 0, (tmp_path / "server.log").read_text()
    assert_numbers_of_a_run(log, output, steps)
    assert all(event["missing"] == [] for event in named(output, "round"))
    assert named(output, "samples-lost") == []
    for path in (tmp_path / "fed" / "nodes").rglob("node.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        used = sorted((e["first"], e["last"]) for e in lines if e["event"] == "computed")
        assert sum(last - first + 1 for first, last in used) == steps
        assert all(last < first for (_, last), (first, _) in pairwise(used))


@pytest.mark.slow
def test_the_nodes_of_a_fleet_on_flower_give_the_numbers_of_a_run(tmp_path) -> None:
    steps, flower = 150, ("--transport", "flower")
    with deployment(tmp_path, steps, *flower, period=50) as (log, output, start):
        parts = {part: start(part) for part in ("server", *NODES)}
        wait_for("the end", lambda: parts["server"].poll() is not None, PATIENCE)
        assert parts["server"].returncode == 0, (tmp_path / "server.log").read_text()
    assert_numbers_of_a_run(log, output, steps)


def test_a_node_whose_log_changed_does_not_start(folder, capsys) -> None:
    with deployment(folder, 200) as (log, _, _):
        node = folder / "fed" / "nodes" / "node-0"
        private.name_data(node, "")
        assert main(["federate", "node", str(node)]) == 2
        assert "has no table [data]" in capsys.readouterr().err
        private.name_data(node, private.WARD.format(log=log, ward=0).replace('"ward"', '"war"'))
        assert main(["federate", "check", str(node)]) == 2
        assert "there is no column 'war'" in capsys.readouterr().err
