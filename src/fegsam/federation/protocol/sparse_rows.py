"""Rows of numbers as bytes, without loss: of each row only what differs from a base that both know.

The bytes are ``<f8`` and a zero byte, then each row: the number of entries whose bits differ from
the base (8 bytes, unsigned), their positions (4 bytes each, increasing) and their values (8 bytes
each). A row with more than two thirds of its entries changed is written in full, after the number
2^64 - 1. Whoever reads knows the shape, so no size in the bytes is ever trusted.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

_DTYPE = b"<f8\0"
_COUNT = struct.Struct("<Q")
_FULL = 2**64 - 1


class RowsError(ValueError):
    """Bytes that are not the rows expected; the text is a named reason."""


def _each(base: np.ndarray | float | None) -> Iterable[Any]:
    """The base of each row: its own, or one for all."""
    return base if isinstance(base, np.ndarray) and base.ndim > 1 else itertools.repeat(base)


def pack_rows(rows: np.ndarray, base: np.ndarray | None = None) -> bytes:
    """Write `rows` (m, d) as changes of `base` (d) or (m, d), or in full.

    Examples
    --------
    >>> base, out = np.arange(1000.0), np.empty((1, 1000))
    >>> row = base.copy()
    >>> row[[3, 7]] = 0.1, -0.0
    >>> packed = pack_rows(row[None], base)
    >>> unpack_rows(packed, base, out)
    [array([3, 7], dtype=uint32)]
    >>> len(packed), bool((out[0] == row).all())
    (36, True)
    """
    parts, rows = [_DTYPE], np.ascontiguousarray(rows, "<f8")
    for row, before in zip(rows, _each(base), strict=False):
        if before is not None:
            # Bits, not values: -0.0 is not 0.0.
            places = np.flatnonzero(row.view(np.uint64) != before.view(np.uint64))
            if 12 * len(places) < 8 * len(row):
                some = (_COUNT.pack(len(places)), places.astype("<u4").tobytes())
                parts += [*some, row[places].tobytes()]
                continue
        parts += [_COUNT.pack(_FULL), row.tobytes()]
    return b"".join(parts)


def unpack_rows(
    packed: bytes, base: np.ndarray | float, out: np.ndarray
) -> list[np.ndarray | slice]:
    """Fill `out` (m, d) with the rows; `RowsError` if the bytes are not exactly that many.

    Returns
    -------
    The places of each row that were given; at all others it is equal to its base.
    """
    if packed[:4] != _DTYPE:
        raise RowsError("wrong dtype")
    at, width = 4, out.shape[1]
    given: list[np.ndarray | slice] = []
    for row, before in zip(out, _each(base), strict=False):
        if len(packed) < at + 8:
            raise RowsError("wrong shape")
        (count,) = _COUNT.unpack_from(packed, at)
        at += 8
        size = 8 * width if count == _FULL else 12 * count
        if (count != _FULL and count > width) or len(packed) < at + size:
            raise RowsError("wrong shape")
        if count == _FULL:
            row[:] = np.frombuffer(packed, "<f8", width, at)
            given.append(slice(None))
        else:
            places = np.frombuffer(packed, "<u4", count, at)
            if count and (places[-1] >= width or (places[1:] <= places[:-1]).any()):
                raise RowsError("wrong shape")
            row[:] = before
            row[places] = np.frombuffer(packed, "<f8", count, at + 4 * count)
            given.append(places)
        at += size
    if at != len(packed):
        raise RowsError("wrong shape")
    return given
