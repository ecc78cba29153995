"""The transport between a server and its nodes: payloads out; payloads, losses and joins in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Lost:
    """The transport knows that a node's answer is lost."""

    reason: str


@dataclass(frozen=True)
class Joined:
    """A node has connected, perhaps again: what was sent over an older connection is lost."""


class Transport(Protocol):
    """Carries a server's messages: opaque payloads (see `wire`), which a node may get twice.

    A node's name is that of its key, where nodes have keys; see `identity`.
    """

    remembers: bool
    """whether a node that gets a message knows what came in those before it"""

    def nodes(self) -> list[str]:
        """The nodes that are connected now."""
        ...

    def send(self, node: str, payload: bytes) -> None:
        """Send without waiting; that a node has gone is no error here, `receive` reports it."""
        ...

    def receive(self, timeout: float) -> list[tuple[str, bytes | Lost | Joined]]:
        """All messages so far with their senders; waits up to `timeout` seconds for the first."""
        ...
