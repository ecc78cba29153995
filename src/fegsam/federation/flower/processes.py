"""The processes of a federation, found by a mark in their environment.

Flower puts some of its processes into separate sessions, and a killed parent leaves its children
running; but every process inherits the mark. Without /proc, only the processes that are started
here are ended, and Flower must end their children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

MARK = "FEGSAM_FEDERATION"

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""No telemetry, no check for updates, no installation at run time."""

_GRACE = 8.0
"""Seconds between SIGTERM and SIGKILL."""


def environment(home: Path, mark: str, **more: str) -> dict[str, str]:
    """The environment of a Flower process with its files in `home`.

    Flower looks for its other programs on the PATH.
    """
    programs = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    return (
        os.environ
        | OFFLINE
        | {"FLWR_HOME": str(home), "PATH": programs, MARK: mark, "PYTHONUNBUFFERED": "1"}
        | more
    )


def program(name: str) -> str:
    """The path of a program in the environment of this Python."""
    return str(Path(sys.executable).parent / name)


def start(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that Ctrl-C reaches us first; `log` has its output."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def marked(mark: str) -> list[int]:
    """The ids of all other processes that carry `mark`."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def alive(pid: int, mark: str) -> bool:
    """Whether process `pid` carries `mark` and is alive; a zombie is not."""
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except OSError:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def end(pid: int, mark: str) -> None:
    """Kill process `pid` if it carries `mark`, and wait until it has ended."""
    while alive(pid, mark):
        _signal([pid], signal.SIGKILL)
        time.sleep(0.05)


def end_all(mark: str, children: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    """End `children` and every process that carries `mark`, first by SIGTERM, then by SIGKILL."""
    _signal(
        [*marked(mark), *(child.pid for child in children if child.poll() is None)], signal.SIGTERM
    )
    deadline = time.monotonic() + _GRACE
    while (left := _left(mark, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left:  # a process that was just being started may have missed SIGTERM
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
        left = _left(mark, children)


def _left(mark: str, children: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    own = {child.pid for child in children}
    return [
        *(child.pid for child in children if child.poll() is None),
        *(pid for pid in marked(mark) if pid not in own),
    ]


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
