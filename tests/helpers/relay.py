"""A port that leads to another port, and looks at or cuts what goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Through = Callable[[int, bool, bytes], bytes]
"""Called with the number of the visit, whether the visitor said it, and the bytes; what is passed
on. If that is less, both connections are cut after it."""


@contextlib.contextmanager
def relay(port: int, through: Through) -> Iterator[int]:
    """Lead visitors of a new port of this machine to `port`; the new port."""
    listening = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = [listening]
    threads: list[threading.Thread] = []

    def start(work: Callable[..., None], *given: object) -> None:
        threads.append(threading.Thread(target=work, args=given, daemon=True))
        threads[-1].start()

    def copy(source: socket.socket, target: socket.socket, visit: int, said: bool) -> None:
        with contextlib.suppress(OSError):
            while some := source.recv(65536):
                passed = through(visit, said, some)
                target.sendall(passed)
                if len(passed) < len(some):
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        visit = 0
        with contextlib.suppress(OSError):
            while True:
                visitor, _ = listening.accept()
                ends.append(visitor)
                try:
                    there = socket.create_connection(("127.0.0.1", port))
                except OSError:  # the server is away
                    visitor.close()
                    continue
                ends.append(there)
                start(copy, visitor, there, visit, True)
                start(copy, there, visitor, visit, False)
                visit += 1

    start(accept)
    try:
        yield listening.getsockname()[1]
    finally:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in threads:
            thread.join(10)
