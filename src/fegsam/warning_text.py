"""Warnings as a command prints them."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_OWN = str(pathlib.Path(__file__).parent)


@contextmanager
def brief_warnings() -> Iterator[None]:
    """Print fegsam's own warnings as one sentence each, without the line of code that gave them.

    >>> with brief_warnings():
    ...     print(warnings.formatwarning("Use smaller steps.", UserWarning, __file__, 1), end="")
    fegsam: warning: Use smaller steps.
    """
    usual = warnings.formatwarning

    def brief(message: Any, category: Any, filename: str, *place: Any) -> str:
        if filename.startswith(_OWN):
            return f"fegsam: warning: {message}\n"
        return usual(message, category, filename, *place)

    warnings.formatwarning = brief
    try:
        yield
    finally:
        warnings.formatwarning = usual
