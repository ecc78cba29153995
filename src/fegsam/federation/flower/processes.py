"""Processes that end with us: everything that a federation starts carries a mark, and by it all is
found again.

Flower puts some of its processes into sessions of their own, and a parent that was killed leaves
its children behind; a mark in the environment is inherited all the same. Where there is no /proc,
the processes started here are ended, and theirs are left to Flower.
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
"""No word to anybody, no update looked for, nothing installed at run time."""

_GRACE = 8.0
"""Seconds between asking a process to end and ending it."""


def environment(home: Path, mark: str, **more: str) -> dict[str, str]:
    """For a Flower process with its files in `home`; Flower looks for its other programs on the
    PATH."""
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
    """A program of the environment that this Python runs in."""
    return str(Path(sys.executable).parent / name)


def start(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches us first; what it prints is added to
    `log`."""
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
    """The ids of all processes that carry `mark`, this one excepted."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def alive(pid: int, mark: str) -> bool:
    """Whether process `pid` carries `mark` and lives; one that ended and was not waited for does
    not."""
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
    """End process `pid` if it carries `mark`, without asking it."""
    while alive(pid, mark):
        _signal([pid], signal.SIGKILL)
        time.sleep(0.05)


def end_all(mark: str, children: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    """End every process that carries `mark`, and `children`: asked first, then not asked."""
    _signal(
        [*marked(mark), *(child.pid for child in children if child.poll() is None)], signal.SIGTERM
    )
    deadline = time.monotonic() + _GRACE
    while (left := _left(mark, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left:  # a process that was just starting another may have been too late to be asked
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
