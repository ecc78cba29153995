"""The rounds of a federation over time: how long each took, who answered, and what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape

from fegsam.federation.board import described
from fegsam.federation.protocol.ledger import Event
from fegsam.federation.protocol.state import printable
from fegsam.pictures import BLUE, ORANGE, ticks
from fegsam.text import short

_WIDTH, _LEFT, _RIGHT = 640, 72, 12
_TOP, _STRIP, _ROW = 30, 48, 16
"""Pixels: above the rounds, their height, and the height of an agent's row."""
_MOST_BARS = 300
"""More rounds than this share bars."""
_MOST_ROWS = 8
_STARTS = ("started", "resumed")
_QUIET = frozenset({"round", "finished", "joined", "waiting", *_STARTS})
"""Events without a mark of their own."""


def timeline(events: Sequence[Event]) -> str:
    """The timeline of a log of events, as SVG; empty before the first round.

    A round is a bar from its opening to its closing. The bar is as high as the share of the agents
    that answered, and what is missing is orange. Agents that missed rounds have a row each, those
    that missed most first.

    >>> rounds = [
    ...     {
    ...         "event": "round",
    ...         "clock": 1.0 + k,
    ...         "seconds": 0.5,
    ...         "round": k,
    ...         "asked": 2,
    ...         "answered": 2 - k,
    ...         "missing": [1] * k,
    ...     }
    ...     for k in range(2)
    ... ]
    >>> picture = timeline(rounds)
    >>> picture.count("<rect"), "agent 1" in picture
    (4, True)
    """
    rounds = [event for event in events if event["event"] == "round"]
    if not rounds:
        return ""
    begin = min(event["clock"] - event["seconds"] for event in rounds)
    last = max(event["clock"] for event in rounds)
    span = max(last - begin, 1e-9)

    def across(clock: float) -> float:
        return _LEFT + (min(max(clock, begin), last) - begin) / span * (_WIDTH - _LEFT - _RIGHT)

    missed = Counter(agent for event in rounds for agent in event["missing"])
    rows = [agent for agent, _ in missed.most_common(_MOST_ROWS)]
    bottom = _TOP + _STRIP + _ROW * len(rows)
    parts = [_label(_TOP + _STRIP / 2 + 4, "rounds")]
    together = -(-len(rounds) // _MOST_BARS)
    for first in range(0, len(rounds), together):
        parts.append(_bar(rounds[first : first + together + 1], together, across))
    for place, agent in enumerate(rows):
        top = _TOP + _STRIP + _ROW * place
        parts.append(_label(top + 12, f"agent {agent}"))
        parts += [
            _rect(across(e["clock"] - e["seconds"]), across(e["clock"]), top + 4, 9, ORANGE)
            for e in rounds
            if agent in e["missing"]
        ]
    parts += [_mark(event, across) for event in events if event["event"] not in _QUIET]
    parts += [_start(event, across, bottom) for event in events if event["event"] in _STARTS]
    parts.append(_axis(span, bottom))
    said = f"{len(rounds)} rounds in {short(span)} s" + (
        f", {sum(missed.values())} answers missing" if missed else ", every answer arrived"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" '
        f'viewBox="0 0 {_WIDTH} {bottom + 34}" font-family="sans-serif" font-size="12" '
        'shape-rendering="crispEdges">'
        f'<text x="{_LEFT}" y="14" fill="currentColor">{said}</text>{"".join(parts)}</svg>'
    )


def _bar(rounds: Sequence[Event], together: int, across: Callable[[float], float]) -> str:
    """One bar for the first of some rounds, with what each number is in its tooltip."""
    after, rounds = rounds[together:], rounds[:together]
    left, right = across(rounds[0]["clock"] - rounds[0]["seconds"]), across(rounds[-1]["clock"])
    if after and (following := across(after[0]["clock"] - after[0]["seconds"])) < right + 1:
        right = max(right, following)  # a break of less than a pixel is not drawn
    asked = sum(event["asked"] for event in rounds)
    share = sum(event["answered"] for event in rounds) / max(asked, 1)
    height, last = _STRIP * share, rounds[-1]["round"]
    numbers = f"round {last}" if len(rounds) == 1 else f"rounds {rounds[0]['round']} to {last}"
    seconds = sum(event["seconds"] for event in rounds)
    title = f"{numbers}: {short(seconds)} s, {100 * share:.0f} % of the answers"
    lost = "" if share == 1 else _rect(left, right, _TOP, _STRIP - height, ORANGE)
    return lost + _rect(left, right, _TOP + _STRIP - height, height, BLUE, title)


def _rect(
    left: float, right: float, top: float, height: float, colour: str, title: str = ""
) -> str:
    # A gap between bars, where there is room for one.
    wide = max(right - left - (0.6 if right - left > 2 else 0.0), 0.4)
    place = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{colour}">{f"<title>{title}</title>" if title else ""}</rect>'


def _mark(event: Event, across: Callable[[float], float]) -> str:
    """A triangle above the rounds where something happened; its tooltip says what."""
    x = across(event.get("clock", 0.0))
    title = escape(printable(described(event)))
    return f'<path d="M{x:.1f} {_TOP - 2}l-4 -7h8z" fill="{ORANGE}"><title>{title}</title></path>'


def _start(event: Event, across: Callable[[float], float], bottom: float) -> str:
    x = across(event.get("clock", 0.0))
    return (
        f'<path d="M{x:.1f} {_TOP - 6}V{bottom}" stroke="currentColor" stroke-dasharray="3 3">'
        f"<title>{event['event']}</title></path>"
    )


def _axis(span: float, bottom: float) -> str:
    right = _WIDTH - _RIGHT
    unit, name = (60.0, "minutes") if span > 600 else (1.0, "seconds")
    marks = "".join(
        f'<text x="{_LEFT + at * unit / span * (right - _LEFT):.0f}" y="{bottom + 16}" '
        f'text-anchor="middle" fill="currentColor">{short(at)}</text>'
        for at in ticks(0.0, span / unit)
    )
    return (
        f'<path d="M{_LEFT} {bottom}H{right}" stroke="currentColor"/>{marks}'
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 30}" text-anchor="middle" '
        f'fill="currentColor">{name}</text>'
    )


def _label(y: float, said: str) -> str:
    return f'<text x="{_LEFT - 8}" y="{y:.0f}" text-anchor="end" fill="currentColor">{said}</text>'
