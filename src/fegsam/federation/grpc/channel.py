"""What both ends of a stream agree on: its frames, its bounds and gRPC's settings.

A frame is one byte that says its kind, and for a payload the bytes of `protocol.wire`. The server
pings a node that says nothing, and a node answers while it computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fegsam.federation.errors import FederationError

try:
    import grpc.aio  # noqa: F401
except ImportError as error:
    raise FederationError(
        "A federation on several machines needs gRPC; run: pip install 'fegsam[federation]'"
    ) from error

METHOD = "/fegsam.Federation/Work"
NAME_HEADER = "fegsam-node"
"""Where a node without a key says its name."""

PAYLOAD, PING, PONG, END = b"\0", b"\1", b"\2", b"\3"
"""The kinds of frames; END tells a node that the federation has ended."""

_FIRST_BYTES = 64 << 10


@dataclass(frozen=True)
class Pulse:
    """How one end notices that the other is dead."""

    every: float = 10.0
    """seconds of silence before a ping"""
    dead: float = 60.0
    """seconds of silence after which the other end counts as dead"""
    probe: float = 3.0
    """seconds in which an older connection must answer, when a second one comes with its key"""


def first_bound(agents: int) -> int:
    """The most bytes of a node's first payload, which says its agents."""
    return _FIRST_BYTES + 16 * agents


def options(pulse: Pulse, most: int) -> list[tuple[str, Any]]:
    """gRPC's settings for streams with messages of at most `most` bytes."""
    every, timeout = int(1000 * pulse.every), int(1000 * (pulse.dead - pulse.every))
    return [
        ("grpc.max_receive_message_length", most + len(PAYLOAD)),
        ("grpc.max_send_message_length", -1),
        # With the keepalive timeout alone, a peer that is frozen goes unnoticed.
        ("grpc.keepalive_time_ms", every),
        ("grpc.keepalive_timeout_ms", timeout),
        ("grpc.http2.ping_timeout_ms", timeout),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        # The window of a stream holds one message, so that it needs no second round trip.
        ("grpc.http2.lookahead_bytes", max(1 << 16, min(most, 1 << 24))),
        # It need not be measured either, which costs a ping for each message.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", 8192),
    ]
