"""Faults of a federation over gRPC: whatever dies, stops or is cut, the numbers at the end are the
simulator's, and no sample is used twice."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import time
from collections import Counter

import pytest

import cases
import fegsam as fg
from fegsam.cli import main
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import read_events
from fegsam.federation.protocol.rules import Rules
from helpers.deployed import assert_equal, simulated, write_study
from helpers.grpc_commands import command, free_port, named
from helpers.grpc_federation import Nodes, Site, serve, wait_for
from helpers.relay import relay

STEPS, PERIOD = 140, 7
PATIENCE = 300.0


class Died(Exception):
    """The server's process ended here."""


def test_server_and_nodes_may_die_and_resume(folder) -> None:
    case = cases.case("alg4", n=3, num_agents=4, differ="both")
    experiment = Experiment(
        case.problem, case.algorithm, step_size=0.1, sync_period=PERIOD, num_steps=STEPS, seed=5,
        initial_params=case.start, record_params=True,
    )  # fmt: skip
    site = Site(folder, [(0, 1), (2, 3)], dimension=len(experiment.start))
    site.port = free_port()
    deaths = {4, 9}

    def node(name: str):
        agents = site.homes[name]
        return nodes.start(site.link(name), experiment.node(agents, folder / name / "state").answer)

    with Nodes() as nodes:
        running = {name: node(name) for name in site.homes}

        def trouble(event) -> None:
            if event["event"] != "round":
                return
            if event["round"] % 5 == 2:  # a node dies, and its supervisor starts it again
                running.pop("n1").cancel()
                running["n1"] = node("n1")
            if event["round"] in deaths:
                deaths.remove(event["round"])
                raise Died

        for _ in range(2):
            with site.transport() as transport, pytest.raises(Died):
                serve(site, experiment, transport, Rules(retry_after=0.2), trouble)
        with site.transport() as transport:
            outcome = serve(site, experiment, transport, Rules(retry_after=0.2), trouble)
            transport.finish()
    record = outcome.history.settings.record
    expected = case.run(alpha=0.1, K=PERIOD, T=STEPS, seeds=(5,), record=record)
    assert_equal(outcome.history, expected)
    assert_no_sample_twice(folder)


def test_connections_that_are_cut_in_the_middle_of_messages_cost_nothing(folder) -> None:
    """Each connection ends after a random number of bytes, in whatever is under way just then."""
    mdp = fg.examples.garnet(200, 2, 3, discount=0.7, seed=0, connected=True)
    fed = fg.Federation(mdp, fg.policies.random(200, 2, count=4, seed=1), num_agents=4)
    settings = {"step_size": 0.1, "sync_period": 200, "num_steps": 1_800}
    experiment = Experiment(fed, fg.QLearning(), **settings, seed=5, record_params=True)
    site = Site(folder, [(0, 1), (2, 3)], dimension=400)
    draw, events = random.Random(2), []
    budgets: dict[int, int] = {}

    def cut(visit: int, by_node: bool, some: bytes) -> bytes:
        left = budgets.setdefault(visit, draw.randrange(6_000, 24_000))
        budgets[visit] = max(0, left - len(some))
        return some[:left]

    with site.transport() as transport, relay(site.port, cut) as port, Nodes() as nodes:
        for name, agents in site.homes.items():
            link = dataclasses.replace(site.link(name), server=f"127.0.0.1:{port}")
            nodes.start(link, experiment.node(agents, folder / name / "state").answer)
        outcome = serve(site, experiment, transport, Rules(retry_after=0.2), events.append)
    record = outcome.history.settings.record
    options = {"record": record, "record_params": True}
    expected = fg.run(fed, fg.QLearning(), **settings, seeds=(5,), **options)
    assert_equal(outcome.history, expected)
    assert_no_sample_twice(folder)
    lost = [event["reason"] for event in events if event["event"] == "lost"]
    assert lost.count("the connection was lost") >= 3
    assert outcome.participation.all()


