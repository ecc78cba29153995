"""How much memory a spec or a file asks for, found before it is taken.

The head of a NumPy file of a hundred bytes can claim terabytes, and a compressed file can hold a
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
    """An array that does not fit into the machine's memory, or is larger than the file that should
    hold it."""


def require_memory(size: int, what: str) -> None:
    """Refuse what needs more memory than the machine has.

    >>> require_memory(10**18, "features")
    Traceback (most recent call last):
    fegsam.experiments.spec.array_sizes.TooLargeError: features would take 1.0e+18
    bytes of memory, and this machine has ...: make it smaller
    """
    if size > memory_limit():
        raise TooLargeError(
            f"{what} would take {size:.1e} bytes of memory, and this machine has "
            f"{memory_limit():.1e}: make it smaller"
        )


def check_array(file: IO[bytes], size: int) -> None:
    """Hold the head of an .npy file against the `size` of all of it."""
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
            f"that array should have {wanted} bytes, and {there} are there: save it anew"
        )
    require_memory(wanted, "that array")


def check_members(content: bytes, names: Collection[str] | None = None) -> None:
    """Hold the arrays of an .npz file, or those of some `names`, against their sizes in its table
    of contents."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if names is None or member.filename.removesuffix(".npy") in names:
                with archive.open(member) as file:
                    check_array(file, member.file_size)
