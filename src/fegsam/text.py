"""Numbers and small tables as text: for the terminal, in Markdown, and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]


def number(value: float, digits: int = 4) -> str:
    """`value` as a person writes it: `digits` digits, and no exponent below a million.

    >>> number(0.000123456), number(42.0), number(12345.6), number(float("nan"))
    ('0.0001235', '42', '12346', 'nan')
    """
    size = abs(value)
    in_full = size < 1e6 and (size >= 10**digits - 0.5 or value == round(value))
    return f"{value:.0f}" if in_full else f"{value:.{digits}g}"


def short(value: float) -> str:
    """`value` with three digits, for measurements.

    >>> [short(x) for x in (0.51234, 63.81, 12345.6, 3.2e-7)]
    ['0.512', '63.8', '12346', '3.2e-07']
    """
    return number(value, digits=3)


def aligned(rows: Sequence[Row], gap: str = "  ", right: Sequence[int] = ()) -> list[str]:
    """One line per row, with columns as wide as their widest entry; those in `right` align right.

    >>> aligned([["a", "10"], ["bcd", "5"]], right=[1])
    ['a    10', 'bcd   5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def text_table(header: Row, rows: Sequence[Row], right: Sequence[int] = ()) -> str:
    """A header with the rows below it.

    >>> print(text_table(["name", "value"], [["tau", "42"], ["L", "1"]]))
    name  value
    tau   42
    L     1
    """
    return "\n".join(aligned([header, *rows], right=right))


def markdown_row(cells: Row) -> str:
    """One row of a Markdown table, with bars escaped.

    >>> markdown_row(["a|b", "c"])
    '| a\\\\|b | c |'
    """
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def markdown_head(cells: Row) -> str:
    """The first two lines of a Markdown table.

    >>> markdown_head(["a", "b"]).splitlines()
    ['| a | b |', '|---|---|']
    """
    return f"{markdown_row(cells)}\n|{'---|' * len(cells)}"


def html_table(title: str, header: Row, rows: Sequence[Row]) -> str:
    """An HTML table with a caption, made without Jinja2, which the base package does not need.

    >>> html_table("A < B", ["x"], [["1"]])
    '<table><caption>A &lt; B</caption><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{body}</table>"
