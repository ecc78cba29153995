"""What a function or a value consists of, as bytes, so that a changed one is noticed."""

from __future__ import annotations

import types
from typing import Any

import numpy as np


def content_of(value: Any) -> bytes:
    """Bytes that are equal for equal content, as far as Python tells it.

    A function is its code, its defaults and what it closes over; of an object of another class only
    the name of the class is known.

    >>> content_of(lambda x: x + 1) == content_of(lambda x: x + 1)
    True
    >>> content_of(lambda x: x + 1) == content_of(lambda x: x + 2)
    False
    """
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [_code(value.__code__), *map(content_of, (*cells, value.__defaults__))]
        return b"\0".join(parts)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + value.tobytes()
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic | type(None)):
        return f"{type(value).__name__} {value!r}".encode()
    if isinstance(value, tuple | list):
        return b"\0".join([type(value).__name__.encode(), *map(content_of, value)])
    if isinstance(value, dict):
        return b"\0".join([b"dict", *map(content_of, sorted(value.items(), key=repr))])
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}".encode()


def _code(code: types.CodeType) -> bytes:
    constants = [
        _code(each) if isinstance(each, types.CodeType) else repr(each).encode()
        for each in code.co_consts
    ]
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *constants])
