"""The memory that a spec or a file asks for, checked before it is allocated.

The header of a NumPy file of a hundred bytes can claim terabytes, and a compressed file can hold a
thousand times its own size.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection
from typing import IO

import numpy as np

from fegsam.errors import ProblemError
from fegsam.safe_files import memory_limit


class TooLargeError(ProblemError):
    """An array that exceeds the machine's memory or the file that should hold it."""


def require_memory(size: int, what: str) -> None:
    """Refuse an array of `size` bytes if the machine has less memory.

    >>> require_memory(10**18, "features")
    Traceback (most recent call last):
    fegsam.experiments.spec.array_sizes.TooLargeError: features would take 1.0e+18
    bytes of memory, but this machine has ...: make it smaller
    """
    if size > memory_limit():
        raise TooLargeError(
            f"{what} would take {size:.1e} bytes of memory, but this machine has "
            f"{memory_limit():.1e}: make it smaller"
        )


def check_array(file: IO[bytes], size: int) -> None:
    """Check the header of an .npy file against the `size` of the whole file."""
    version = np.lib.format.read_magic(file)
    heads = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in heads:
        raise ValueError(f"version {version}")
    shape, _, dtype = heads[version](file)
    wanted, there = dtype.itemsize * math.prod(shape), size - file.tell()
    if wanted > there:
        raise TooLargeError(
            f"that array should have {wanted} bytes, but the file holds {there}: save it again"
        )
    require_memory(wanted, "that array")


def check_members(content: bytes, names: Collection[str] | None = None) -> None:
    """Check the arrays of an .npz file, or those in `names`, against its table of contents."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if names is None or member.filename.removesuffix(".npy") in names:
                with archive.open(member) as file:
                    check_array(file, member.file_size)
