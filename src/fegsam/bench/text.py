"""Benchmark results as tables, for a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fegsam.bench.results import BenchResults, Change, TimedCell
from fegsam.bench.timing import Entry
from fegsam.text import aligned, markdown_head, markdown_row, short

_TITLES = {
    "agents": "Agents",
    "period": "Sync period",
    "scale": "Sync period, a million agents",
    "table": "Size of the table",
    "algorithm": "The five algorithms",
    "horizon": "Look-ahead",
    "threads": "Threads",
    "recording": "Recording",
}
_COLUMNS = (
    "",
    "contestant",
    "ns per agent-step",
    "median",
    "agent-steps/s",
    "µs per round",
    "x fastest",
    "x C",
    "clock",
)
_EFFICIENCY = "efficiency"
_WIDTHS = (27, 24, 17, 8, 13, 12, 9, 9, 5)
"""Fixed, because rows are printed as they are timed, before the widest row is known."""

Row = tuple[str, ...]


def machine_text(results: BenchResults, markdown: bool) -> str:
    machine = list(results.machine.items())
    lines = [f"- {name}: {value}" for name, value in machine] if markdown else aligned(machine)
    effort = results.effort
    lines.append(
        f"{'- ' if markdown else ''}timings: {effort.repeats} of each contestant in turns, about "
        f"{effort.seconds:g} s each; "
        "best and median"
    )
    return "\n".join(lines)


def axis_heading(cell: TimedCell, markdown: bool) -> str:
    """The heading that precedes the first cell of an axis."""
    title = f"{_TITLES[cell.axis]}; first setting: {cell.setting}"
    columns = columns_of(cell.axis)
    if markdown:
        return f"\n### {title}\n\n{markdown_head(columns)}"
    return f"\n{title}\n{_line(columns, False)}"


def columns_of(axis: str) -> Row:
    return tuple(_EFFICIENCY if axis == "threads" and name == "x C" else name for name in _COLUMNS)


def cell_text(cell: TimedCell, markdown: bool) -> str:
    """The rows of one cell: timed contestants, limits, then skipped contestants with reasons."""
    return "\n".join(_line(row, markdown) for row in rows(cell))


def rows(cell: TimedCell) -> list[Row]:
    fastest = min((entry.best for entry in cell.timed), default=0.0)
    found = [_timed_row(cell, entry, fastest) for entry in cell.timed]
    for limit in cell.limits:
        seconds = limit.seconds_per_step
        share = short(seconds / fastest) if fastest else ""
        found.append(
            (
                cell.label,
                limit.name,
                short(1e9 * seconds),
                "",
                f"{1 / seconds:.2e}",
                _round(cell, seconds),
                share,
                "",
                "",
            )
        )
    found += [
        (cell.label, entry.name, f"– {entry.skipped}") for entry in cell.entries if entry.skipped
    ]
    return found


def _timed_row(cell: TimedCell, entry: Entry, fastest: float) -> Row:
    return (
        cell.label,
        entry.name,
        short(1e9 * entry.best),
        short(1e9 * entry.median),
        f"{1 / entry.best:.2e}",
        _round(cell, entry.best),
        short(entry.best / fastest),
        _share(cell, entry) if cell.axis == "threads" else _times_c(cell, entry),
        entry.clock,
    )


def _round(cell: TimedCell, seconds_per_step: float) -> str:
    return short(1e6 * seconds_per_step * cell.setting.agent_steps_per_round)


def _times_c(cell: TimedCell, entry: Entry) -> str:
    loop = next(
        (other.best for other in cell.timed if other.family == "C" and other.threads == 1), None
    )
    return "" if loop is None else short(entry.best / loop)


def _share(cell: TimedCell, entry: Entry) -> str:
    return "" if (found := efficiency(cell, entry)) is None else f"{100 * found:.0f} %"


def efficiency(cell: TimedCell, entry: Entry) -> float | None:
    """The speed-up over one thread, divided by the number of threads."""
    alone = next(
        (other.best for other in cell.timed if other.family == entry.family and other.threads == 1),
        None,
    )
    return None if alone is None else alone / (entry.best * entry.threads)


def conditions(old: BenchResults, new: BenchResults) -> str:
    """The differences between the machines of two runs.

    The timings of one run cannot show that another ran under other conditions.

    Examples
    --------
    >>> from fegsam.bench.suite import QUICK
    >>> print(
    ...     conditions(
    ...         BenchResults({"load": "9.0", "C": "cc 12"}, QUICK, ()),
    ...         BenchResults({"load": "0.1", "C": "cc 12"}, QUICK, ()),
    ...     )
    ... )
    load: 9.0, now 0.1
    <BLANKLINE>
    """
    names = [name for name in new.machine if old.machine.get(name) != new.machine[name]]
    return "".join(
        f"{name}: {old.machine.get(name, 'unknown')}, now {new.machine[name]}\n" for name in names
    )


def comparison(changes: Iterable[Change], markdown: bool) -> str:
    """One line per contestant and cell; a ratio above 1 means slower than before."""
    columns = ("", "contestant", "ns per agent-step", "before", "ratio", "")
    lines = [markdown_head(columns) if markdown else _line(columns, False)]
    for change in changes:
        label = f"{change.cell.axis}, {change.cell.label}"
        times = (short(1e9 * change.new), short(1e9 * change.old))
        lines.append(
            _line((label, change.name, *times, f"{change.ratio:.2f}", change.verdict), markdown)
        )
    return "\n".join(lines)


def whole_text(results: BenchResults, markdown: bool) -> str:
    parts = [machine_text(results, markdown)]
    axis = None
    for cell in results.cells:
        parts += [axis_heading(cell, markdown)] if cell.axis != axis else []
        parts.append(cell_text(cell, markdown))
        axis = cell.axis
    return "\n".join(parts)


def _line(values: Sequence[str], markdown: bool) -> str:
    if markdown:
        blanks = [""] * (len(_COLUMNS) - len(values)) if len(values) == 3 else []
        return markdown_row([*values, *blanks])
    first, second, *others = values
    cells = [f"{value:>{width}}" for value, width in zip(others, _WIDTHS[2:], strict=False)]
    if len(values) == 3:
        cells = others
    return " ".join([f"{first:<{_WIDTHS[0]}}", f"{second:<{_WIDTHS[1]}}", *cells]).rstrip()
