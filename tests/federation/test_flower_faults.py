"""The fault drill on Flower: whatever is killed, away or lying, the numbers at the end are right,
and the log says why."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess

import numpy as np
import pytest

import fegsam as fg

pytest.importorskip("flwr")

from fegsam.federation.deployment import load_node
from fegsam.federation.flower.processes import marked
from fegsam.federation.flower.server import FLOWER_FOLDER, AppStatus
from fegsam.federation.flower.superlink import free_port
from fegsam.federation.flower.supervisor import mark_of, node_command
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import Event
from helpers.deployed import assert_equal, simulated, write_study
from helpers.flower_commands import (
    FLOWER,
    PATIENCE,
    command,
    named,
    strangers,
    try_to_join,
    wait_for,
)

pytestmark = pytest.mark.slow

LIARS = """
import sys; from fegsam.federation.flower import supervisor
supervisor.APP["tool"]["flwr"]["app"]["components"]["clientapp"] = "helpers.lying_client:app"
from fegsam import cli; sys.exit(cli.main(sys.argv[1:]))
"""


def finish(process: subprocess.Popen[str], output: pathlib.Path) -> None:
    assert process.wait(PATIENCE) == 0
    assert marked(mark_of(output)) == []


def processes_of(home: pathlib.Path, program: str = "") -> list[int]:
    """The processes of a Flower home, of `program` alone where it is given."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            own = f"FLWR_HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if own and program.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_whatever_is_killed_the_numbers_stay(tmp_path) -> None:
    """kill -9 of a node in mid-round, of the server app and of the SuperLink, and a second node
    with a key that is in use."""
    study, output = write_study(tmp_path, rounds=4), tmp_path / "out"
    nodes = output.resolve() / "deployment" / "nodes"
    with command("federate", "run", study, *FLOWER, "-o", output, output=output) as process:
        wait_for("round 0", lambda: len(named(output, "round")) >= 1, process)
        home = nodes / "node-1" / "flower"
        wait_for("work on a node", lambda: processes_of(home, "flwr-clientapp"), process)
        kill(processes_of(home))

        double, _ = node_command(load_node(nodes / "node-0"), server=_gate(output))
        assert try_to_join(double, tmp_path / "double") != 0
        assert any("activate-node" in event["call"] for event in strangers(output))

        wait_for("the round of the killed node", lambda: len(named(output, "round")) >= 2, process)
        job = AppStatus.read(output / FLOWER_FOLDER)
        assert job is not None
        kill([job.pid])
        wait_for("a server app that goes on", lambda: len(named(output, "resumed")) >= 1, process)

        wait_for("its round", lambda: len(named(output, "round")) >= 3, process)
        kill(processes_of(output.resolve() / FLOWER_FOLDER, "flower-superlink"))
        wait_for("a SuperLink that goes on", lambda: named(output, "superlink-died"), process)
        finish(process, output)
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert named(output, "node-died")[0]["node"] == "node-1"
    assert len(named(output, "server-died")) >= 1
    assert all(event["missing"] == [] for event in named(output, "round"))
    assert named(output, "samples-lost") == []


def test_what_liars_send_is_refused_by_name_and_the_average_stays_right(tmp_path) -> None:
    study, output = write_study(tmp_path), tmp_path / "out"
    # A run that ends at once leaves the directories to put the lies into.
    with command(
        "federate", "run", study, *FLOWER, "-o", output, code=LIARS, output=output
    ) as process:
        wait_for(
            "the nodes' directories",
            lambda: (output / "deployment" / "nodes" / "node-3" / "node.toml").exists(),
            process,
        )
        told = {
            0: {0: "nan", 1: "stale"},
            1: {0: "inf", 1: "other"},
            2: {0: "shape", 1: "random"},
            3: {0: "norm"},
        }
        for node, lies in told.items():
            (output / "deployment" / "nodes" / f"node-{node}" / "lies.json").write_text(
                json.dumps(lies)
            )
        finish(process, output)
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    refused = named(output, "refused")
    assert len(refused) == sum(map(len, told.values())), refused
    assert all(event["reason"] for event in refused)
    assert len({event["reason"] for event in refused}) >= 5, refused
    assert named(output, "quarantined") == []


