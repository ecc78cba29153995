"""Federations on Flower as a user starts them: the command, what is waited for, and what was
logged."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from fegsam.federation.flower.processes import end_all, environment
from fegsam.federation.protocol.ledger import Event, read_events
from helpers.processes import python_environment

FLOWER = ("--transport", "flower")
PATIENCE = 1800.0
"""Seconds for anything that is waited for. Flower takes about 65 to see that a node is gone, more
where the machine is busy."""

# Tests that run in the background of a shell inherit that Ctrl-C is ignored.
CLI = """
import signal, sys; from fegsam import cli
signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(cli.main(sys.argv[1:]))
"""


@contextlib.contextmanager
def command(
    *words: str | pathlib.Path, code: str = CLI, output: pathlib.Path
) -> Iterator[subprocess.Popen[str]]:
    """`fegsam WORDS`; nothing that it started outlives it."""
    log = output.with_name(f"{output.name}.{words[1]}.log")
    with open(log, "a") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            stdout=said,
            stderr=said,
            text=True,
            env=python_environment(),
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(
    what: str, met: Callable[[], object], process: subprocess.Popen[str] | None = None
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE:g} s"
        assert process is None or process.poll() is None, f"the federation ended before {what}"
        time.sleep(0.2)


def named(output: pathlib.Path, name: str) -> list[Event]:
    return [event for event in read_events(output) if event["event"] == name]


def try_to_join(words: list[str], home: pathlib.Path) -> int:
    """The exit status of a SuperNode that is not let in."""
    home.mkdir()
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(words, env=environment(home, str(home)), stdout=log, stderr=log)
    try:
        return process.wait(PATIENCE)
    finally:
        end_all(str(home), [process])


def strangers(output: pathlib.Path) -> list[Event]:
    log = output / "strangers.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
