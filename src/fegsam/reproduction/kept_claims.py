"""The finished claims of a reproduction: one file each, complete or absent.

    DIR/claims/speed_up-<key>.json    the claim's section, then a seal (see `safe_files`)

The key is a fingerprint of all that determines the section, apart from the code: the spec of the
claim with its sizes and thresholds, and the engine. A file gets its name only when all of it is on
the disk, so a reproduction may be killed at any moment and goes on where it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from importlib import metadata

from fegsam.report import Section
from fegsam.report.stored import parse_section, section_json
from fegsam.reproduction.thresholds import ClaimSpec
from fegsam.safe_files import (
    SEAL,
    DamagedError,
    append_seal,
    label_of,
    read_plain,
    sealed_by,
    whole,
)

FORMAT = 1
"""Increased whenever the same settings would give another section: old ones are then not used."""


class KeptClaims:
    """The sections of finished claims in a directory.

    Examples
    --------
    >>> import tempfile
    >>> from fegsam.reproduction.thresholds import claim_spec
    >>> spec = claim_spec("privacy", quick=True)
    >>> section = Section("i", "Privacy", "Data stay private.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = KeptClaims(folder, "cpu")
    ...     kept.write("privacy", spec, section)
    ...     (
    ...         kept.read("privacy", spec) == section,
    ...         KeptClaims(folder, "reference").read("privacy", spec),
    ...     )
    (True, None)
    """

    def __init__(self, directory: str | pathlib.Path, engine: str) -> None:
        self._folder, self._engine = pathlib.Path(directory) / "claims", engine

    def read(self, name: str, spec: ClaimSpec) -> Section | None:
        """The section of a claim, or None if its file is missing, damaged or of other settings."""
        key = self._key(name, spec)
        path = self._path(name, key)
        try:
            if sealed_by(path) != label_of(key):
                return None
            return parse_section(read_plain(path)[:-SEAL].decode("utf-8"))
        except (OSError, DamagedError):
            return None

    def write(self, name: str, spec: ClaimSpec, section: Section) -> None:
        """Keep a section durably: it survives a crash of the process or the machine."""
        key = self._key(name, spec)
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole(self._path(name, key)) as temporary:
            temporary.write_text(section_json(section), encoding="utf-8")
            append_seal(temporary, key)

    def _path(self, name: str, key: str) -> pathlib.Path:
        return self._folder / f"{name}-{key[:16]}.json"

    def _key(self, name: str, spec: ClaimSpec) -> str:
        parts = {
            "format": FORMAT,
            "fegsam": metadata.version("fegsam"),
            "claim": name,
            "engine": self._engine,
            "spec": {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)},
        }
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    """A part of a spec as plain data: checks are dataclasses, sizes are namespaces."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return vars(value)
