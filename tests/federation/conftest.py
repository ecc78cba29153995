"""Where federations keep their files in tests."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """In memory where the system has such a place: every round waits for the disk several times."""
    memory = pathlib.Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield pathlib.Path(place)
