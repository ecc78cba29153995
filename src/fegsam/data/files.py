"""The files of a log, read in batches by Arrow, whose one door this is.

Parquet is read row group by row group and CSV block by block, so that the memory does not grow with
the log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fegsam.errors import ProblemError, shown
from fegsam.safe_files import open_plain

BATCH = 1 << 16
"""Rows that are read at once."""
ENDINGS = (".parquet", ".csv")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileBatch(NamedTuple):
    """Some rows of a file."""

    first: int
    """the number of its first row in the file"""
    table: Any
    """a pyarrow.RecordBatch"""


def arrow() -> Any:
    """The module pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ProblemError("Logs need pyarrow; run: pip install 'fegsam[data]'") from None
    return pyarrow


def log_files(path: Paths) -> tuple[Path, ...]:
    """The files of a log: one file, those of a list in its order, or those of a folder by name."""
    if isinstance(path, str | os.PathLike):
        if os.fspath(path).startswith("minari:"):
            raise ProblemError(
                f"{path} is a Minari dataset: import it once with `fegsam data import {path}` and "
                "use the file that this writes"
            )
        whole = Path(path)
        inside = sorted(f for f in whole.iterdir() if f.suffix in ENDINGS) if whole.is_dir() else []
        files = tuple(inside) or (whole,)
    else:
        files = tuple(Path(each) for each in path)
    for file in files:
        if file.is_dir():
            raise ProblemError(f"{file} has no .parquet or .csv file: name the folder of a log")
        if file.suffix not in ENDINGS:
            raise ProblemError(
                f"{file} ends in {shown(file.suffix)}, but a log is a .parquet or a .csv file: "
                "store it as one of them"
            )
        open_plain(file).close()
    if not files:
        raise ProblemError("a log has no file: name at least one")
    return files


def digest(files: Sequence[Path]) -> str:
    """The SHA-256 of the files' contents, in their order."""
    state = hashlib.sha256()
    for file in files:
        with open_plain(file) as opened:
            state.update(hashlib.file_digest(opened, "sha256").digest())  # pyright: ignore[reportArgumentType]
    return state.hexdigest()


def schema(file: Path) -> Any:
    """The names and types of a file's columns, a pyarrow.Schema."""
    if file.suffix == ".parquet":
        with _parquet(file) as opened:
            return opened.schema_arrow
    with _csv(file, {}) as opened:
        return opened.schema


def batches(
    file: Path, names: Sequence[str], types: dict[str, Any], start: int
) -> Iterator[FileBatch]:
    """The columns `names` of a file in batches, from row `start` on.

    `types` are the types of columns that a CSV file does not state.
    """
    found = _parquet_batches(file, names, start) if file.suffix == ".parquet" else None
    unreadable = (arrow().ArrowInvalid, OSError)
    try:
        for batch in _csv_batches(file, names, types) if found is None else found:
            skip = start - batch.first
            if skip < batch.table.num_rows:
                yield batch if skip <= 0 else FileBatch(start, batch.table.slice(skip))
    except unreadable as error:
        raise ProblemError(f"{file}: {_said(error)}: copy it again or correct it") from error


def _parquet_batches(file: Path, names: Sequence[str], start: int) -> Iterator[FileBatch]:
    with _parquet(file) as opened:
        groups, first = list(range(opened.num_row_groups)), 0
        while groups and first + opened.metadata.row_group(groups[0]).num_rows <= start:
            first += opened.metadata.row_group(groups.pop(0)).num_rows
        for table in opened.iter_batches(BATCH, row_groups=groups, columns=list(names)):
            yield FileBatch(first, table)
            first += table.num_rows


def _csv_batches(file: Path, names: Sequence[str], types: dict[str, Any]) -> Iterator[FileBatch]:
    with _csv(file, types) as opened:
        first = 0
        for table in opened:
            yield FileBatch(first, table.select(list(names)))
            first += table.num_rows


def _parquet(file: Path) -> Any:
    pa = arrow()
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file, memory_map=False, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        if "footer" in str(error) or "magic" in str(error) or "size is" in str(error):
            raise ProblemError(f"{file}: the footer is missing: copy it again") from error
        raise ProblemError(f"{file}: {_said(error)}: copy it again") from error


def _csv(file: Path, types: dict[str, Any]) -> Any:
    pa = arrow()
    from pyarrow import csv

    try:
        return csv.open_csv(
            file,
            read_options=csv.ReadOptions(use_threads=False),
            convert_options=csv.ConvertOptions(column_types=types),
        )
    except pa.ArrowInvalid as error:
        raise ProblemError(f"{file}: {_said(error)}: correct it") from error


def _said(error: Exception) -> str:
    """What Arrow says, in one line without its last full stop."""
    return str(error).splitlines()[0].rstrip(". ")
