"""Runs Flower's SuperLink for one federation: starts it, registers nodes and submits the app.

The SuperLink listens only on the loopback address (`gate` says why), and is controlled by Flower's
command line.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fegsam.experiments.spec.toml_text import toml_text
from fegsam.federation.credentials import Tls
from fegsam.federation.errors import FederationError
from fegsam.federation.flower import commands as flower_commands
from fegsam.federation.flower.processes import program, start

HOST = "127.0.0.1"
_NAME = "fegsam"
_PATIENCE = 120.0
"""Seconds for the SuperLink to listen, and for its commands; a slow machine needs a tenth."""


def free_port() -> int:
    """A free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class SuperLink:
    """One SuperLink with its files in `home`.

    Parameters
    ----------
    home : Path
        The folder of its database (registered keys and runs outlive it), its log and the
        connection file of Flower's command line.
    environ : mapping
        The environment of its processes, which include the server app.
    tls : Tls, or None for plain text and nodes without keys
    """

    def __init__(self, home: Path, environ: Mapping[str, str], tls: Tls | None, port: int) -> None:
        self.home, self.port = home, port
        self._environ, self._tls = environ, tls
        self.process: subprocess.Popen[bytes] | None = None
        connection: dict[str, str | bool] = {"address": f"{HOST}:{port}"}
        connection |= (
            {"insecure": True} if tls is None else {"root-certificates": str(tls.authority)}
        )
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            toml_text({"superlink": {_NAME: connection}}), encoding="utf-8"
        )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        secured = ["--insecure"]
        if self._tls is not None:
            tls = self._tls
            secured = [
                "--ssl-ca-certfile",
                str(tls.authority),
                "--ssl-certfile",
                str(tls.certificate),
            ]
            secured += ["--ssl-keyfile", str(tls.key), "--enable-supernode-auth"]
        address = [
            "--host",
            HOST,
            "--port",
            str(self.port),
            "--database",
            str(self.home / "superlink.db"),
        ]
        command = [
            program("flower-superlink"),
            *address,
            *secured,
            "--disable-runtime-dependency-installation",
        ]
        self.process = start(command, self.home / "superlink.log", self._environ)
        deadline = time.monotonic() + _PATIENCE
        while not self._listens():
            if not self.running or time.monotonic() > deadline:
                raise FederationError(
                    f"Flower's SuperLink did not start: see the log {self.home / 'superlink.log'}."
                )
            time.sleep(0.1)

    def prepare(self, keys: Sequence[Path], app: Path, unfinished: str | None = None) -> str:
        """Register the public keys of nodes, end the run `unfinished`, and run the app.

        Nodes that are already registered stay registered. Returns the id of the run.
        """
        commands = [["supernode", "register", str(key), _NAME] for key in keys]
        commands += [["stop", unfinished, _NAME]] if unfinished else []
        *before, submitted = self._tell([*commands, ["run", str(app), _NAME]])
        for key, answer in zip(keys, before, strict=False):
            if not answer.get("success") and "already in use" not in str(answer):
                raise FederationError(f"the key {key} was not registered: {_reason(answer)}.")
        if not submitted.get("success"):
            raise FederationError(f"Flower did not take the app: {_reason(submitted)}.")
        return str(submitted["run-id"])

    def _tell(self, commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Run commands of Flower's command line, and return their answers."""
        process = subprocess.Popen(
            [sys.executable, "-m", flower_commands.__name__, json.dumps(commands)],
            env=self._environ,
            # Flower takes the connection's name for an app if a folder of that name is here.
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                out, _ = process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise FederationError(
                    "Flower's SuperLink does not answer: see the log "
                    f"{self.home / 'superlink.log'}."
                ) from None
        parts = out.split(flower_commands.SEPARATOR)[:-1]
        if len(parts) != len(commands):
            raise FederationError(f"Flower's command line failed: {out.strip()[-300:]}")
        return [_parsed(part) for part in parts]

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True


def _parsed(text: str) -> dict[str, Any]:
    """The JSON object in an output that may have other lines."""
    try:
        return json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return {"success": False, "error-message": text.strip()[-300:]}


def _reason(answer: Mapping[str, Any]) -> str:
    return str(answer.get("error-message", answer)).rstrip(".")
