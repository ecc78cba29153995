"""The server's transport over Flower's `Grid`: one opaque payload per message, each way."""

from __future__ import annotations

import time
from typing import Any

from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.transport import Joined, Lost

try:
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise FederationError(
        "A federation on several machines needs Flower; run: pip install 'fegsam[flower]'"
    ) from error

RECORD, PAYLOAD = "fegsam", "payload"
"""The place of the payload in a message, which holds nothing else."""

_LOOK = 0.25
"""Seconds between two polls for replies."""


def packed(payload: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({PAYLOAD: payload})})


def unpacked(content: RecordDict) -> bytes | None:
    """The payload, or None if it is missing or not bytes: the other side may send anything."""
    record: Any = content.get(RECORD)
    payload = record.get(PAYLOAD) if isinstance(record, ConfigRecord) else None
    return payload if isinstance(payload, bytes) else None


class GridTransport:
    """A `Transport` over a Grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    lifetime : float
        Seconds after which a message that no node has fetched is dropped.
    """

    remembers = False
    """Flower starts a new process for each message."""

    def __init__(self, grid: Grid, lifetime: float) -> None:
        self._grid = grid
        self._lifetime = lifetime
        self._open: dict[str, tuple[str, bytes]] = {}
        """ids of messages that await a reply, with their node and payload"""
        self._under_way: set[tuple[str, bytes]] = set()
        """those of them that the node will still process: it has not left since"""

    def nodes(self) -> list[str]:
        connected = [str(node) for node in self._grid.get_node_ids()]
        self._under_way = {
            (node, payload) for node, payload in self._under_way if node in connected
        }
        return connected

    def send(self, node: str, payload: bytes) -> None:
        """Send a payload, unless the node has not yet processed an equal one.

        Flower starts a process for each message in turn. On a slow machine repeated requests would
        pile up faster than they are answered.
        """
        if (node, payload) in self._under_way:
            return
        message = Message(
            packed(payload),
            dst_node_id=int(node),
            message_type=MessageType.TRAIN,
            ttl=self._lifetime,
        )
        self._open.update(
            (identity, (node, payload)) for identity in self._grid.push_messages([message])
        )
        self._under_way.add((node, payload))

    def receive(self, timeout: float) -> list[tuple[str, bytes | Lost | Joined]]:
        deadline = time.monotonic() + timeout
        while not (came := self._replies()) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK, left))
        return came

    def _replies(self) -> list[tuple[str, bytes | Lost | Joined]]:
        if not self._open:
            return []
        came: list[tuple[str, bytes | Lost | Joined]] = []
        for reply in self._grid.pull_messages(list(self._open)):
            asked = self._open.pop(reply.metadata.reply_to_message_id, None)
            if asked is None:
                continue
            self._under_way.discard(asked)
            node, _ = asked
            if reply.has_error():
                came.append(
                    (node, Lost(f"Flower's error {reply.error.code}: {reply.error.reason}"))
                )
            elif (payload := unpacked(reply.content)) is None:
                came.append((node, Lost("a reply without a payload")))
            else:
                came.append((node, payload))
        return came
