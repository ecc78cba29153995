"""The page of faults and attacks says what the program says."""

from __future__ import annotations

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "federation_faults.md"
SOURCES = ("federation", "data")
ANY = "§"
"""Stands for what differs from case to case."""


def skeleton(text: str) -> str:
    """A text without what differs from case to case: numbers, names in quotes, brackets."""
    text = re.sub(r"\([^()]*\)", ANY, text)
    words = [re.sub(r".*[\d'\[§].*?(?=[;:,.)]*$)", ANY, word) for word in text.split()]
    return re.sub(rf"{ANY}( {ANY})+", ANY, " ".join(words))


def texts() -> list[str]:
    """The skeletons of all texts in the code of a federation."""
    found = []
    for folder in SOURCES:
        for path in (ROOT / "src" / "fegsam" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(skeleton(node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = [
                        str(part.value) if isinstance(part, ast.Constant) else ANY
                        for part in node.values
                    ]
                    found.append(skeleton("".join(parts)))
    return found


def said() -> list[str]:
    """What the last columns of the page's tables quote, piece by piece."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    quoted = [quote for row in rows for quote in re.findall("`([^`]+)`", row.split("|")[-2])]
    pieces = [piece.strip(" :,") for quote in quoted for piece in quote.split("...")]
    return [piece.removeprefix("reason ") for piece in pieces if piece]


def test_every_sentence_on_the_page_is_one_of_the_programs() -> None:
    known, quoted = texts(), said()
    assert len(quoted) > 80
    wrong = [
        piece for piece in quoted if not any(skeleton(piece) in each for each in known if each)
    ]
    assert wrong == []
