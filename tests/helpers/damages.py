"""What disks, networks and editors do to files: `damaged` files, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    changed[rng.integers(len(content))] ^= 1 << rng.integers(8)
    return bytes(changed)


def _stretch(content: bytes, rng: np.random.Generator) -> tuple[int, int]:
    length = min(int(2 ** rng.uniform(0, 13)), len(content) // 2)
    start = int(rng.integers(len(content) - length + 1))
    return start, start + length


def _hole(content: bytes, rng: np.random.Generator) -> bytes:
    start, end = _stretch(content, rng)
    return content[:start] + bytes(end - start) + content[end:]


def _noise(content: bytes, rng: np.random.Generator) -> bytes:
    start, end = _stretch(content, rng)
    return content[:start] + rng.bytes(end - start) + content[end:]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    # Half of them near the end, where the checksum is.
    return (
        content[: -int(rng.integers(1, 200))]
        if rng.random() < 0.5
        else content[: rng.integers(len(content))]
    )


def _longer(content: bytes, rng: np.random.Generator) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 200)))


def _lost(content: bytes, rng: np.random.Generator) -> bytes:
    start, end = _stretch(content, rng)
    return content[:start] + content[end:]


def _swapped(content: bytes, rng: np.random.Generator) -> bytes:
    size = int(2 ** rng.uniform(0, 12))
    first, second = sorted(rng.choice(len(content) // size, 2, replace=False) * size)
    one, two = content[first : first + size], content[second : second + size]
    return content[:first] + two + content[first + size : second] + one + content[second + size :]


def _end_lost_too(content: bytes, rng: np.random.Generator) -> bytes:
    """Two damages: the checksum is gone, and something else is wrong."""
    return _hole(_cut(content, rng), rng)


KINDS: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (
    _flip, _hole, _noise, _cut, _longer, _lost, _swapped, _end_lost_too,
)  # fmt: skip


def damaged(content: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Damaged copies, each with what was done to it, all kinds of damage in turn."""
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        yield f"{kind.__name__[1:]} {number}", kind(content, np.random.default_rng([seed, number]))
