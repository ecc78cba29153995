"""Cost of a federation's round without local steps and transport, against d and number of agents.

    python benchmarks/federation.py [--rounds 20] [--directory DIR]

Times are milliseconds of processor and wall time, the minimum over the rounds. For the server: ask
(encode the request for each node), check (decode and check every reply), average, and the whole
round, including records, log and checkpoint, with nodes that answer at once. For a node with one
agent: read its state, write its state, encode its reply. `fsync` is the time that the disk under
DIR takes to sync one small file; the server waits for this three times in a recorded round (twice
in others), and a node twice.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.server import Server
from fegsam.federation.protocol.state import AgentFile, Computed
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    FROM_SERVER,
    Ask,
    Expected,
    Hello,
    Reply,
    Request,
    check_reply,
    decode,
    encode,
)

ACTIONS = 5
PERIOD = 10


Times = tuple[float, float]


def now() -> np.ndarray:
    """Processor and wall seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def timed(rounds: int, work: Callable[[int], Any]) -> Times:
    """Minimum milliseconds of `work(number)`."""
    spent = []
    for number in range(rounds):
        began = now()
        work(number)
        spent.append(now() - began)
    return least(spent)


def least(spent: Any) -> Times:
    cpu, wall = 1e3 * np.min(spent, axis=0)
    return float(cpu), float(wall)


def experiment_of(dim: int, agents: int, rounds: int) -> Experiment:
    mdp = fg.examples.garnet(
        states=dim // ACTIONS, actions=ACTIONS, branching=3, discount=0.9, seed=0
    )
    fed = fg.Federation(mdp, fg.policies.uniform(dim // ACTIONS, ACTIONS), num_agents=agents)
    return Experiment(
        fed,
        fg.QLearning(),
        step_size=0.1,
        sync_period=PERIOD,
        num_steps=PERIOD * rounds,
        output_decay=0.5,
    )


class Instant:
    """A transport with one node per agent, which answers at once with prepared parameters."""

    def __init__(self, experiment: Experiment, agents: int, dim: int) -> None:
        self._print, self._agents = experiment.fingerprint, agents
        self._params = np.random.default_rng(0).normal(size=(agents, dim))
        self._queue: list[tuple[str, bytes]] = []
        self.away = np.zeros(2)
        """processor and wall seconds spent in the nodes"""

    def nodes(self) -> list[str]:
        return [str(agent) for agent in range(self._agents)]

    def send(self, node: str, payload: bytes) -> None:
        began = now()
        (message,) = decode(payload, FROM_SERVER)
        self._queue.append((node, encode(self._answer(int(node), message))))
        self.away += now() - began

    def _answer(self, agent: int, message: Ask | Request) -> Hello | Reply:
        if isinstance(message, Ask):
            return Hello(self._print, (agent,))
        steps = message.stops[-1]
        params = np.repeat(self._params[agent : agent + 1], len(message.stops), axis=0)
        return Reply(self._print, message.round, agent, steps, steps * (message.round + 1), params)

    def receive(self, timeout: float) -> list[tuple[str, bytes]]:
        came, self._queue = self._queue, []
        return came


def whole_rounds(experiment: Experiment, agents: int, dim: int, folder: pathlib.Path) -> Times:
    """Minimum milliseconds of a server's round, without the time of its nodes."""
    transport, marks = Instant(experiment, agents, dim), []

    def mark(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            marks.append(now() - transport.away)

    Server(experiment.terms(truth=False), transport, folder / "server", on_event=mark).run()
    return least(np.diff(marks, axis=0))


def server_parts(experiment: Experiment, agents: int, dim: int, rounds: int) -> Iterator[Times]:
    fingerprint, average = experiment.fingerprint, np.ones((1, dim))
    yield timed(
        rounds,
        lambda n: [
            encode(Request(fingerprint, n, (i,), (PERIOD,), average)) for i in range(agents)
        ],
    )
    everyone = range(agents)
    params = np.random.default_rng(0).normal(size=(agents, 1, dim))
    payloads = [encode(Reply(fingerprint, 0, i, PERIOD, PERIOD, params[i])) for i in everyone]
    expected = Expected(
        fingerprint, 0, PERIOD, (1, dim), 1e9, everyone, everyone, (), [0] * agents, [0] * agents
    )
    yield timed(
        rounds,
        lambda _: [check_reply(decode(payload, FROM_NODE)[0], expected) for payload in payloads],
    )
    yield timed(rounds, lambda _: np.array([params[i] for i in everyone]).mean(axis=0))


def node_parts(
    experiment: Experiment, dim: int, rounds: int, folder: pathlib.Path
) -> Iterator[Times]:
    file, params = AgentFile(folder / "node", experiment.fingerprint, 0), np.ones((1, dim))
    state = experiment.agent(0).save()
    with file.held():
        write = timed(rounds, lambda n: file.write(state, Computed(n, "", params)))
        yield timed(rounds, lambda _: file.read())
        yield write
    yield timed(
        rounds, lambda n: encode(Reply(experiment.fingerprint, n, 0, PERIOD, PERIOD, params))
    )


def disk(rounds: int, folder: pathlib.Path) -> Times:
    def confirm(number: int) -> None:
        with (folder / f"probe{number}").open("wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())

    return timed(rounds, confirm)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--directory", help="where to store state; by default the system's temporary directory"
    )
    arguments = parser.parse_args()
    columns = ("ask", "check", "average", "round", "read", "write", "reply", "fsync")
    print(f"{'':>15}{''.join(f'{name:>16}' for name in columns)}")
    print(f"{'d':>8}{'agents':>7}{8 * '      cpu   wall'}")
    for dim in (100, 1_000, 10_000, 100_000):
        for agents in (4, 64):
            with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
                folder = pathlib.Path(place)
                experiment = experiment_of(dim, agents, arguments.rounds)
                values = [
                    *server_parts(experiment, agents, dim, arguments.rounds),
                    whole_rounds(experiment, agents, dim, folder),
                    *node_parts(experiment, dim, arguments.rounds, folder),
                    disk(arguments.rounds, folder),
                ]
            print(
                f"{dim:>8}{agents:>7}{''.join(f'{cpu:>9.2f}{wall:>7.2f}' for cpu, wall in values)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
