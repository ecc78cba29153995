"""Of which kind of source a saved place is, so that none is restored with another kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fegsam.errors import ProblemError

_KINDS = {"digest": "a log", "spool": "a spool", "place": "a live environment"}
"""What a reader saves that the others do not, and its source."""


def require_kind(state: Mapping[str, np.ndarray], mark: str, name: str) -> None:
    """Raise where a place was not saved by a reader of the kind that saves `mark`.

    >>> require_kind({"digest": np.zeros(32)}, "spool", "plant.spool")
    Traceback (most recent call last):
    fegsam.errors.ProblemError: plant.spool: it is a spool, but this agent began with a log: put the
    log back
    """
    if mark in state:
        return
    began = next((kind for saved, kind in _KINDS.items() if saved in state), "other data")
    raise ProblemError(
        f"{name}: it is {_KINDS[mark]}, but this agent began with {began}: put the "
        f"{began.removeprefix('a ')} back"
    )
