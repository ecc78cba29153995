"""The keys that a server knows: the files ``nodes/NAME.pub``, read again as they change."""

from __future__ import annotations

import os
from pathlib import Path

from fegsam.federation.credentials import listed_key
from fegsam.federation.errors import FederationError


class KeyBook:
    """The names of nodes by the SHA-256 of their keys.

    A key that is deleted from the folder is unknown from the next `refresh` on, and so is one whose
    file was spoilt.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, str]] = {}
        """file -> its time of change and its key"""
        self._names: dict[str, str] = {}
        if problem := self.refresh():
            raise problem

    def refresh(self) -> FederationError | None:
        """Read what is new; what is wrong with the files, if something is."""
        problem, found = None, dict[str, tuple[int, str]]()
        try:
            for entry in os.scandir(self._folder):
                if entry.name.endswith(".pub"):
                    changed = entry.stat().st_mtime_ns
                    known = self._seen.get(entry.name, (0, ""))
                    try:
                        found[entry.name] = (
                            known
                            if known[0] == changed
                            else (changed, listed_key(Path(entry.path)))
                        )
                    except FederationError as error:
                        problem = error
        except OSError as error:
            problem = FederationError(
                f"the keys in {self._folder} cannot be read ({error.strerror}): restore them."
            )
        names: dict[str, str] = {}
        for file, (_, key) in sorted(found.items()):
            name = names.setdefault(key, file.removesuffix(".pub"))
            if name != file.removesuffix(".pub"):
                problem = FederationError(
                    f"{self._folder / file} has the key of node {name}: give each its own."
                )
        self._seen, self._names = found, names
        return problem

    def name_of(self, key: str) -> str | None:
        """The name of the node with a key, or None."""
        return self._names.get(key)
