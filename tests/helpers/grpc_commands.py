"""Federations over gRPC as a user starts them: processes that are killed, stopped and started."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

from fegsam.federation.protocol.ledger import Event, read_events
from helpers.processes import python_environment

PROGRAM = """
import signal, sys; from fegsam import cli
signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(cli.main(sys.argv[1:]))
"""


@contextlib.contextmanager
def command(
    *words: str | pathlib.Path, log: pathlib.Path, cwd: pathlib.Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`fegsam federate WORDS`; whatever happens, it does not outlive us."""
    with open(log, "a") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "federate", *map(str, words)],
            stdout=said,
            stderr=said,
            text=True,
            cwd=cwd,
            env=python_environment() | {"PYTHONSAFEPATH": "1"},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def named(output: pathlib.Path, name: str) -> list[Event]:
    return [event for event in read_events(output) if event["event"] == name]


def processes_with(text: str) -> list[int]:
    """The processes whose command line has a text."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
