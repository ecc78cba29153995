"""The state of a federation for a notebook: the line of ``fegsam federate status``, and the rounds
over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fegsam.federation.board import read_summary, summary_of
from fegsam.federation.protocol.ledger import Event, read_events
from fegsam.federation.protocol.state import printable
from fegsam.federation.timeline import timeline


@dataclass(frozen=True, eq=False)
class FederationStatus:
    """What happened in a federation; printed it is a line, and in a notebook a timeline, too.

    Attributes
    ----------
    events : sequence of dict
        The log of the server.

    Examples
    --------
    >>> FederationStatus([{"event": "started", "clock": 0.0, "rounds": 3}])
    running: round 0/3, time 0
    """

    events: Sequence[Event]

    def __repr__(self) -> str:
        return summary_of(self.events).line()

    def _repr_html_(self) -> str:
        return f"<p>{escape(printable(repr(self)))}</p>{timeline(self.events)}"


def read_status(results: str | os.PathLike[str]) -> FederationStatus:
    """The state of the federation in a directory of results, at any time.

    Raises
    ------
    FederationError
        If the directory has no log of events, or a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_status(folder)
    Traceback (most recent call last):
    fegsam.federation.errors.FederationError: ... has no log of events: give the directory of
    results of a federation.
    """
    read_summary(Path(results))
    return FederationStatus(read_events(Path(results)))
