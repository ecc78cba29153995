"""The keys that a server knows: the files ``nodes/NAME.pub``, read again as they change."""

from __future__ import annotations

import os
from pathlib import Path

from fegsam.federation.credentials import listed_key
from fegsam.federation.errors import FederationError


class KeyBook:
    """The names of nodes by the SHA-256 of their keys.

    A key that is deleted from the folder is unknown from the next `refresh` on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, str]] = {}
        """file -> its time of change and its key"""
        self._names: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read what is new; two files with one key are refused."""
        found: dict[str, tuple[int, str]] = {}
        try:
            entries = [each for each in os.scandir(self._folder) if each.name.endswith(".pub")]
        except OSError as error:
            raise FederationError(
                f"the keys in {self._folder} cannot be read ({error.strerror}): restore them."
            ) from None
        for entry in entries:
            try:
                changed = entry.stat().st_mtime_ns
                before = self._seen.get(entry.name)
                same = before is not None and before[0] == changed
                found[entry.name] = (
                    before if same and before else (changed, listed_key(Path(entry.path)))
                )
            except FileNotFoundError:
                continue
        names: dict[str, str] = {}
        for file, (_, key) in sorted(found.items()):
            if key in names:
                raise FederationError(
                    f"{self._folder / file} has the key of node {names[key]}: give each its own."
                )
            names[key] = file.removesuffix(".pub")
        self._seen, self._names = found, names

    def name_of(self, key: str) -> str | None:
        """The name of the node with a key, or None."""
        return self._names.get(key)
