"""A federation on Flower equals the simulator: SuperLink and SuperNodes as processes, TLS, keys,
loopback."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

import fegsam as fg

pytest.importorskip("flwr")

from fegsam.cli import main
from fegsam.federation.flower.processes import marked
from fegsam.federation.flower.supervisor import mark_of
from fegsam.federation.protocol.ledger import read_events
from helpers.deployed import ALGORITHMS, assert_equal, simulated, write_study
from helpers.flower_commands import FLOWER

pytestmark = pytest.mark.slow

PATIENCE = 560.0
"""Seconds for a run of a few rounds; twenty times what it takes on a machine that is not busy."""


def federate(
    study: pathlib.Path, output: pathlib.Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """`fegsam federate run`, as a user would; nothing that it started may be left."""
    code = "import sys; from fegsam import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        code,
        "federate",
        "run",
        str(study),
        "-o",
        str(output),
        *FLOWER,
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert marked(mark_of(output)) == []
    return done


def test_a_deployed_run_equals_the_simulator(tmp_path, capsys) -> None:
    study, output = write_study(tmp_path), tmp_path / "out"
    words = ["federate", "run", str(study), "-o", str(output), *FLOWER]
    # Were it to hang, it would be ended as a user ends it, and the status be another.
    watch = threading.Timer(PATIENCE, os.kill, (os.getpid(), signal.SIGTERM))
    watch.start()
    try:
        assert main(words) == 0
    finally:
        watch.cancel()
    assert marked(mark_of(output)) == []
    said = capsys.readouterr()
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    events = read_events(output)
    rounds = [event for event in events if event["event"] == "round"]
    assert [(event["answered"], event["missing"]) for event in rounds] == [(4, [])] * 2
    for stage in ("running: round 1/2", "finished: round 2/2"):
        (line,) = (each for each in said.err.splitlines() if each.startswith(stage))
        assert line.endswith("4 of 4 answered")
    # Keys and certificates are their owner's alone, also here.
    private = [*output.rglob("*.key"), *output.rglob("node.toml")]
    assert len(private) == 2 + 4 + 4
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    # Run again, it is found finished, and nothing is started.
    assert main(words) == 0
    assert capsys.readouterr().out == said.out
    assert len(read_events(output)) == len(events)
    # Nothing else is mixed into it.
    for more, reason in (
        (["--seed", "8"], "under seed 7"),
        (["--nodes", "2"], "on 4 nodes"),
        (["--quorum", "2"], "other rules"),
        (["--insecure"], "with keys"),
        ([], "another study"),
    ):
        write_study(tmp_path, rounds=2 if more else 3)
        assert main([*words, *more]) == 2
        assert reason in capsys.readouterr().err


def test_without_keys_and_in_plain_text_if_that_is_asked_for(tmp_path) -> None:
    study, output = write_study(tmp_path), tmp_path / "out"
    done = federate(study, output, "--nodes", "2", "--insecure")
    assert done.returncode == 0, done.stderr
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert not list(output.rglob("*.key"))


@pytest.mark.parametrize("num_nodes", [4, 2])
@pytest.mark.parametrize("sync_period", [50, 500])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_deployed_equals_the_simulator(
    tmp_path, record_property, algorithm, sync_period, num_nodes
) -> None:
    study, output = write_study(tmp_path, algorithm, sync_period=sync_period), tmp_path / "out"
    done = federate(study, output, "--nodes", str(num_nodes))
    assert done.returncode == 0, done.stderr
    record_property(
        "largest difference", assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    )
