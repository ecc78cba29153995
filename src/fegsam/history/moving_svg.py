"""Agents that move, drift apart and meet, as one animated SVG picture without a script.

The animation is SMIL, which every browser plays. Where nothing plays it, as on paper, the picture
shows the whole paths.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fegsam.history.agent_paths import AgentPaths, in_plane
from fegsam.pictures import ticks
from fegsam.print_style import COLOURS, GREY
from fegsam.text import short

_WIDTH, _HEIGHT = 640, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 44, 52
"""Margins in pixels, for the labels."""
_FRAMES = 400
"""More frames than this are thinned out."""
_PAUSE = 6
"""Frames for which the agents stand still after they have met."""
_PACE, _SHORTEST, _LONGEST = 0.06, 6.0, 40.0
"""Seconds of a frame, and the least and the most of the whole."""
_INK = "#222222"


class _Film(NamedTuple):
    """Where everything is in each frame."""

    agents: np.ndarray
    """(F, N, 2)"""
    average: np.ndarray
    """(F, 2)"""
    steps: list[int]
    """the step of each frame"""
    rounds: list[int]
    """the number of synchronisations before each frame"""


def moving_picture(agents: AgentPaths, plane: tuple[int, int] | None = None) -> str:
    """The animated picture as SVG text.

    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
    >>> agents = fg.agent_paths(fed, fg.QLearning(), step_size=0.2, sync_period=5, num_steps=20)
    >>> moving_picture(agents).count("<circle")
    3
    """
    paths, averages, fixed, names = in_plane(agents, plane)
    film = _film(paths, averages, agents.syncs.tolist())
    everywhere = np.concatenate([film.agents.reshape(-1, 2), film.average, fixed[None]])
    low, high = everywhere.min(axis=0), everywhere.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    low, span = low - 0.05 * span, 1.1 * span

    def at(points: np.ndarray) -> np.ndarray:
        size = np.array([_WIDTH - _LEFT - _RIGHT, -(_HEIGHT - _TOP - _BOTTOM)])
        return np.array([_LEFT, _HEIGHT - _BOTTOM]) + (points - low) / span * size

    seconds = float(np.clip(_PACE * len(film.steps), _SHORTEST, _LONGEST))
    clock = f'dur="{seconds:.1f}s" repeatCount="indefinite"'
    count = film.agents.shape[1]
    parts = [_frame(low, span, names), _counter(film, len(agents.syncs), clock)]
    moved = at(film.agents)
    parts += [_trail(moved[:, k], COLOURS[k % (len(COLOURS) - 1)], clock) for k in range(count)]
    parts.append(_cross(at(fixed)))
    parts += [_agent(moved[:, k], COLOURS[k % (len(COLOURS) - 1)], clock) for k in range(count)]
    parts.append(_average(at(film.average), clock))
    said = f"{count} agents take local steps and meet at their average {len(agents.syncs)} times"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" style="max-width:100%;height:auto" '
        f'font-family="sans-serif" font-size="13"><title>{escape(said)}</title>'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _film(paths: np.ndarray, averages: np.ndarray, syncs: list[int]) -> _Film:
    last, met = len(paths) - 1, set(syncs)
    stride = max(1, last // _FRAMES)
    shown = [t for t in range(last + 1) if t % stride == 0 or t == last or t in met]
    places: list[np.ndarray] = []
    middle, steps, rounds, held = [], [], [], averages[0]

    def add(t: int, where: np.ndarray, average: np.ndarray) -> None:
        places.append(where)
        middle.append(average)
        steps.append(t)
        rounds.append(sum(1 for sync in syncs if sync < t or (sync == t and len(places) > 1)))

    for t in shown:
        # An agent that does not take part stays at what the server sent last.
        here = np.where(np.isfinite(paths[t]), paths[t], held)
        add(t, here, np.nanmean(np.where(t in met, here, averages[t][None]), axis=0))
        if t in met:
            held = averages[t]
            for _ in range(_PAUSE):
                add(t, np.tile(held, (paths.shape[1], 1)), held)
    return _Film(np.array(places), np.array(middle), steps, rounds)


def _frame(low: np.ndarray, span: np.ndarray, names: tuple[str, str]) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="{GREY}"/>']
    for place in ticks(low[0], span[0]):
        x = _LEFT + (place - low[0]) / span[0] * (right - _LEFT)
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{GREY}"/>')
        parts.append(_text(x, bottom + 18, short(place), "middle"))
    for place in ticks(low[1], span[1]):
        y = bottom - (place - low[1]) / span[1] * (bottom - _TOP)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h-5" stroke="{GREY}"/>')
        parts.append(_text(_LEFT - 8, y + 4, short(place), "end"))
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 10, names[0], "middle"))
    x, y = 14, (_TOP + bottom) / 2
    turned = _text(x, y, names[1], "middle").replace(
        "<text ", f'<text transform="rotate(-90 {x} {y:.0f})" ', 1
    )
    return "".join([*parts, turned])


def _counter(film: _Film, total: int, clock: str) -> str:
    """What is shown, and the number of the round, which changes as the agents meet."""
    last = len(film.steps)
    changes = [0, *(k for k in range(1, last) if film.rounds[k] != film.rounds[k - 1]), last]
    texts = []
    for begin, end in pairwise(changes):
        times = f'keyTimes="0;{begin / last:.4f};{end / last:.4f}"'
        states = "hidden;visible;hidden"
        if begin == 0:
            times, states = f'keyTimes="0;{end / last:.4f}"', "visible;hidden"
        said = f"synchronisations: {film.rounds[begin]} of {total}"
        text = _text(_WIDTH - _RIGHT, 24, said, "end")
        move = f'<animate attributeName="visibility" calcMode="discrete" {times} {clock} '
        # Without the animation, only the last number is to be seen.
        hidden = "" if end == last else ' visibility="hidden"'
        text = text.replace("<text", f"<text{hidden}").replace(
            "</text>", f'{move}values="{states}"/></text>'
        )
        texts.append(text)
    key = (
        f'<path d="M{_LEFT} 20m0 -6l6 6l-6 6l-6 -6z" fill="{_INK}"/>'
        + _text(_LEFT + 12, 24, "average", "start")
        + _cross(np.array([_LEFT + 92.0, 20.0]))
        + _text(_LEFT + 104, 24, "fixed point", "start")
    )
    return key + "".join(texts)


def _trail(points: np.ndarray, colour: str, clock: str) -> str:
    """The path of an agent, which grows behind it."""
    lengths = np.hypot(*np.diff(points, axis=0).T)
    left = 1 - np.append(0.0, lengths.cumsum()) / (lengths.sum() or 1.0)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    grown = ";".join(f"{part:.3f}" for part in left)
    return (
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-opacity="0.4" '
        f'stroke-width="1.5" pathLength="1" stroke-dasharray="1">'
        f'<animate attributeName="stroke-dashoffset" values="{grown}" {clock}/></polyline>'
    )


def _agent(points: np.ndarray, colour: str, clock: str) -> str:
    last = points[-1]
    moves = "".join(
        f'<animate attributeName="{name}" values="{";".join(f"{n:.1f}" for n in points[:, k])}" '
        f"{clock}/>"
        for k, name in enumerate(("cx", "cy"))
    )
    return (
        f'<circle cx="{last[0]:.1f}" cy="{last[1]:.1f}" r="6" fill="{colour}" stroke="#ffffff">'
        f"{moves}</circle>"
    )


def _average(points: np.ndarray, clock: str) -> str:
    last = points[-1]
    values = ";".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return (
        f'<path d="M0 -7l7 7l-7 7l-7 -7z" fill="{_INK}" stroke="#ffffff" '
        f'transform="translate({last[0]:.1f} {last[1]:.1f})"><animateTransform '
        f'attributeName="transform" type="translate" values="{values}" {clock}/></path>'
    )


def _cross(place: np.ndarray) -> str:
    x, y = place
    return (
        f'<path d="M{x - 7:.1f} {y - 7:.1f}l14 14m0 -14l-14 14" stroke="{_INK}" '
        'stroke-width="2.5"/>'
    )


def _text(x: float, y: float, said: str, anchor: str) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{_INK}">{escape(said)}</text>'
    )
