"""The finished claims of a reproduction or a comparison, kept in the directory of its page."""

from __future__ import annotations

import pathlib

from fegsam.report import Section
from fegsam.report.kept import KeptParts
from fegsam.report.stored import parse_section, section_json
from fegsam.reproduction.thresholds import ClaimSpec


class KeptClaims:
    """The sections of finished claims, each under its spec with all sizes and thresholds.

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
        self._parts = KeptParts(pathlib.Path(directory) / "claims", engine)

    def read(self, name: str, spec: ClaimSpec) -> Section | None:
        """The section of a claim, or None if its file is missing, damaged or of other settings."""
        text = self._parts.read(name, spec)
        return None if text is None else parse_section(text)

    def write(self, name: str, spec: ClaimSpec, section: Section) -> None:
        """Keep a section durably."""
        self._parts.write(name, spec, section_json(section))
