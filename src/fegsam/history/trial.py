"""Reads a NetCDF file to its end, in a process of its own: ``python trial.py FILE MOST``.

The library underneath can loop for ever, or crash, over a damaged file that has no checksum.
Whoever starts this process can end it. It imports nothing of the package, so that it starts in a
fraction of a second.
"""

from __future__ import annotations

import sys
from typing import Any

import netCDF4
import numpy as np


def declared_bytes(file: Any) -> int:
    """How much memory the arrays of an open `netCDF4.Dataset` ask for; a file of a few bytes can
    ask for any amount."""
    return sum(
        np.dtype(variable.dtype).itemsize * int(np.prod(variable.shape, dtype=object))
        if variable.dtype is not str
        else 8 * int(np.prod(variable.shape, dtype=object))
        for variable in file.variables.values()
    )


def main() -> None:
    path, most = sys.argv[1], int(sys.argv[2])
    with netCDF4.Dataset(path) as file:
        if declared_bytes(file) > most:
            return  # refused by its reader, which says so
        for variable in file.variables.values():
            variable[...]
            variable.__dict__  # noqa: B018  reads its attributes
        file.__dict__  # noqa: B018


if __name__ == "__main__":
    main()
