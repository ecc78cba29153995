"""Python in a process of its own: for what belongs to a whole process (threads, signals, terminals,
caches on disk)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

TESTS = pathlib.Path(__file__).parents[1]
HANG = 120.0
"""Seconds after which a process is given up; far beyond what any needs."""


def python_environment() -> dict[str, str]:
    """The environment of a Python process that finds the helper modules of the tests."""
    return os.environ | {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1"}


def python_path(*folders: pathlib.Path) -> str:
    """`folders`, `tests/`, and what this process was given."""
    path = [*map(str, folders), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.pathsep.join(path)


@contextlib.contextmanager
def started(
    code: str, *, stderr: int = subprocess.PIPE, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """`code` in a new interpreter that finds the helper modules of the tests; whatever happens, it
    does not outlive us."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=python_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[str], timeout: float = HANG) -> tuple[str, str]:
    """What it wrote to stdout and, where that is a pipe, to stderr; it must end by itself and
    without an error."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the process did not end within {timeout:g} s")
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    return out, err or ""


def run(code: str, **environment: str) -> str:
    """Run `code` to its end; what it wrote to stdout."""
    with started(code, **environment) as process:
        return finish(process)[0]


class Terminal:
    """A screen of 80 columns that a process believes to write its stderr to, and what is on it so
    far."""

    def __init__(self, ours: int, process: subprocess.Popen[str]) -> None:
        self._ours = ours
        self.process = process
        self.shown = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + HANG
        while text not in self.shown:
            assert time.monotonic() < deadline, (
                f"{text!r} did not appear; on the screen is {self.shown!r}"
            )
            assert self._read(), (
                f"{text!r} did not appear before the end; on the screen is {self.shown!r}"
            )

    def finish(self) -> str:
        """Read to the end of the process; what it wrote to stdout."""
        deadline = time.monotonic() + HANG
        while self._read() and time.monotonic() < deadline:
            pass
        return finish(self.process)[0]

    def _read(self) -> bool:
        """Read what is there; False once nobody can write any more."""
        if not select.select([self._ours], [], [], 0.2)[0]:
            return self.process.poll() is None
        try:
            some = os.read(self._ours, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.shown += some.decode(errors="replace")
        return bool(some)


@contextlib.contextmanager
def on_terminal(code: str, **environment: str) -> Iterator[Terminal]:
    """`code` in a new interpreter whose stderr is a terminal."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    try:
        with started(code, stderr=theirs, TERM="xterm", **environment) as process:
            os.close(theirs)
            yield Terminal(ours, process)
    finally:
        os.close(ours)
