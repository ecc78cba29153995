"""A lock for one process at a time, which is released however its process ends."""

from __future__ import annotations

import os
import pathlib

from fegsam.errors import ProblemError

try:
    from filelock import AcquireReturnProxy, FileLock, Timeout
except ImportError:
    raise ProblemError("Locks need filelock; run: pip install 'fegsam[experiments]'") from None


class Locked(Exception):
    """Another process has the lock; the message is its process number."""


def lock(path: pathlib.Path, mode: int = 0o777) -> AcquireReturnProxy:
    """Lock the file at `path` for this process; leaving the returned context releases it.

    A missing folder is created with `mode`. The holder's process number is in a file beside the
    lock: where locks are mandatory, as on Windows, no other process can read the locked file.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
    holder = path.with_name(f"{path.name}.pid")
    try:
        # Any thread may release it: a thread-local lock would stay if another thread closed it.
        held = FileLock(path, timeout=0, thread_local=False).acquire()
    except Timeout:
        raise Locked(holder.read_text() if holder.exists() else "unknown") from None
    holder.write_text(str(os.getpid()))
    return held
