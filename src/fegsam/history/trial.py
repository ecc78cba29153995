"""Read a whole NetCDF file in a separate process: ``python trial.py FILE MOST``.

The NetCDF library can hang or crash over a damaged file that has no checksum. The caller can kill
this process. It imports nothing from the package, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import sys
from typing import Any

import netCDF4
import numpy as np


def declared_bytes(file: Any) -> int:
    """The bytes of memory that the arrays of an open `netCDF4.Dataset` need.

    A file of a few bytes can declare arrays of any size.
    """
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
            return  # `storage` refuses it, and says why
        for variable in file.variables.values():
            variable[...]
            variable.__dict__  # noqa: B018  reads its attributes
        file.__dict__  # noqa: B018


if __name__ == "__main__":
    main()