def assert_no_sample_twice(folder: pathlib.Path) -> None:
    """Each agent computed each step at most once, by the nodes' own logs."""
    for log in folder.rglob("node.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        computed = [each for each in lines if each["event"] == "computed"]
        assert computed
        steps = Counter(
            (agent, step)
            for each in computed
            for agent in each["agents"]
            for step in range(each["first"], each["last"] + 1)
        )
        assert max(steps.values()) == 1


def test_a_run_as_a_user_starts_it_equals_the_simulator(tmp_path, capsys) -> None:
    """Also where the current directory has a folder `fegsam` with a pyproject.toml."""
    study, output, place = write_study(tmp_path, rounds=4), tmp_path / "out", tmp_path / "parent"
    (place / "fegsam").mkdir(parents=True)
    (place / "fegsam" / "pyproject.toml").write_text("[project]\nname = 'fegsam'\n")
    with command("run", study, "-o", output, log=tmp_path / "log", cwd=place) as process:
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    events = read_events(output)
    private = [*output.rglob("*.key"), *output.rglob("node.toml")]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    # Run again, it is found finished, and nothing is started; and nothing else is mixed into it.
    words = ["federate", "run", str(study), "-o", str(output)]
    assert main(words) == 0
    assert len(read_events(output)) == len(events)
    for more, reason in (
        (["--seed", "8"], "under seed 7"),
        (["--nodes", "2"], "on 4 nodes"),
        (["--transport", "flower"], "over grpc"),
        (["--insecure"], "with keys"),
    ):
        assert main([*words, *more]) == 2
        assert reason in capsys.readouterr().err


@contextlib.contextmanager
def deployment(tmp_path: pathlib.Path, rounds: int, *options: str):
    """`init`; the study, the place of its directories, and a function that starts a part."""
    study, place, output = write_study(tmp_path, rounds=rounds), tmp_path / "d", tmp_path / "out"
    host = ["--host", "127.0.0.1", "--port", str(free_port()), "--nodes", "2"]
    assert main(["federate", "init", str(place), str(study), *host, *options]) == 0
    with contextlib.ExitStack() as stack:

        def start(part: str) -> subprocess.Popen[str]:
            if part == "server":
                words = ["server", place / "server", "-o", output]
            else:
                words = ["node", place / "nodes" / part]
            return stack.enter_context(command(*words, log=tmp_path / f"{part}.log"))

        yield study, place, output, start


@pytest.mark.slow
def test_fifty_kills_at_random_moments_change_no_number(tmp_path) -> None:
    draw = random.Random(1)
    with deployment(tmp_path, 4000) as (study, place, output, start):
        parts = {part: start(part) for part in ("server", "node-0", "node-1")}
        for _ in range(50):
            time.sleep(draw.uniform(0.0, 3.0))
            part = draw.choice(list(parts))
            if parts[part].poll() is None:
                parts[part].kill()
                parts[part].wait()
                parts[part] = start(part)
            if parts["server"].poll() == 0:
                break
        assert parts["server"].wait(PATIENCE) == 0
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert all(event["missing"] == [] for event in named(output, "round"))
    assert named(output, "samples-lost") == []
    assert_no_sample_twice(place / "nodes")


@pytest.mark.slow
def test_a_node_that_starts_with_an_old_state_or_none_changes_no_number(tmp_path) -> None:
    with deployment(tmp_path, 600) as (study, place, output, start):
        parts = {part: start(part) for part in ("server", "node-0", "node-1")}
        old: dict[pathlib.Path, bytes] = {}
        for gone in (True, False, True):
            count = len(named(output, "round"))
            wait_for("rounds", lambda n=count: len(named(output, "round")) > n + 20, PATIENCE)
            parts["node-1"].kill()
            parts["node-1"].wait()
            for path in place.glob("nodes/node-1/state/*/*.state"):
                old.setdefault(path, path.read_bytes())
                path.unlink()
            if not gone:
                for path, content in old.items():
                    path.write_bytes(content)
            parts["node-1"] = start("node-1")
        assert parts["server"].wait(PATIENCE) == 0
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert all(event["missing"] == [] for event in named(output, "round"))
    (log,) = place.glob("nodes/node-1/state/*/node.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len([line for line in lines if line["event"] == "skipped"]) >= 3


@pytest.mark.slow
def test_full_disks_are_one_sentence_each_and_cost_nothing(tmp_path) -> None:
    """No file of a process may grow, as if there were no room; then there is some again."""
    everything = resource.RLIM_INFINITY, resource.RLIM_INFINITY
    with deployment(tmp_path, 1500) as (study, place, output, start):
        parts = {part: start(part) for part in ("server", "node-0", "node-1")}
        wait_for("rounds", lambda: len(named(output, "round")) > 5, PATIENCE)
        resource.prlimit(parts["node-1"].pid, resource.RLIMIT_FSIZE, (0, everything[1]))
        wait_for("a failure", lambda: named(output, "failed"), PATIENCE)
        (reason,) = {event["reason"] for event in named(output, "failed")}
        assert reason == "state unusable"
        resource.prlimit(parts["node-1"].pid, resource.RLIMIT_FSIZE, everything)
        count = len(named(output, "round"))
        wait_for("rounds", lambda: len(named(output, "round")) > count + 5, PATIENCE)
        full = (output / "events.jsonl").stat().st_size, everything[1]
        resource.prlimit(parts["server"].pid, resource.RLIMIT_FSIZE, full)
        assert parts["server"].wait(PATIENCE) == 2
        said = (tmp_path / "server.log").read_text().strip().splitlines()[-1]
        assert "cannot be written (File too large); make room there, then start again." in said
        parts["server"] = start("server")
        assert parts["server"].wait(PATIENCE) == 0
        assert [parts[part].wait(60) for part in ("node-0", "node-1")] == [0, 0]
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert named(output, "samples-lost") == []
    assert_no_sample_twice(place / "nodes")


@pytest.mark.slow
def test_parts_that_are_stopped_for_two_minutes_go_on(tmp_path) -> None:
    with deployment(tmp_path, 3000) as (study, place, output, start):
        parts = {part: start(part) for part in ("server", "node-0", "node-1")}
        for part in ("node-1", "server"):
            count = len(named(output, "round"))
            wait_for("rounds", lambda n=count: len(named(output, "round")) > n + 5, PATIENCE)
            parts[part].send_signal(signal.SIGSTOP)
            time.sleep(120)
            assert parts[part].poll() is None
            parts[part].send_signal(signal.SIGCONT)
        assert parts["server"].wait(PATIENCE) == 0
        assert [parts[part].wait(60) for part in ("node-0", "node-1")] == [0, 0]
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert_no_sample_twice(place / "nodes")


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_goes_on_when_run_again(tmp_path) -> None:
    study, output = write_study(tmp_path, rounds=2000), tmp_path / "out"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with command("run", study, "-o", output, log=tmp_path / "log") as process:
            before = len(named(output, "round"))
            wait_for("rounds", lambda n=before: len(named(output, "round")) > n, PATIENCE)
            process.send_signal(number)
            process.wait(60)
        wait_for("the end of its processes", lambda: not _descendants(output), 20.0)
    with command("run", study, "-o", output, log=tmp_path / "log") as process:
        wait_for("its nodes", lambda: len(_descendants(output)) == 4, PATIENCE)
        for victim in _descendants(output)[:2]:
            os.kill(victim, signal.SIGKILL)
        assert process.wait(PATIENCE) == 0
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert len(named(output, "node-died")) == 2


def _descendants(output: pathlib.Path) -> list[int]:
    """The processes of the nodes of a run: their log is open there."""
    found = []
    logs = {str(path.resolve()) for path in (output / "deployment" / "nodes").glob("*/node.log")}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "fd" / "1") in logs:
                found.append(int(entry.name))
    return found
