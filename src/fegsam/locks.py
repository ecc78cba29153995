"""One process at a time in one place: a lock that goes with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
import pathlib
from typing import TextIO


class Locked(Exception):
    """Another process has the lock; which one is the message."""


def lock(path: pathlib.Path, mode: int = 0o777) -> TextIO:
    """The file of a lock that is this process's until it is closed. Its folder is made, with
    `mode`, where it is not there.

    The file stays when the lock goes: were it removed, two processes could hold two files of one
    name.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            raise Locked(file.read() or "unknown") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
