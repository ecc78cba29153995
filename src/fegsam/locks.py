"""A lock for one process at a time, which is released however its process ends."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any

from fegsam.errors import ProblemError

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None


class Locked(Exception):
    """Another process has the lock; the message is its process number."""


def lock(path: pathlib.Path, mode: int = 0o777) -> contextlib.AbstractContextManager[Any]:
    """Lock the file at `path` for this process; leaving the returned context releases it.

    A missing folder is created with `mode`. The holder's process number is in a file beside the
    lock: where locks are mandatory, as on Windows, no other process can read the locked file.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
    holder, own = path.with_name(f"{path.name}.pid"), str(os.getpid())
    held = _acquired(path)
    if held is None:
        raise Locked(holder.read_text() if holder.exists() else "unknown")
    # A file that is written anew goes to the disk at once, which takes longer than all the rest.
    if not holder.exists() or holder.read_text() != own:
        holder.write_text(own)
    return held


def _acquired(path: pathlib.Path) -> contextlib.AbstractContextManager[Any] | None:
    """A lock, or None if another process has it."""
    if fcntl is None:
        return _acquired_anywhere(path)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _acquired_anywhere(path: pathlib.Path) -> contextlib.AbstractContextManager[Any] | None:
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        raise ProblemError("Locks need filelock; run: pip install 'fegsam[experiments]'") from None
    try:
        # Any thread may release it: a thread-local lock would stay if another thread closed it.
        return FileLock(path, timeout=0, thread_local=False).acquire()
    except Timeout:
        return None
