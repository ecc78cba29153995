"""The starts of rounds as the server sends them: encoded once, in full or as a few changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.wire import NO_BASE, Start, digest_of, encode


class Starts:
    """The start of the round at hand, for each node as changes of one that the node knows.

    A node knows the start of the last request that it answered, until its connection is lost, if
    nodes remember anything (`Transport.remembers`).
    """

    def __init__(self, fingerprint: str, remembers: bool = True) -> None:
        self._fingerprint, self._remembers = fingerprint, remembers
        self._known: dict[str, str] = {}
        """node -> digest of the last start that it knows"""
        self._forgetful: set[str] = set()
        """nodes that do not know what they were sent: each of their messages has its own process"""
        self._rows: dict[str, np.ndarray] = {}
        """of the last two rounds, by their digests"""
        self._frames: dict[str, bytes] = {}
        self._now = Start(fingerprint, 0, (), NO_BASE, NO_BASE, b"")

    def open(self, number: int, stops: tuple[int, ...], rows: np.ndarray) -> None:
        """Begin a round from `rows` (1 or 2, d)."""
        digest = digest_of(rows)
        before = self._rows.get(self._now.digest)
        self._rows = {} if before is None else {self._now.digest: before}
        self._rows[digest] = rows
        self._frames, self._now = {}, Start(self._fingerprint, number, stops, digest, NO_BASE, b"")

    def frame(self, node: str) -> bytes:
        """What to send to a node before its request."""
        base = self._known.get(node, NO_BASE)
        if base not in self._rows or node in self._forgetful:
            base = NO_BASE
        if base not in self._frames:
            packed = pack_rows(self._rows[self._now.digest], self._rows.get(base))
            self._frames[base] = encode(replace(self._now, base=base, params=packed))
        return self._frames[base]

    def answered(self, node: str) -> None:
        """Note that a node has answered the request of the round at hand."""
        if self._remembers:
            self._known[node] = self._now.digest

    def lost(self, node: str) -> None:
        """Note that a node may not know anything."""
        self._known.pop(node, None)

    def not_known(self, node: str) -> bool:
        """Note that a node did not know what it was sent changes of; return whether that is new."""
        new = node in self._known and node not in self._forgetful
        self._forgetful.add(node)
        return new