def test_a_node_that_was_away_for_three_rounds_comes_back_where_it_was(tmp_path) -> None:
    """On directories as for several machines: `init`, `server`, and a `node` each."""
    study, output, place = write_study(tmp_path, rounds=10), tmp_path / "out", tmp_path / "d"
    port = free_port()
    with command(
        "federate",
        "init",
        place,
        study,
        *FLOWER,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--quorum",
        "3",
        output=output,
    ) as made:
        assert made.wait(PATIENCE) == 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            command("federate", "server", place / "server", "-o", output, output=output)
        )
        wait_for("the gate", lambda: (output / FLOWER_FOLDER / "run").exists(), server)
        nodes = [
            stack.enter_context(
                command("federate", "node", place / "nodes" / f"node-{i}", output=output)
            )
            for i in range(4)
        ]
        wait_for("round 0", lambda: len(named(output, "round")) >= 1, server)
        nodes[3].send_signal(signal.SIGTERM)
        wait_for("three rounds without it", lambda: _rounds_without(output, 3) >= 3, server)
        back = stack.enter_context(
            command("federate", "node", place / "nodes" / "node-3", output=output)
        )
        finish(server, output)
        assert back.poll() is None
    rounds = named(output, "round")
    assert rounds[-1]["answered"] == 4
    assert all(event["missing"] in ([], [3]) for event in rounds)
    final = fg.load_history(output / "history.nc").data["final_params"].values[0]
    np.testing.assert_allclose(final, _replayed(study, rounds, place / "nodes"), rtol=0, atol=1e-12)


def test_interrupted_it_ends_all_and_goes_on_when_run_again(tmp_path) -> None:
    study, output = write_study(tmp_path), tmp_path / "out"
    for number in (signal.SIGINT, signal.SIGTERM):
        with command("federate", "run", study, *FLOWER, "-o", output, output=output) as process:
            wait_for(
                "a node",
                lambda: processes_of(
                    output.resolve() / "deployment" / "nodes" / "node-0" / "flower"
                ),
                process,
            )
            process.send_signal(number)
            assert process.wait(60) == 130
        assert marked(mark_of(output)) == []
    # Killed, it can end nothing itself: what it left is ended by the next one.
    with command("federate", "run", study, *FLOWER, "-o", output, output=output) as process:
        wait_for("round 0", lambda: len(named(output, "round")) >= 1, process)
        process.kill()
        process.wait()
    assert marked(mark_of(output)) != []
    with command("federate", "run", study, *FLOWER, "-o", output, output=output) as process:
        finish(process, output)
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))


def _rounds_without(output: pathlib.Path, agent: int) -> int:
    return sum(agent in event["missing"] for event in named(output, "round"))


def _replayed(study: pathlib.Path, rounds: list[Event], nodes: pathlib.Path) -> np.ndarray:
    """The average, from the agents' own steps: those who answered are averaged, those who computed
    moved on."""
    experiment = Experiment.from_spec(study)
    agents = [experiment.agent(i) for i in range(experiment.num_agents)]
    computed = {
        (agent, event["round"])
        for log in nodes.rglob("node.jsonl")
        for event in _lines(log, "computed")
        for agent in event["agents"]
    }
    average = experiment.start
    for event in rounds:
        steps = min(
            experiment.sync_period, experiment.num_steps - event["round"] * experiment.sync_period
        )
        moved = {
            i: agent.local_steps(average, steps)
            for i, agent in enumerate(agents)
            if (i, event["round"]) in computed
        }
        average = np.mean([moved[i] for i in moved if i not in event["missing"]], axis=0)
    return average


def _lines(log: pathlib.Path, name: str) -> list[Event]:
    return [
        event for event in map(json.loads, log.read_text().splitlines()) if event["event"] == name
    ]


def _gate(output: pathlib.Path) -> str:
    """Where the nodes of a run were told to go."""
    for pid in processes_of(
        output.resolve() / "deployment" / "nodes" / "node-0" / "flower", "flower-supernode"
    ):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return words[words.index("--superlink") + 1]
    raise AssertionError("node-0 does not run")
