"""Requests as a server sends them: the start of a round, and who should make it."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np

from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.wire import (
    FROM_SERVER,
    NO_BASE,
    Request,
    Start,
    decode,
    digest_of,
    encode,
)


def request(
    fingerprint: str,
    number: int,
    agents: Sequence[int],
    stops: Sequence[int],
    rows: np.ndarray,
    *,
    times: Sequence[int] | None = None,
    heard: Sequence[int] = (),
    corrections: np.ndarray | None = None,
) -> bytes:
    """The payload that asks `agents` for the round `number` from `rows`."""
    packed = b"" if corrections is None else pack_rows(corrections)
    return encode(
        Start(fingerprint, number, tuple(stops), digest_of(rows), NO_BASE, pack_rows(rows)),
        Request(
            fingerprint,
            number,
            tuple(agents),
            tuple([0] * len(agents) if times is None else times),
            tuple(heard),
            packed,
        ),
    )


def request_of(payload: bytes) -> Request | None:
    """The request in a payload to a node; None if it is a greeting."""
    message = decode(payload, FROM_SERVER)[-1]
    return message if isinstance(message, Request) else None


def state_files(folder: pathlib.Path, fingerprint: str) -> list[pathlib.Path]:
    """The files that a node keeps its agents' states in, the oldest first."""
    found = (folder / fingerprint[:16]).glob("*.state")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)
