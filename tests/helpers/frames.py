"""Frames as the wire documents them, for messages that no honest node makes."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from fegsam.federation.protocol.wire import encode

HEAD = struct.Struct("<4sBQ")
"""magic, kind, length of the body"""
MAGIC, REPLY = b"FGS2", 5
CHECKSUM = 32


def sealed(
    body: bytes, code: int = REPLY, magic: bytes = MAGIC, length: int | None = None
) -> bytes:
    """A frame of any content, with a checksum that is right."""
    content = HEAD.pack(magic, code, len(body) if length is None else length) + body
    return content + hashlib.sha256(content).digest()


def body_of(message: Any) -> bytes:
    return encode(message)[HEAD.size : -CHECKSUM]
