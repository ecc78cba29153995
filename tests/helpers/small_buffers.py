"""Small buffers, so that small problems reach every limit of the `cpu` engine."""

from __future__ import annotations

import pytest

LAYOUT = "fegsam.engines.cpu.layout"


def shrink_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are drawn in pieces, calls end early, and rounds are repeated for record points that do
    not fit."""
    shrink(monkeypatch, STEPS_PER_TILE=4, STEPS_PER_CALL=10)
    shrink(monkeypatch, ROW_BYTES=500, SLOT_BYTES=500, LOG_BYTES=500)


def shrink(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    for name, size in sizes.items():
        monkeypatch.setattr(f"{LAYOUT}.{name}", size)


def share_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little work a round has, threads share it."""
    monkeypatch.setattr("fegsam.engines.cpu.engine.WORTH_SPLITTING", 1)
