"""Draw the picture of the README, docs/speed_up.svg: remaining error against number of agents.

    python docs/make_picture.py

The points are runs and the line is exact; no number in the picture is typed by hand.
"""

from __future__ import annotations

import pathlib

import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import Estimate, mean_estimate

PATH = pathlib.Path(__file__).with_name("speed_up.svg")
AGENTS = (1, 4, 16, 64, 256)
STEP_SIZE, SYNC_PERIOD, NUM_STEPS, SEEDS = 0.1, 10, 4000, range(16)
INK, BLUE, ORANGE = "#444444", "#0072B2", "#D55E00"
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 330, 90, 60


def federation(agents: int) -> fg.Federation:
    """A random walk whose values are approximated by a line."""
    line = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    walk = fg.examples.random_walk(9, discount=0.8)
    return fg.Federation(
        walk, num_agents=agents, target_policy=fg.policies.uniform(9, 2), features=line
    )


def data() -> dict[int, tuple[Estimate, float]]:
    """The late error for each number of agents: its mean over seeds, and the exact value."""
    found = {}
    settings = {"step_size": STEP_SIZE, "sync_period": SYNC_PERIOD}
    times = np.arange(NUM_STEPS // 4, NUM_STEPS + 1, SYNC_PERIOD)
    for agents in AGENTS:
        history = fg.run(
            federation(agents),
            fg.OnPolicyTD(),
            num_steps=NUM_STEPS,
            seeds=SEEDS,
            record=times,
            **settings,
        )
        late = history.data.squared_error_2.mean("time").values
        exact = fg.exact.stationary_error(federation(agents), fg.OnPolicyTD(), **settings)
        found[agents] = mean_estimate(late, positive=True), float(exact)
    return found


def svg(points: dict[int, tuple[Estimate, float]]) -> str:
    """The picture: both axes are logarithmic, and the title states the gain in words."""
    top = np.ceil(np.log10(max(found.high for found, _ in points.values())))
    low = np.floor(np.log10(min(found.low for found, _ in points.values())))

    def x(agents: float) -> float:
        return LEFT + np.log2(agents) / np.log2(AGENTS[-1]) * (WIDTH - LEFT - 30)

    def y(error: float) -> float:
        return 40 + (top - np.log10(error)) / (top - low) * (HEIGHT - BOTTOM - 40)

    parts = [
        _text(
            WIDTH / 2,
            22,
            f"Federated TD: {AGENTS[-1]} agents leave 1/{_gain(points):.0f} of one agent's error",
            15,
        )
    ]
    for power in range(int(low), int(top) + 1):
        level = f"{y(10.0**power):.1f}"
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 30}" y1="{level}" y2="{level}" stroke="#88888855"/>'
        )
        parts.append(_text(LEFT - 8, y(10.0**power) + 4, f"1e{power}", 12, "end"))
    line = " ".join(f"{x(agents):.1f},{y(exact):.1f}" for agents, (_, exact) in points.items())
    parts.append(f'<polyline points="{line}" fill="none" stroke="{ORANGE}" stroke-width="2"/>')
    for agents, (found, _) in points.items():
        ends = f'y1="{y(found.low):.1f}" y2="{y(found.high):.1f}"'
        parts.append(
            f'<line x1="{x(agents):.1f}" x2="{x(agents):.1f}" {ends} stroke="{BLUE}" '
            'stroke-width="2"/>'
        )
        parts.append(
            f'<circle cx="{x(agents):.1f}" cy="{y(found.value):.1f}" r="4.5" fill="{BLUE}"/>'
        )
        parts.append(_text(x(agents), HEIGHT - BOTTOM + 20, str(agents), 12))
    parts.append(
        _text((LEFT + WIDTH - 30) / 2, HEIGHT - 18, "number of agents, averaged every 10 steps", 13)
    )
    said = (
        (f"runs: mean of {len(SEEDS)} seeds, 95 % interval", BLUE),
        ("exact, without sampling", ORANGE),
    )
    parts += [
        _text(LEFT + 16, HEIGHT - BOTTOM - 38 + 20 * row, words, 13, "start", colour)
        for row, (words, colour) in enumerate(said)
    ]
    parts.append(
        f'<text transform="translate(20 {HEIGHT / 2}) rotate(-90)" font-size="13" '
        f'text-anchor="middle" fill="{INK}">'
        "remaining squared error</text>"
    )
    frame = (
        f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif"'
    )
    body = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>' + "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>\n<desc>{_said(points)}</desc>'
    return f"{head}\n{body}\n</svg>\n"


def _gain(points: dict[int, tuple[Estimate, float]]) -> float:
    return points[AGENTS[0]][1] / points[AGENTS[-1]][1]


def _said(points: dict[int, tuple[Estimate, float]]) -> str:
    """The numbers of the picture, for readers who cannot see it and for the test."""
    return "; ".join(
        f"{n} agents: {found.value:.4g} in {found.low:.4g} to {found.high:.4g}, exactly {exact:.4g}"
        for n, (found, exact) in points.items()
    )


def _text(
    x: float, y: float, said: str, size: int, anchor: str = "middle", colour: str = INK
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}">{said}</text>'


if __name__ == "__main__":
    PATH.write_text(svg(data()), encoding="utf-8")
    print(PATH)
