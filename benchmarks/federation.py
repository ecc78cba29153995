"""Seconds a round of a federation over gRPC, with TLS and every fsync, on the loopback address.

    python benchmarks/federation.py [--only NAME ...] [--directory DIR]

The server, its gate and the nodes are the real ones; nodes share a few processes, so that a
thousand of them fit on one machine. The agents run tabular Q-learning on a Garnet problem with
K = 50. The table has the median and the 90th percentile of a round's milliseconds, after the first
rounds, the processor time of the server's process, of its gate and of all nodes for a round (on
two cores, half of their sum is the least that a round can take), the bytes of a round up and down,
the seconds of the whole run, and the largest difference of its result from the simulator's.
"latency" delays every message by 50 ms each way. "4 nodes, Flower" is the same federation by the
command `fegsam federate run --transport flower`, for comparison; without Flower it is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.federation.credentials import (
    Tls,
    make_authority,
    make_node,
    make_server,
    private_directory,
)
from fegsam.federation.grpc.keys import KeyBook
from fegsam.federation.grpc.listener import addresses, open_port
from fegsam.federation.grpc.node import Link, stay_connected
from fegsam.federation.grpc.transport import GrpcTransport, Hall
from fegsam.federation.local import run_locally
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.server import FederationServer
from fegsam.federation.protocol.wire import most_bytes

ACTIONS, PERIOD = 5, 50
FLOWER = "4 nodes, Flower"
FIRST_ROUNDS = 3
FILES_AT_ONCE = 2
"""Nodes of a process that may wait for the disk at the same time, as separate machines do."""
DELAY = 0.05


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    nodes: int
    agents: int
    dimension: int
    rounds: int
    goal: float
    """seconds a round"""
    processes: int = 2
    """processes that the nodes share"""
    delay: float = 0.0


SETTINGS = {
    "4 nodes": Setting(4, 4, 10_000, 100, 0.02, processes=4),
    "64 nodes": Setting(64, 64, 10_000, 30, 0.1),
    "1000 connections": Setting(1000, 1000, 10_000, 20, 1.0),
    "1000 agents on 4 nodes": Setting(4, 1000, 10_000, 15, 0.6, processes=4),
    "d = 10^6": Setting(4, 4, 1_000_000, 15, 0.2, processes=4),
    "latency": Setting(4, 4, 10_000, 30, 0.13, processes=4, delay=DELAY),
    "10^4 rounds": Setting(4, 4, 1_000, 10_000, 0.02, processes=4),
}


FLOWER_STUDY = f"""
[study]
name = "flower"
seeds = 1
[problem]
generator = "garnet"
states = {{states}}
actions = {ACTIONS}
branching = 3
discount = 0.9
seed = 0
[problem.behavior]
kind = "uniform"
[algorithm]
name = "q_learning"
[run]
num_steps = {{steps}}
output_decay = 0.5
record = 2
[grid]
num_agents = 4
sync_period = {PERIOD}
step_size = 0.1
"""


def experiment_of(setting: Setting) -> Experiment:
    states = setting.dimension // ACTIONS
    mdp = fg.examples.garnet(states=states, actions=ACTIONS, branching=3, discount=0.9, seed=0)
    fed = fg.Federation(mdp, fg.policies.uniform(states, ACTIONS), num_agents=setting.agents)
    return Experiment(
        fed,
        fg.QLearning(),
        step_size=0.1,
        sync_period=PERIOD,
        num_steps=PERIOD * setting.rounds,
        output_decay=0.5,
        record=2,
    )


def homes_of(setting: Setting) -> dict[str, list[int]]:
    return {
        f"n{node}": list(range(node, setting.agents, setting.nodes))
        for node in range(setting.nodes)
    }


def host(name: str, folder: pathlib.Path, port: int, part: int) -> None:
    """Run some of the nodes in this process."""
    setting = SETTINGS[name]
    experiment, homes = experiment_of(setting), homes_of(setting)

    async def all_of_them() -> None:
        links, worker = [], ThreadPoolExecutor(FILES_AT_ONCE)
        for node in list(homes)[part :: setting.processes]:
            tls = Tls(folder / "ca.pem", folder / node / "node.pem", folder / node / "node.key")
            most = most_bytes(len(homes[node]), setting.dimension)
            answer = experiment.node(homes[node], folder / node / "state").answer
            link = Link(node, f"127.0.0.1:{port}", tls, most)
            links.append(stay_connected(link, answer, worker, lambda text: None))
        gc.freeze()
        await asyncio.gather(*links)

    asyncio.run(all_of_them())


async def delay(port: int, ready: Any) -> None:
    """Pass bytes on, each `DELAY` seconds later."""

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            loop = asyncio.get_running_loop()
            while some := await source.read(1 << 18):
                loop.call_later(DELAY, target.write, some)
            loop.call_later(DELAY, target.close)

        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(visit, "127.0.0.1", 0)
    ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


@contextmanager
def delayed(port: int) -> Iterator[int]:
    """A port that leads to `port`, with latency."""
    words = [sys.executable, __file__, "--delay", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def measure(name: str, folder: pathlib.Path) -> list[str]:
    """The row of a setting."""
    setting = SETTINGS[name]
    homes, experiment = homes_of(setting), experiment_of(setting)
    authority = make_authority(private_directory(folder / "authority"))
    make_server(folder, ["127.0.0.1"], authority)
    keys = private_directory(folder / "nodes")
    for node in homes:
        make_node(private_directory(folder / node), keys / f"{node}.pub", authority)
    tls = Tls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    sockets = open_port("127.0.0.1", 0)
    ((_, port),) = addresses(sockets)
    hall = Hall(tls, KeyBook(keys), homes, setting.dimension, lambda node: len(homes[node]))
    marks: list[tuple[float, ...]] = []
    hosts: list[int] = []

    def mark(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            bytes_of = event["bytes_up"], event["bytes_down"]
            gate, nodes = cpu_seconds(transport.gate), sum(map(cpu_seconds, hosts))
            marks.append((time.perf_counter(), time.process_time(), gate, nodes, *bytes_of))

    with ExitStack() as stack:
        transport = stack.enter_context(GrpcTransport(sockets, hall, lambda *_, **__: None))
        reached = stack.enter_context(delayed(port)) if setting.delay else port
        for part in range(setting.processes):
            words = [__file__, "--host", json.dumps([name, str(folder), reached, part])]
            process = subprocess.Popen([sys.executable, *words])
            hosts.append(process.pid)
            stack.callback(process.wait)
            stack.callback(process.kill)
        server = FederationServer(
            experiment.terms(truth=False),
            transport,
            folder / "results",
            claims=Claims(homes),
            on_event=mark,
        )
        gc.freeze()
        outcome = server.run()
        transport.finish()
    spent = np.diff(np.array(marks)[min(FIRST_ROUNDS, len(marks) - 2) :], axis=0)
    wall, *cpu, up, down = 1e3 * np.median(spent, axis=0)
    cpu[1:] = 1e3 * spent[:, 2:4].mean(axis=0)  # their clocks tick in steps of 10 ms
    return [
        name,
        f"{wall:.1f}",
        f"{1e3 * np.quantile(spent[:, 0], 0.9):.1f}",
        f"{1e3 * setting.goal:g}",
        *(f"{each:.1f}" for each in cpu),
        f"{up / 1e6:.1f}",
        f"{down / 1e6:.1f}",
        f"{marks[-1][0] - marks[0][0]:.1f}",
        f"{apart(experiment, outcome.history):.0e}",
    ]


def measure_flower(folder: pathlib.Path) -> list[str]:
    """The row of four nodes over Flower, each a process of Flower's with one agent."""
    rounds = 2 * FIRST_ROUNDS
    study = folder / "study.toml"
    study.write_text(FLOWER_STUDY.format(states=10_000 // ACTIONS, steps=PERIOD * rounds))
    marks: list[tuple[float, ...]] = []

    def mark(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            marks.append((time.perf_counter(), event["bytes_up"], event["bytes_down"]))

    stored = run_locally(study, folder / "results", transport="flower", on_event=mark)
    spent = np.diff(np.array(marks)[1:], axis=0)
    wall, up, down = 1e3 * np.median(spent, axis=0)
    experiment = Experiment.from_spec(study, None)
    return [
        FLOWER,
        f"{wall:.1f}",
        f"{1e3 * np.quantile(spent[:, 0], 0.9):.1f}",
        *4 * "-",
        f"{up / 1e6:.1f}",
        f"{down / 1e6:.1f}",
        f"{marks[-1][0] - marks[0][0]:.1f}",
        f"{apart(experiment, fg.load_history(stored)):.0e}",
    ]


def cpu_seconds(process: int | None) -> float:
    """The processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def apart(experiment: Experiment, deployed: fg.History) -> float:
    """The largest difference of the final parameters from the simulator's."""
    simulated = fg.run(
        experiment.problem,
        experiment.algorithm,
        step_size=experiment.step_size,
        sync_period=PERIOD,
        num_steps=experiment.num_steps,
        output_decay=0.5,
        record=2,
        fixed_point=np.zeros_like(experiment.start),
    )
    gap = deployed.data["final_params"].values - simulated.data["final_params"].values
    return float(np.abs(gap).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SETTINGS, *([FLOWER] if find_spec("flwr") else [])]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--directory", help="where to store state; by default the system's temporary directory"
    )
    for hidden in ("--host", "--delay"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.host:
        name, folder, port, part = json.loads(given.host)
        host(name, pathlib.Path(folder), port, part)
        os._exit(0)
    if given.delay:
        asyncio.run(delay(int(given.delay), lambda port: print(port, flush=True)))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    header = ("setting", "median", "90 %", "goal", "server", "gate", "nodes")
    header += ("kB up", "kB down", "all, s", "apart")
    print(f"{header[0]:<24}" + "".join(f"{each:>10}" for each in header[1:]) + "   (ms a round)")
    for name in given.only:
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            path = pathlib.Path(folder)
            first, *rest = measure_flower(path) if name == FLOWER else measure(name, path)
            print(f"{first:<24}" + "".join(f"{each:>10}" for each in rest), flush=True)


if __name__ == "__main__":
    main()
