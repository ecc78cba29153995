"""Writes TOML with tomli-w."""

from __future__ import annotations

from fegsam.errors import ProblemError

try:
    from tomli_w import dumps as toml_text
except ImportError:
    raise ProblemError(
        "Writing TOML needs tomli-w; run: pip install 'fegsam[experiments]'"
    ) from None

__all__ = ["toml_text"]
