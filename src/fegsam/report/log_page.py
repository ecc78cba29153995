"""The page of a log: what is in it, and pictures of its episodes, its coverage and its ratios.

The page has no script, so its pictures are tables and bars of HTML.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fegsam.data.describe import (
    agent_table,
    facts_of,
    feeds,
    feeds_title,
    title_of,
    worst_of,
)
from fegsam.data.log import LogSource
from fegsam.data.tally import LogSummary
from fegsam.report.origin import origin
from fegsam.report.page import load_templates, read_part
from fegsam.safe_files import whole
from fegsam.text import number

MOST_BARS = 16
MOST_STATES, MOST_ACTIONS = 64, 16
"""The largest table whose cells are shown one by one."""
MOST_AGENTS = 200


class Bar(NamedTuple):
    """One bar of a picture."""

    label: str
    number: int
    width: float
    """in percent of the widest bar"""


class CoverageCell(NamedTuple):
    """How often an action was taken in a state."""

    number: int
    shade: int
    """from 0 for never to 100 for the most frequent pair, on a logarithmic scale"""


def write_log_page(
    source: LogSource,
    found: Mapping[Any, LogSummary],
    path: str | os.PathLike[str],
    discount: float | None = None,
) -> pathlib.Path:
    """Write what `fegsam.data.describe` says, with pictures, as a self-contained HTML file.

    Parameters
    ----------
    source : LogSource
    found : mapping
        What `fegsam.data.summarise` or `fegsam.data.check_log` returned.
    path : str or path
        The file, which is written completely or not at all.
    discount : float, optional
        The discount for which the truncation eigenvalue was found.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = fg.data.simulate_log(f"{folder}/log.csv", walk, go, episodes=3, length=5, seed=0)
    ...     source = fg.LogSource(log)
    ...     page = write_log_page(source, fg.data.summarise(source), f"{folder}/log.html")
    ...     print(page.name, "15 in 3 episodes" in page.read_text(encoding="utf-8"))
    log.html True
    """
    from markupsafe import Markup  # comes with Jinja2

    target = pathlib.Path(path)
    summaries = list(found.values())
    agent_head, agents = agent_table(source.by, found, MOST_AGENTS)
    counts = _together([summary.counts for summary in summaries])
    text = (
        load_templates()
        .get_template("log.html.j2")
        .render(
            title=title_of(source),
            version=origin()["fegsam"],
            style=Markup(read_part("page.css") + read_part("log.css")),
            facts=facts_of(summaries[0], discount) if len(found) == 1 else [],
            agents=agents if len(found) > 1 else [],
            agent_head=agent_head,
            more_agents=max(0, len(found) - MOST_AGENTS),
            feeds_title=feeds_title(found),
            feeds=feeds(worst_of(found)),
            lengths=length_bars(_sum(summary.episode_lengths for summary in summaries)),
            grid=coverage_grid(counts),
            visits=[] if counts is None else visit_bars(counts),
            ratios=ratio_bars(_sum(summary.ratio_sizes for summary in summaries)),
        )
    )
    with whole(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def length_bars(lengths: Mapping[int, int]) -> list[Bar]:
    """Episodes by their length, in stretches of equal size; empty where all have one length.

    Examples
    --------
    >>> [(bar.label, bar.number) for bar in length_bars({1: 5, 2: 3, 40: 1})]
    [('0 to 4', 8), ('5 to 9', 0), ('10 to 14', 0), ('15 to 19', 0), ('20 to 24', 0),
     ('25 to 29', 0), ('30 to 34', 0), ('35 to 39', 0), ('40 to 44', 1)]
    >>> length_bars({20: 7})
    []
    """
    if len(lengths) < 2:
        return []
    size = _round_size((max(lengths) - min(lengths) + 1) / MOST_BARS)
    first, last = min(lengths) // size, max(lengths) // size
    counts = Counter[int]()
    for length, count in lengths.items():
        counts[length // size] += count
    names = (
        str(k) if size == 1 else f"{k * size} to {(k + 1) * size - 1}"
        for k in range(first, last + 1)
    )
    return _bars(names, [counts[k] for k in range(first, last + 1)])


def ratio_bars(sizes: Mapping[int | None, int]) -> list[Bar]:
    """Ratios by powers of two, and those that are zero.

    Examples
    --------
    >>> [(bar.label, bar.number) for bar in ratio_bars({0: 4, -2: 1, None: 2})]
    [('0', 2), ('0.25 to 0.5', 1), ('0.5 to 1', 0), ('1 to 2', 4)]
    """
    powers = [power for power in sizes if power is not None]
    if not powers:
        return []
    # Ratios that are smaller still are alike.
    low = max(min(powers), max(powers) - MOST_BARS + 2)
    names, counts = [], []
    if None in sizes:
        names, counts = ["0"], [sizes[None]]
    for power in range(low, max(powers) + 1):
        below = power == low and low > min(powers)
        ends = f"{_power(power)} to {_power(power + 1)}"
        names.append(f"below {_power(power + 1)}" if below else ends)
        every = (count for k, count in sizes.items() if k is not None and k <= power)
        counts.append(sum(every) if below else sizes.get(power, 0))
    return _bars(names, counts)


def visit_bars(counts: np.ndarray) -> list[Bar]:
    """Pairs of state and action by how often they occur, in powers of ten.

    Examples
    --------
    >>> [(bar.label, bar.number) for bar in visit_bars(np.array([[0, 3], [12, 9]]))]
    [('never', 1), ('1 to 9', 2), ('10 to 99', 1)]
    """
    powers = np.floor(np.log10(np.maximum(counts, 0.1)))
    last = int(powers.max())
    ranges = ["never", *(f"{10**k} to {10 ** (k + 1) - 1}" for k in range(last + 1))]
    return _bars(ranges, [int((powers == k).sum()) for k in range(-1, last + 1)])


def coverage_grid(counts: np.ndarray | None) -> list[list[CoverageCell]]:
    """(S) rows of (A) cells; none where there are too many.

    Examples
    --------
    >>> coverage_grid(np.array([[0, 100]]))
    [[CoverageCell(number=0, shade=0), CoverageCell(number=100, shade=100)]]
    """
    if counts is None or counts.shape[0] > MOST_STATES or counts.shape[1] > MOST_ACTIONS:
        return []
    most = math.log1p(int(counts.max()) or 1)
    shades = np.ceil(100.0 * np.log1p(counts) / most).astype(int)
    pairs = zip(counts.tolist(), shades.tolist(), strict=True)
    return [[CoverageCell(*cell) for cell in zip(*row, strict=True)] for row in pairs]


def _bars(labels: Any, counts: Sequence[int]) -> list[Bar]:
    most = max(*counts, 1)
    return [
        Bar(label, count, round(100.0 * count / most, 2))
        for label, count in zip(labels, counts, strict=True)
    ]


def _round_size(least: float) -> int:
    """1, 2 or 5 times a power of ten, at least `least`."""
    if least <= 1:
        return 1
    power = 10 ** math.floor(math.log10(least))
    return next(lead * power for lead in (1, 2, 5, 10) if lead * power >= least)


def _power(power: int) -> str:
    return number(2.0**power, 3)


def _sum(parts: Any) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for one in parts:
        total.update(one)
    return total


def _together(tables: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The counts of all agents, whose tables may have other sizes."""
    known = [table for table in tables if table is not None]
    if len(known) < len(tables) or not known:
        return None
    total = np.zeros(np.max([table.shape for table in known], axis=0), np.int64)
    for table in known:
        total[: table.shape[0], : table.shape[1]] += table
    return total
