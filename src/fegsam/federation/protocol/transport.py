"""How a server reaches its nodes: payloads out, payloads in, and word of those that will not
come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lost:
    """The transport knows that a node's answer will not come."""

    reason: str


class Transport(Protocol):
    """What a server asks of whatever carries its messages. Payloads are opaque (see `wire`); a node
    may get one twice."""

    def nodes(self) -> list[str]:
        """Who is connected now."""
        ...

    def send(self, node: str, payload: bytes) -> None:
        """Send without waiting for the answer. A node that is gone meanwhile is no error here:
        `receive` says so."""
        ...

    def receive(self, timeout: float) -> list[tuple[str, bytes | Lost]]:
        """All that has come, with its sender; waits at most `timeout` seconds for the first."""
        ...
