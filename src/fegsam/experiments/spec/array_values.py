"""Arrays in a spec: nested lists or files.

A file is written ``"file.npz:name"``, ``"file.npy"``, or ``"file.npz"`` for a scipy sparse matrix.
Its content identifies it: the SHA-256 is computed when the spec is read, enters the key of every
cell that uses the file, and is compared when the array is loaded.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fegsam.errors import SpecError
from fegsam.experiments.spec.array_sizes import (
    TooLargeError,
    check_array,
    check_members,
    require_memory,
)
from fegsam.experiments.spec.wording import show
from fegsam.safe_files import read_plain

LARGEST = 10**300
"""Numbers beyond this are refused: their squares are far beyond double precision."""
INPUTS = "inputs"
"""The folder of copies of its files, beside a stored copy of a spec."""
CELLS = "cells"
"""The folder of results, beside a stored copy of a spec."""


@dataclass(frozen=True)
class FileRef:
    """A file that a spec names, and the part of it that is meant.

    Attributes
    ----------
    path : str
        The absolute path.
    name : str
        The name of the array or function; empty for an .npy file.
    sha256 : str
        The SHA-256 of the file's bytes when the spec was read.
    stored : bool
        Whether the spec and the file are copies stored with results.
    """

    path: str
    name: str
    sha256: str
    stored: bool = False

    def read(self) -> bytes:
        """The file's bytes; an error if they changed since the spec was read."""
        content = _bytes(Path(self.path))
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise SpecError(f"{self.path} has changed since the spec was read: read the spec again")
        return content


def file_ref(value: str, directory: Path) -> FileRef:
    """A reference ``"path"`` or ``"path:name"``.

    Relative paths are looked up in `directory`, then among its copies of inputs.
    """
    path, _, name = (
        value.rpartition(":") if not value.endswith((".npz", ".npy", ".py")) else (value, "", "")
    )
    if not path:
        raise ValueError(
            f"is {value!r}, but must name a file and an entry of it: write 'file.npz:name'"
        )
    beside, copy = directory / path, directory / INPUTS / Path(path).name
    try:
        whole = next((p for p in (beside, copy) if p.is_file()), beside)
        content = _bytes(whole)
    except SpecError as error:
        raise ValueError(f"is {value!r}, but {error}") from None
    stored = (
        whole.resolve().is_relative_to((directory / INPUTS).resolve())
        or (directory / CELLS).is_dir()
    )
    return FileRef(str(whole.resolve()), name, hashlib.sha256(content).hexdigest(), stored)


def array_value(value: Any, directory: Path) -> FileRef | float | tuple[Any, ...]:
    """The checked value of an array in a spec.

    It is a reference, a number, or a rectangular nest of tuples of finite numbers.
    """
    if isinstance(value, str):
        ref = file_ref(value, directory)
        _from_file(ref)
        return ref
    try:
        _shape(value)
    except _Ragged:
        raise ValueError("has rows of different lengths: give rows of one length") from None
    return _floats(value)


def load_array(value: FileRef | float | tuple[Any, ...]) -> np.ndarray:
    """The array of a checked value: float64, or the type that the file has.

    >>> load_array(((1.0, 2.0), (3.0, 4.0))).shape
    (2, 2)
    """
    if isinstance(value, FileRef):
        return _from_file(value)
    return np.array(value, dtype=np.float64)


def array_names(ref: FileRef) -> list[str]:
    """The names of the arrays in an .npz file."""
    try:
        return list(_open(ref.read()).files)
    except _Unusable as error:
        raise ValueError(f"is {Path(ref.path).name!r}, but {error}") from None


def _from_file(ref: FileRef) -> Any:
    shown = f"{Path(ref.path).name}:{ref.name}" if ref.name else Path(ref.path).name
    try:
        if ref.path.endswith(".npz"):
            content = ref.read()
            stored = _open(content)
            if not ref.name and "format" in stored.files:
                return _sparse(content)
            if ref.name not in stored.files:
                names = ", ".join(stored.files) or "nothing"
                raise _Unusable(f"that file holds {names}: name one of its arrays after a colon")
            check_members(content, [ref.name])
            array = stored[ref.name]
        elif ref.path.endswith(".npy") and not ref.name:
            content = ref.read()
            check_array(io.BytesIO(content), len(content))
            array = np.load(io.BytesIO(content), allow_pickle=False)
        else:
            raise _Unusable(
                "arrays are read from .npz and .npy files: write 'file.npz:name' or 'file.npy'"
            )
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise _Unusable("that array has entries that are not finite numbers: correct it")
    except (_Unusable, TooLargeError) as error:
        raise ValueError(f"is {shown!r}, but {error}") from None
    except SpecError:
        raise
    except (
        ValueError,
        OSError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
        MemoryError,
    ):
        raise ValueError(
            f"is {shown!r}, but that array cannot be read: save it with numpy.save or numpy.savez"
        ) from None
    return array


def _sparse(content: bytes) -> Any:
    """A matrix that scipy.sparse.save_npz saved."""
    check_members(content)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as parts:
            require_memory(8 * max(map(int, parts["shape"])), "that matrix")
        matrix = sparse.csr_array(sparse.load_npz(io.BytesIO(content)))
    except TooLargeError:
        raise
    except (ValueError, OSError, KeyError, MemoryError):
        raise _Unusable("that is not a file of scipy.sparse.save_npz: save it again") from None
    return matrix


def _open(content: bytes) -> Any:
    try:
        # np.load would read an .npy file with a wrong name completely.
        if zipfile.is_zipfile(io.BytesIO(content)):
            return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        pass
    raise _Unusable("that is not an .npz file: save it with numpy.savez")


def _bytes(path: Path) -> bytes:
    try:
        return read_plain(path)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or 'not a path'}): check "
            "the path"
        ) from None


class _Unusable(Exception):
    """A file cannot be used; the message says why."""


class _Ragged(Exception):
    """Rows of different lengths."""


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        return ()
    shapes = {_shape(entry) for entry in value}
    if len(shapes) > 1:
        raise _Ragged
    return (len(value), *(shapes.pop() if shapes else ()))


def _floats(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_floats(entry) for entry in value)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -LARGEST < value < LARGEST
    ):
        raise ValueError(
            f"has an entry {show(value)}, but every entry must be a finite number: correct it"
        )
    return float(value)
