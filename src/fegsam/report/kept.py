"""The finished parts of a long work: one file each, complete or absent.

    DIR/speed_up-<key>.json    the part's text, then a seal (see `safe_files`)

The key is a fingerprint of all that determines the part, apart from the code. A file gets its name
only when all of it is on the disk, so a work may be killed at any moment and goes on where it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from importlib import metadata

from fegsam.safe_files import (
    SEAL,
    DamagedError,
    append_seal,
    label_of,
    read_plain,
    sealed_by,
    whole,
)

FORMAT = 2
"""Increased whenever the same settings would give another text: old ones are then not used."""


class KeptParts:
    """The texts of finished parts in a directory.

    Parameters
    ----------
    directory : path
        Made when the first part is kept.
    engine : str
        The engine that computes the parts: those of another one are not read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = KeptParts(folder, "cpu")
    ...     kept.write("privacy", {"seeds": 4}, "It holds.")
    ...     kept.read("privacy", {"seeds": 4}), kept.read("privacy", {"seeds": 8})
    ('It holds.', None)
    """

    def __init__(self, directory: str | pathlib.Path, engine: str) -> None:
        self._folder, self._engine = pathlib.Path(directory), engine

    def read(self, name: str, settings: object) -> str | None:
        """The text of a part, or None if its file is missing, damaged or of other settings."""
        key = self._key(name, settings)
        path = self._path(name, key)
        try:
            if sealed_by(path) != label_of(key):
                return None
            return read_plain(path)[:-SEAL].decode("utf-8")
        except (OSError, DamagedError):
            return None

    def write(self, name: str, settings: object, text: str) -> None:
        """Keep a text durably: it survives a crash of the process or the machine."""
        key = self._key(name, settings)
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole(self._path(name, key)) as temporary:
            temporary.write_text(text, encoding="utf-8")
            append_seal(temporary, key)

    def _path(self, name: str, key: str) -> pathlib.Path:
        return self._folder / f"{name}-{key[:16]}.json"

    def _key(self, name: str, settings: object) -> str:
        parts = {
            "format": FORMAT,
            "fegsam": metadata.version("fegsam"),
            "part": name,
            "engine": self._engine,
            "settings": settings,
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """Settings as plain data: those of a claim are dataclasses and namespaces."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return vars(value)
