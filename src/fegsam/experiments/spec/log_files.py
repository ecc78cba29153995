"""Logs in a spec: their files, identified by their content.

The digest of a log is part of the key of every cell that reads it. Results keep the digest and not
the log, which may be large or private, so that stored results can be read without it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fegsam.data import files
from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_values import CELLS, INPUTS
from fegsam.experiments.spec.wording import show
from fegsam.safe_files import read_plain, whole


@dataclass(frozen=True)
class LogRef:
    """A log that a spec names.

    Attributes
    ----------
    paths : tuple of str
        The absolute paths of its files, or of one folder.
    sha256 : str
        The digest of its content when the spec was read, or when results were stored.
    kept : str
        The name of the file that keeps the digest beside results.
    """

    paths: tuple[str, ...]
    sha256: str
    kept: str

    @property
    def source(self) -> str | tuple[str, ...]:
        """The first argument of `fegsam.LogSource`; an error if the log is not the one meant."""
        where = self.paths[0] if len(self.paths) == 1 else self.paths
        try:
            now = files.digest(files.log_files(where))
        except OSError as error:
            raise ProblemError(f"path names {_unreadable(error)}: put it back") from None
        if now != self.sha256:
            raise ProblemError(
                f"path names {self.paths[0]}, which is not the log that was read before: put that "
                "one back, or write the results to another directory"
            )
        return where

    @property
    def is_elsewhere(self) -> bool:
        """Whether the log is not there, so that only its digest is known, from results."""
        return not all(Path(each).exists() for each in self.paths)

    def keep(self, directory: Path) -> None:
        """Store the digest among the inputs of results."""
        place = directory / INPUTS / self.kept
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole(place) as waiting:
            waiting.write_text(self.sha256, encoding="ascii")


def log_ref(value: Any, directory: Path) -> LogRef:
    """The log that a spec names by a path or a list of them; relative ones start in `directory`."""
    written = [value] if isinstance(value, str) else value
    if not isinstance(written, list) or not all(isinstance(p, str) and p for p in written):
        raise ValueError(f"is {show(value)}, but must name a log: write path = 'log.parquet'")
    if not written:
        raise ValueError("is an empty list, but must name a log: write path = 'log.parquet'")
    paths = tuple(str((directory / each).resolve()) for each in written)
    mark = hashlib.sha256(json.dumps(written).encode()).hexdigest()[:8]
    kept = directory / INPUTS / f"{Path(written[0]).name}-{mark}.sha256"
    if kept.is_file() and (directory / CELLS).is_dir():
        return LogRef(paths, read_plain(kept).decode("ascii", "replace").strip(), kept.name)
    try:
        digest = files.digest(files.log_files(paths[0] if len(paths) == 1 else paths))
    except OSError as error:
        raise ValueError(f"names {_unreadable(error)}: check the path") from None
    except ProblemError as error:
        raise ValueError(f"is {show(value)}, but {str(error).rstrip('.')}") from None
    return LogRef(paths, digest, kept.name)


def _unreadable(error: OSError) -> str:
    return f"{error.filename}, which cannot be read ({error.strerror or error})"
