"""Help texts that fit the terminal."""

from __future__ import annotations

import argparse
import re
import textwrap

_COLUMNS = re.compile(r"(?P<indent> *)(?P<left>\S.*?) {2,}(?P<right>\S.*)")
_MORE = "    "
"""The additional indent of what does not fit beside its example."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps paragraphs and examples apart, and wraps each to the width of the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(text, width)


def filled(text: str, width: int) -> str:
    """The text in lines of at most `width`.

    A line that begins a paragraph or is indented in another way than the one before it begins a new
    line. An example, with its remark in a second column, is a line of its own.

    Examples
    --------
    >>> print(filled("One two\\nthree.\\n\\nexamples:\\n  fegsam new mine    begin here", 16))
    One two three.
    <BLANKLINE>
    examples:
      fegsam new mine
          begin here
    """
    found: list[str] = []
    prose: list[str] = []

    def end_prose() -> None:
        if prose:
            indent = _indent(prose[0])
            joined = " ".join(line.strip() for line in prose)
            found.extend(
                textwrap.wrap(joined, width, initial_indent=indent, subsequent_indent=indent)
            )
            prose.clear()

    for line in text.splitlines():
        example = line.startswith("  fegsam ") or _COLUMNS.fullmatch(line)
        if example or not line.strip() or (prose and _indent(prose[0]) != _indent(line)):
            end_prose()
        if example:
            found.extend(_example(line, width))
        elif line.strip():
            prose.append(line)
        else:
            found.append("")
    end_prose()
    return "\n".join(found)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _example(line: str, width: int) -> list[str]:
    """An example with its remark beside it if they fit, else below it."""
    columns = _COLUMNS.fullmatch(line)
    if len(line) <= width or columns is None:
        return [line]
    more = columns["indent"] + _MORE
    remark = textwrap.wrap(columns["right"], width, initial_indent=more, subsequent_indent=more)
    return [columns["indent"] + columns["left"], *remark]
