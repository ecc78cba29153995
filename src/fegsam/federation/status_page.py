"""The state of a federation as a page that a browser shows and refreshes.

The page is made from the log of events alone, for each request anew. It has no script and loads
nothing from elsewhere. Only requests for the server's own name are answered, so that no other site
can read it through a visitor's browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fegsam.errors import ProblemError
from fegsam.federation.board import LogSummary, clock_of, described, summary_of
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.ledger import Event, read_events
from fegsam.federation.protocol.state import printable
from fegsam.federation.timeline import timeline
from fegsam.text import short

_REFRESH = 2
_SHOWN = 12
_POINTS = 400
_WIDTH, _HEIGHT = 640, 160

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 44rem; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
svg { width: 100%; height: auto; } polyline { fill: none; stroke: #06c; stroke-width: 1.5; }
code { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818; }
  td, th { border-color: #444; } polyline { stroke: #6af; } }
"""


def page(events: Sequence[Event], title: str) -> str:
    """The page of a log of events.

    >>> "no rounds yet" in page([{"event": "started", "clock": 0.0, "rounds": 3}], "results")
    True
    """
    summary = summary_of(events)
    rounds = [event for event in events if event["event"] == "round"]
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(summary.line())}</p>",
        _curve(rounds),
        timeline(events),
        _rounds(rounds) if rounds else "<p>no rounds yet</p>",
        _missed(summary),
        _troubles(summary),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="refresh" content="{_REFRESH}"><style>{_STYLE}</style>{"".join(parts)}'
    )


def _measure(rounds: Sequence[Event]) -> tuple[str, str]:
    """What tells how far the run is, and its name: the error, or how far the average moves."""
    if any(event["squared_error"] is not None for event in rounds):
        return "squared_error", "squared error"
    return "moved", "move of the average"


def _rounds(rounds: Sequence[Event]) -> str:
    measure, name = _measure(rounds)
    header = ("round", "time", "answered", "seconds", "bytes up", "bytes down", name)
    rows = []
    for before, event in zip([None, *rounds], rounds, strict=False):
        sent = [
            event[name] - (before[name] if before else 0) for name in ("bytes_up", "bytes_down")
        ]
        measured = event.get(measure)
        rows.append(
            (
                event["round"],
                event["time"],
                f"{event['answered']} of {event['asked']}",
                short(event["seconds"]),
                *sent,
                "unknown" if measured is None else f"{measured:.3e}",
            )
        )
    return _table(header, rows[-_SHOWN:][::-1])


def _missed(summary: LogSummary) -> str:
    if not summary.missed:
        return ""
    most = summary.missed.most_common(_SHOWN)
    return "<h2>Rounds without an agent</h2>" + _table(("agent", "rounds missed"), most)


def _troubles(summary: LogSummary) -> str:
    lines = [
        f"<li>{clock_of(event)} <code>{escape(printable(described(event)))}</code>"
        for event in summary.troubles[-_SHOWN:]
    ]
    return f"<h2>Events</h2><ul>{''.join(lines[::-1])}</ul>" if lines else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in row) for row in rows]
    titles = "".join(f"<th>{name}</th>" for name in header)
    return f"<table><tr>{titles}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _curve(rounds: Sequence[Event]) -> str:
    """The logarithm of the error, or of the moves of the average, against the rounds."""
    measure, name = _measure(rounds)
    known = [(event["round"], event.get(measure)) for event in rounds]
    points = [(at, math.log10(measured)) for at, measured in known if measured]
    points = points[:: max(1, len(points) // _POINTS)]
    if len(points) < 2:
        return ""
    (first, _), (last, _) = points[0], points[-1]
    low, high = min(y for _, y in points), max(y for _, y in points)
    drawn = " ".join(
        f"{_WIDTH * (x - first) / max(1, last - first):.1f},"
        f"{_HEIGHT * (high - y) / max(1e-9, high - low):.1f}"
        for x, y in points
    )
    label = f"{name} from {10 ** points[0][1]:.2e} to {10 ** points[-1][1]:.2e}, log scale"
    return (
        f'<figure style="margin:0"><svg viewBox="0 -4 {_WIDTH} {_HEIGHT + 8}" role="img" '
        f'aria-label="{label}"><polyline points="{drawn}"/></svg>'
        f"<figcaption>{label}</figcaption></figure>"
    )


def status_server(directory: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server of the page for a directory of results; port 0 takes a free one."""
    read_events(directory)
    try:
        return ThreadingHTTPServer((host, port), _handler(directory, host))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FederationError(
            f"the page cannot be served on {host}:{port} ({reason}): choose another port."
        ) from None


def _handler(directory: Path, host: str) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 20

        def do_GET(self) -> None:
            name = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
            if name not in (host, "localhost", "127.0.0.1", "[::1]") or self.path != "/":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                content = page(read_events(directory), directory.resolve().name)
            except (ProblemError, KeyError, TypeError, OSError) as error:
                content = f"<!doctype html><p>{escape(printable(str(error)))}"
            body = content.encode()
            self.send_response(HTTPStatus.OK)
            for key, value in (
                ("Content-Type", "text/html; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler
