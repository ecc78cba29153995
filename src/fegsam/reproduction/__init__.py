"""The paper's missing experiments: every claim run, drawn and judged against thresholds that stand
in `specs`."""

from __future__ import annotations

from fegsam.reproduction.reproduce import reproduce

__all__ = ["reproduce"]
