"""A transport within this process, with a clock of its own: nodes answer when the server waits, and
faults are scripted."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.node import Node
from fegsam.federation.protocol.server import FederationServer, Outcome, Rules
from fegsam.federation.protocol.transport import Joined, Lost

Behaviour = Callable[[Node, bytes], "bytes | Lost | Joined | None"]


def honest(node: Node, payload: bytes) -> bytes:
    return node.answer(payload)


class InMemory:
    """Nodes by name. What `behaviours` does for a node stands in for `Node.answer`: None is
    silence."""

    remembers = True

    def __init__(
        self, nodes: dict[str, Node], behaviours: dict[str, Behaviour] | None = None
    ) -> None:
        self.now = 0.0
        self.members = dict(nodes)
        self.behaviours = behaviours or {}
        self.away: set[str] = set()
        self.sent: list[tuple[str, bytes]] = []
        self.received: list[tuple[str, Any]] = []
        self.queue: list[tuple[str, Any]] = []

    def clock(self) -> float:
        return self.now

    def nodes(self) -> list[str]:
        return [name for name in self.members if name not in self.away]

    def send(self, node: str, payload: bytes) -> None:
        self.sent.append((node, payload))
        if node in self.away:
            return
        answer = self.behaviours.get(node, honest)(self.members[node], payload)
        if answer is not None:
            self.queue.append((node, answer))

    def receive(self, timeout: float) -> list[tuple[str, Any]]:
        self.now += timeout
        came, self.queue = self.queue, []
        self.received += came
        return came


def spread(
    experiment: Experiment, folder: pathlib.Path, homes: Iterable[Iterable[int]]
) -> dict[str, Node]:
    """Nodes "n0", "n1", ... with these agents, each with a state directory of its own."""
    return {f"n{i}": experiment.node(agents, folder / f"n{i}") for i, agents in enumerate(homes)}


def serve(
    experiment: Experiment,
    transport: InMemory,
    folder: pathlib.Path,
    rules: Rules | None = None,
    watch: Callable[[dict[str, Any]], None] | None = None,
    claims: Claims | None = None,
) -> tuple[Outcome, list[dict[str, Any]]]:
    """Run a server to its end, `watch` seeing each event; what came out, and its events."""
    events: list[dict[str, Any]] = []

    def see(event: dict[str, Any]) -> None:
        events.append(event)
        if watch is not None:
            watch(event)

    server = FederationServer(
        experiment.terms(),
        transport,
        folder / "server",
        rules,
        claims=claims,
        on_event=see,
        clock=transport.clock,
    )
    return server.run(), events
