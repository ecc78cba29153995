"""Supervises the server's machine: runs the SuperLink, the gate and the server app.

A process that dies is started again. The server app resumes from its checkpoint, the SuperLink from
its database and nodes from their agents' files, so the run ends with the same numbers whichever
process is killed. The log of events names every process that died. All processes end with the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from fegsam.experiments.spec.toml_text import toml_text
from fegsam.federation.deployment import NodeSide, ServerSide, address
from fegsam.federation.errors import FederationError
from fegsam.federation.flower.gate import Gate
from fegsam.federation.flower.processes import alive, end, end_all, environment, program, start
from fegsam.federation.flower.server import FLOWER_FOLDER, OUTPUT, SERVER, AppStatus
from fegsam.federation.flower.superlink import HOST, SuperLink, free_port
from fegsam.federation.interrupts import terminable, undisturbed
from fegsam.federation.protocol.ledger import EVENTS_FILE, Event
from fegsam.federation.protocol.state import append_event, held
from fegsam.federation.strangers import STRANGERS_FILE

APP = {
    "project": {
        "name": "fegsam-federation",
        "version": "1.0.0",
        "description": "A federation",
        "license": "Apache-2.0",
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "fegsam",
                "components": {
                    "serverapp": "fegsam.federation.flower.server:app",
                    "clientapp": "fegsam.federation.flower.client:app",
                },
            }
        }
    },
}
"""The Flower app; it refers to the package installed on every machine, and carries no code."""

_LOOK = 0.3
_START = 180.0
"""Seconds that a server app may take to start."""
_NODE_PAUSE = 20.0
"""Seconds before a dead node is started again; Flower readmits a killed node after about 65."""
_DEATHS = 3
"""Deaths of the server app or the SuperLink that are tolerated without a round between them."""


def mark_of(directory: Path) -> str:
    """The mark of the processes that belong to `directory`."""
    return hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]


def node_command(side: NodeSide, server: str | None = None) -> tuple[list[str], Path]:
    """The command of a node's SuperNode, and its home directory.

    `server` overrides the server's address in the node's file.
    """
    home = side.directory / "flower"
    home.mkdir(exist_ok=True, mode=0o700)
    forget_apps(home)
    config = {
        "experiment": str(side.experiment),
        "state-dir": str(side.state_dir),
        "agents": ",".join(map(str, side.agents)),
        "data": str(side.data),
    }
    more = {} if side.seed is None else {"seed": side.seed}
    more |= {"salt": side.salt} if side.salt else {}
    more |= {"trust": True} if side.trust else {}
    (home / "node-config.toml").write_text(toml_text(config | more), encoding="utf-8")
    keys = ["--insecure"]
    if side.authority is not None:
        keys = [
            "--root-certificates",
            str(side.authority),
            "--auth-supernode-private-key",
            str(side.key),
        ]
    command = [program("flower-supernode"), "--superlink", server or side.server, *keys]
    return [
        *command,
        "--node-config",
        str(home / "node-config.toml"),
        "--host",
        HOST,
        "--port",
        str(free_port()),
    ], home


def become_node(side: NodeSide) -> NoReturn:
    """Replace this process by Flower's SuperNode, so that its supervisor supervises the node."""
    command, home = node_command(side)
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment(home, mark_of(side.directory)))
    except FileNotFoundError:
        raise FederationError("A node needs Flower; run: pip install 'fegsam[flower]'") from None


def forget_apps(home: Path) -> None:
    """Remove cached apps, which Flower would run as if they came from the server."""
    for folder in (home / "app", home / "apps"):
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)


