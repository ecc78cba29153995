"""The experiments that the paper lacks: every claim is run, drawn and judged.

The thresholds are written down in `specs` before anything is run.
"""

from __future__ import annotations

from fegsam.reproduction.reproduce import reproduce

__all__ = ["reproduce"]
