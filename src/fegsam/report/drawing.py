"""The figures of a report as files; those that are already drawn are not drawn again."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Sequence
from importlib import metadata

from fegsam.progress import Progress
from fegsam.report.figure_data import FigureData
from fegsam.report.figures import save
from fegsam.report.stored import figure_json
from fegsam.safe_files import read_plain, whole

_INDEX = "drawn.json"
_FORMATS = ("svg", "pdf", "png")


def save_figures(figures: Sequence[FigureData], directory: pathlib.Path) -> int:
    """Draw figures as SVG, PDF and PNG files into a folder, and return how many were drawn.

    The folder's index has a fingerprint of each figure, so a figure that did not change, and whose
    files are there, is skipped. A call that is killed leaves an index of what is drawn.

    Examples
    --------
    >>> import tempfile
    >>> from fegsam.report.figure_data import Series
    >>> line = Series("N = 4", [0, 10], [1.0, 0.1], style="exact")
    >>> figure = FigureData(
    ...     "error", "Error", "It falls.", "steps", "error", "linear", "log", (line,)
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [save_figures([figure], pathlib.Path(folder)) for _ in range(2)]
    [1, 0]
    """
    directory.mkdir(parents=True, exist_ok=True)
    index = _read_index(directory)
    missing = [each for each in figures if not _is_drawn(each, directory, index)]
    with Progress(len(missing), "figure", smoothing=0.0) as progress:
        for done, figure in enumerate(missing):
            progress.show(done, figure.key)
            save(figure, directory, _FORMATS)
            index[figure.key] = _fingerprint(figure)
            with whole(directory / _INDEX, settled=False) as temporary:
                temporary.write_text(json.dumps(index, indent=0, sort_keys=True), encoding="utf-8")
    return len(missing)


def _is_drawn(figure: FigureData, directory: pathlib.Path, index: dict[str, str]) -> bool:
    files = (directory / f"{figure.key}.{ending}" for ending in _FORMATS)
    return index.get(figure.key) == _fingerprint(figure) and all(file.exists() for file in files)


def _read_index(directory: pathlib.Path) -> dict[str, str]:
    try:
        found = json.loads(read_plain(directory / _INDEX))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fingerprint(figure: FigureData) -> str:
    versions = [metadata.version(name) for name in ("fegsam", "matplotlib")]
    return hashlib.sha256(json.dumps([figure_json(figure), versions]).encode()).hexdigest()