class Supervisor:
    """Runs a federation to its end.

    Parameters
    ----------
    side : ServerSide
    output : Path
        The directory of results, checkpoint and log; its folder `flower` has Flower's files.
    nodes : sequence of NodeSide
        Nodes to run on this machine too.
    fresh : bool
        Remove the SuperLink's database. This is safe only if all nodes are on this machine, since
        they ended with the last run.
    on_event : callable
        It is called with every event of the log as it occurs.
    """

    def __init__(
        self,
        side: ServerSide,
        output: Path,
        nodes: Sequence[NodeSide] = (),
        *,
        fresh: bool,
        on_event: Callable[[Event], None],
    ) -> None:
        self._side, self._output, self._nodes = side, output.resolve(), nodes
        self._home = self._output / FLOWER_FOLDER
        self._mark = mark_of(output)
        self._fresh = fresh
        self._on_event = on_event
        self._read = 0
        """bytes of the log that were shown"""
        self._deaths = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Run until the server app has finished; in any case, end all processes."""
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as stack:
            stack.enter_context(held(self._home / "supervisor.lock", "this federation"))
            stack.enter_context(terminable())
            end_all(self._mark)  # left over from a supervisor that was killed
            stack.callback(self._end)
            self._start(stack)
            while not self._finished():
                self._show_events()
                self._care_for_superlink()
                self._care_for_server_app()
                self._care_for_nodes()
                time.sleep(_LOOK)
            self._show_events()

    def _start(self, stack: ExitStack) -> None:
        side = self._side
        if self._fresh:
            for file in (*self._home.glob("superlink.db*"), self._home / "run"):
                file.unlink(missing_ok=True)
        forget_apps(self._home)
        self._app = self._home / "app"
        self._app.mkdir(exist_ok=True)
        (self._app / "pyproject.toml").write_text(toml_text(APP), encoding="utf-8")
        log = self._output / EVENTS_FILE
        self._read = log.stat().st_size if log.exists() else 0
        environ = environment(
            self._home,
            self._mark,
            **{SERVER: str(side.directory), OUTPUT: str(self._output), "OPENBLAS_NUM_THREADS": "1"},
        )
        self._superlink = SuperLink(self._home, environ, side.tls, free_port())
        self._start_superlink()
        self._submit()
        # Only now are the nodes' keys registered: a SuperNode that comes before ends for good.
        gate = Gate(
            *side.listen, (HOST, self._superlink.port), side.tls, self._output / STRANGERS_FILE
        )
        self._gate_port = stack.enter_context(gate).port
        self._running = {side.name: self._start_node(side) for side in self._nodes}
        self._restart_at = dict.fromkeys(self._running, 0.0)

    def _end(self) -> None:
        with undisturbed():
            end_all(self._mark, self._processes)

    def _event(self, name: str, **details: Any) -> None:
        append_event(self._output / EVENTS_FILE, {"event": name, "clock": time.time(), **details})

    def _show_events(self) -> None:
        log = self._output / EVENTS_FILE
        if not log.exists():
            return
        with log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with suppress(json.JSONDecodeError):  # an incomplete line of a process that died
                event = json.loads(line)
                if event["event"] == "round":
                    self._deaths = 0
                self._on_event(event)

    def _start_superlink(self) -> None:
        self._superlink.start()
        assert self._superlink.process is not None
        self._processes.append(self._superlink.process)

    def _start_node(self, side: NodeSide) -> subprocess.Popen[bytes]:
        command, home = node_command(side, address(HOST, self._gate_port))
        environ = environment(home, self._mark, OPENBLAS_NUM_THREADS="1")
        process = start(command, home / "supernode.log", environ)
        self._processes.append(process)
        return process

    def _submit(self) -> None:
        """Run the app; an unfinished run is ended, and its checkpoint stays."""
        file = self._home / "run"
        before = file.read_text() if file.exists() else None
        job = AppStatus.read(self._home)
        if job is not None:
            # Without its SuperLink the old app would run for a while, and lock the checkpoint.
            end(job.pid, self._mark)
        AppStatus.clear(self._home)
        file.write_text(self._superlink.prepare(self._side.node_keys, self._app, before))
        self._submitted = time.monotonic()

    def _finished(self) -> bool:
        job = AppStatus.read(self._home)
        if job is not None and job.state == "failed":
            self._show_events()
            raise FederationError(job.error)
        return job is not None and job.state == "finished"

    def _care_for_superlink(self) -> None:
        if self._superlink.running:
            return
        self._died("superlink-died")
        self._start_superlink()
        self._submit()

    def _care_for_server_app(self) -> None:
        job = AppStatus.read(self._home)
        if job is None:
            if time.monotonic() - self._submitted > _START:
                raise FederationError(
                    f"the server app did not start: see the log {self._home / 'superlink.log'}."
                )
        elif job.state == "running" and not alive(job.pid, self._mark):
            self._died("server-died", pid=job.pid)
            self._submit()

    def _died(self, event: str, **details: Any) -> None:
        self._event(event, **details)
        self._deaths += 1
        if self._deaths > _DEATHS:
            raise FederationError(
                f"the server died {self._deaths} times without finishing a round: see the log "
                f"{self._home / 'superlink.log'}."
            )

    def _care_for_nodes(self) -> None:
        now = time.monotonic()
        for side in self._nodes:
            process, due = self._running[side.name], self._restart_at[side.name]
            if process.poll() is None:
                continue
            if not due:
                self._event(
                    "node-died", node=side.name, agents=list(side.agents), status=process.returncode
                )
                self._restart_at[side.name] = now + _NODE_PAUSE
            elif now >= due:
                self._running[side.name] = self._start_node(side)
                self._restart_at[side.name] = 0.0
