"""The log of strangers: those who reached the port of a server and were turned away."""

from __future__ import annotations

import json
import logging
import logging.handlers
from pathlib import Path
from typing import Any

STRANGERS_FILE = "strangers.jsonl"


class StrangerLog:
    """One line per refusal; the file is rotated, so that a flood of calls cannot fill the disk."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=10_000_000, backupCount=3, encoding="utf-8"
        )
        self._handler.setFormatter(logging.Formatter("%(message)s"))

    def refused(self, peer: str, reason: str, **details: Any) -> None:
        record = logging.makeLogRecord({"levelno": logging.INFO})
        record.msg = json.dumps(
            {
                "event": "stranger",
                "clock": record.created,
                "peer": peer,
                "reason": reason,
                **details,
            }
        )
        self._handler.handle(record)

    def close(self) -> None:
        self._handler.close()
