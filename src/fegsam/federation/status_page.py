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
from fegsam.federation.board import EventSummary, clock_of, described, summary_of
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.ledger import Event, read_events
from fegsam.federation.protocol.state import printable
from fegsam.federation.timeline import timeline
from fegsam.text import short

_REFRESH = 2
_SHOWN = 12
_POINTS = 400
_WIDTH, _HEIGHT, _LEFT, _RIGHT = 640, 160, 72, 12
"""Pixels; the margins are those of the timeline."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 44rem; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: right; padding: .15rem 0 .15rem 1rem; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; } th { vertical-align: bottom; }
td:first-child, th:first-child { text-align: left; padding-left: 0; }
figure { margin: 1rem 0; overflow-x: auto; } figcaption { position: sticky; left: 0; }
svg { width: 100%; min-width: 32rem; height: auto; shape-rendering: crispEdges; }
polyline { fill: none; stroke: #06c; stroke-width: 1.5; shape-rendering: auto; }
ul { padding: 0; list-style: none; } code { overflow-wrap: anywhere; }
@media (max-width: 40rem) { td, th { padding-left: .4rem; font-size: .8rem; } }
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
        f"<figure>{timeline(events)}</figure>" if rounds else "",
        _rounds(rounds) if rounds else "<p>no rounds yet</p>",
        _missed(summary),
        _troubles(summary),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{_REFRESH}"><style>{_STYLE}</style>{"".join(parts)}'
    )


def _measure(rounds: Sequence[Event]) -> tuple[str, str]:
    """What tells how far the run is, and its name: the error, or how far the average moves."""
    if any(event["squared_error"] is not None for event in rounds):
        return "squared_error", "squared error"
    return "moved", "move of the average"


def _rounds(rounds: Sequence[Event]) -> str:
    measure, name = _measure(rounds)
    header = ("round", "time", "answered", name, "seconds", "bytes up", "bytes down")
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
                "unknown" if measured is None else f"{measured:.2e}",
                short(event["seconds"]),
                *sent,
            )
        )
    return _table(header, rows[-_SHOWN:][::-1])


def _missed(summary: EventSummary) -> str:
    if not summary.missed:
        return ""
    most = summary.missed.most_common(_SHOWN)
    return "<h2>Rounds without an agent</h2>" + _table(("agent", "rounds missed"), most)


def _troubles(summary: EventSummary) -> str:
    lines = [
        f"<li>{clock_of(event)} <code>{escape(printable(described(event)))}</code>"
        for event in summary.troubles[-_SHOWN:]
    ]
    return f"<h2>Events</h2><ul>{''.join(lines[::-1])}</ul>" if lines else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in row) for row in rows]
    titles = "".join(f"<th>{name}</th>" for name in header)
    body = "".join(f"<tr>{line}</tr>" for line in [titles, *lines])
    return f"<figure><table>{body}</table></figure>"


def _curve(rounds: Sequence[Event]) -> str:
    """The error, or the moves of the average, against the rounds, on a logarithmic scale."""
    measure, name = _measure(rounds)
    known = [(event["round"], event.get(measure)) for event in rounds]
    points = [(at, math.log10(measured)) for at, measured in known if measured]
    points = points[:: max(1, len(points) // _POINTS)]
    if len(points) < 2:
        return ""
    (first, begin), (last, end) = points[0], points[-1]
    low, high = min(y for _, y in points), max(y for _, y in points)

    def down(y: float) -> float:
        return _HEIGHT * (high - y) / max(1e-9, high - low)

    scale = (_WIDTH - _LEFT - _RIGHT) / max(1, last - first)
    drawn = " ".join(f"{_LEFT + scale * (x - first):.1f},{down(y):.1f}" for x, y in points)
    decades = range(math.ceil(low), math.floor(high) + 1)
    marks = "".join(
        f'<path d="M{_LEFT} {down(y):.1f}H{_WIDTH - _RIGHT}" stroke="currentColor" '
        f'stroke-opacity=".2"/><text x="{_LEFT - 8}" y="{down(y) + 4:.1f}" text-anchor="end" '
        f'fill="currentColor">{10**y:.0e}</text>'
        for y in decades[:: len(decades) // 5 + 1] or (low, high)
    )
    label = f"{name} from {10**begin:.2e} to {10**end:.2e}, log scale"
    return (
        f'<figure><figcaption>{label}</figcaption><svg viewBox="0 -8 {_WIDTH} {_HEIGHT + 16}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{label}">{marks}'
        f'<polyline points="{drawn}"/></svg></figure>'
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
