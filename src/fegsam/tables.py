"""A small table as aligned text for the terminal and as HTML for a notebook: how this package's
reports are shown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]


def number(value: float) -> str:
    """Four digits, whole numbers below a million in full.

    >>> number(0.000123456), number(42.0), number(float("nan"))
    ('0.0001235', '42', 'nan')
    """
    return f"{value:.0f}" if value == round_or_nan(value) and abs(value) < 1e6 else f"{value:.4g}"


def round_or_nan(value: float) -> float:
    """The nearest whole number; NaN for what has none.

    >>> round_or_nan(2.4), round_or_nan(float("inf"))
    (2.0, nan)
    """
    return float(round(value)) if abs(value) < 1e15 else float("nan")


def text_table(header: Row, rows: Sequence[Row]) -> str:
    """Columns as wide as their widest entry, the last as long as it likes.

    >>> print(text_table(["name", "value"], [["tau", "42"], ["L", "1"]]))
    name  value
    tau   42
    L     1
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def html_table(title: str, header: Row, rows: Sequence[Row]) -> str:
    """The same as an HTML table under its title.

    >>> html_table("A < B", ["x"], [["1"]])
    '<table><caption>A &lt; B</caption><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"
