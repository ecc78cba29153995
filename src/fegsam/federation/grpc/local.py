"""A whole federation on this machine over gRPC: the server here, and one process for each node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fegsam.federation.deployment import NodeSide, ServerSide, address
from fegsam.federation.errors import FederationError
from fegsam.federation.grpc import nursery
from fegsam.federation.grpc.listener import addresses, open_port
from fegsam.federation.grpc.server import opened, run_server
from fegsam.federation.grpc.transport import GrpcTransport
from fegsam.federation.interrupts import terminable
from fegsam.federation.protocol.ledger import EVENTS_FILE, Event
from fegsam.federation.protocol.state import append_event, held

_PAUSE = 0.5
"""Seconds before a dead node is started again, for each death since the last round."""
_DEATHS = 5
"""Deaths of one node that are tolerated without a round between them."""


def run_here(
    side: ServerSide,
    output: Path,
    nodes: Sequence[NodeSide],
    *,
    on_event: Callable[[Event], None],
) -> None:
    """Run a federation to its end; every process that it started ends with it."""
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(held(output / "run.lock", "this federation"))
        stack.enter_context(terminable())
        sockets = open_port(*side.listen)
        (port,) = {port for _, port in addresses(sockets)}
        transport = stack.enter_context(opened(side, output, sockets))
        show = _Show(output / EVENTS_FILE, on_event)
        hosts = _Nodes(nodes, address(side.listen[0], port), transport, show)
        stack.enter_context(hosts.running())
        run_server(side, output, transport, on_event=hosts.see)


class _Show:
    """Shows the events of the server and of its nodes, one at a time."""

    def __init__(self, log: Path, on_event: Callable[[Event], None]) -> None:
        self._log, self._on_event, self._lock = log, on_event, threading.Lock()

    def show(self, event: Event) -> None:
        with self._lock:
            self._on_event(event)

    def add(self, name: str, **details: Any) -> None:
        """Log an event, too."""
        event = {"event": name, "clock": time.time(), **details}
        append_event(self._log, event)
        self.show(event)


class _Nodes:
    """The processes of the nodes; a process that dies is started again."""

    def __init__(
        self, sides: Sequence[NodeSide], server: str, transport: GrpcTransport, show: _Show
    ) -> None:
        self._sides = {side.name: side for side in sides}
        self._server, self._transport, self._show = server, transport, show
        self._deaths: Counter[str] = Counter()
        self._ending = False

    def see(self, event: Event) -> None:
        """Show an event of the server; a round shows that the nodes live."""
        if event["event"] == "round":
            self._deaths.clear()
        self._show.show(event)

    @contextmanager
    def running(self) -> Any:
        life, ours = os.pipe()
        environ = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", nursery.__name__, str(life)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(life,),
            start_new_session=True,
        )
        os.close(life)
        watch = threading.Thread(target=self._watch, daemon=True)
        try:
            for side in self._sides.values():
                self._start(side)
            watch.start()
            yield
        finally:
            self._ending = True
            os.close(ours)
            self._process.wait()

    def _start(self, side: NodeSide) -> None:
        is_study = side.experiment.suffix == ".toml"
        order = {
            "name": side.name,
            "directory": str(side.directory),
            "study": str(side.experiment) if is_study else None,
            "trust": side.trust,
            "server": self._server,
        }
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died, and `_watch` says so
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def _watch(self) -> None:
        """Start nodes again that died; one that dies at once, again and again, ends the run."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if self._ending or said.get("status", 0) == 0:
                continue
            side, status = self._sides[said["name"]], said["status"]
            self._deaths[side.name] += 1
            deaths = self._deaths[side.name]
            self._show.add(
                "node-died", node=side.name, agents=list(side.agents[:20]), status=status
            )
            if deaths > _DEATHS:
                self._transport.fail(
                    FederationError(
                        f"{side.name} died {deaths} times without finishing a round: see the log "
                        f"{side.directory / nursery.LOG_FILE}."
                    )
                )
            threading.Timer(_PAUSE * deaths, self._start, (side,)).start()
        if not self._ending:
            self._transport.fail(
                FederationError(
                    "the process that starts nodes died: run the same command again, which resumes."
                )
            )
