"""The paper whose claims a page checks, with its statements and its errata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_NUMBER = r"(?:[A-Z]|\d+)(?:\.\d+)*\b"
_NAMES = re.compile(
    r"\b(?P<kind>Theorem|Lemma|Proposition|Corollary|Section|Appendix)s? "
    rf"(?P<numbers>{_NUMBER}(?:(?:,| and|, and) {_NUMBER})*)"
)


class Erratum(NamedTuple):
    """One erratum: what is printed, what is right, and how much it matters."""

    number: str
    title: str
    where: str
    printed: str
    right: str
    severity: str
    test: str


class Statement(NamedTuple):
    """A theorem of the paper, or a section that states something without one."""

    name: str
    """as the paper prints it: "Theorem 3.1" """
    section: str
    """the number of the section that it is in"""
    title: str
    """the title of that section"""
    says: str
    """what it states, in a sentence"""
    page: str
    """where the documentation goes through it"""

    @property
    def anchor(self) -> str:
        """The name of its place on a page.

        >>> Statement("Theorem 3.1", "3.3", "Main result", "It converges.", "").anchor
        'statement-theorem-3-1'
        """
        return "statement-" + re.sub(r"[ .]", "-", self.name.lower())

    @property
    def place(self) -> str:
        """Where a reader of the paper finds it.

        >>> Statement("Theorem 3.1", "3.3", "Main result", "It converges.", "").place
        'Section 3.3, Main result'
        """
        is_section = self.name in (f"Section {self.section}", f"Appendix {self.section}")
        return self.title if is_section else f"Section {self.section}, {self.title}"


class TextPart(NamedTuple):
    """A part of a sentence, with the statement that it names, if any."""

    text: str
    statement: Statement | None = None


@dataclass(frozen=True)
class Paper:
    """A paper by name, with its statements and its errata.

    Examples
    --------
    >>> Paper("On coins", "A. Author", "https://example.org").false_ones
    0
    """

    title: str
    authors: str
    link: str
    errata: Sequence[Erratum] = ()
    statements: Sequence[Statement] = ()

    def erratum(self, number: str) -> Erratum:
        """The erratum of a number."""
        return next(one for one in self.errata if one.number == number)

    @property
    def false_ones(self) -> int:
        """How many errata are false statements."""
        return sum(one.severity == "false" for one in self.errata)

    def pieces(self, text: str) -> list[TextPart]:
        """The text in pieces; those that name statements of the table can be linked.

        Examples
        --------
        >>> law = Statement("Theorem 6.2", "6.2", "Laws", "Coins are fair.", "docs/paper.md")
        >>> paper = Paper("On coins", "A. Author", "https://example.org", (), [law])
        >>> [(piece.text, piece.statement is law) for piece in paper.pieces("By Theorem 6.2.")]
        [('By ', False), ('Theorem 6.2', True), ('.', False)]
        """
        table = {one.name: one for one in self.statements}
        found, end = [], 0
        for begin, stop, name in _named(text):
            if name in table:
                found += [TextPart(text[end:begin]), TextPart(text[begin:stop], table[name])]
                end = stop
        return [piece for piece in (*found, TextPart(text[end:])) if piece.text]

    def errata_of(self, statement: Statement) -> list[Erratum]:
        """The errata whose place is the statement; what they contradict is right."""
        places = [(one, one.where.partition("It contradicts")[0]) for one in self.errata]
        return [one for one, place in places if statement in self.named_in([place])]

    def named_in(self, texts: Iterable[str]) -> list[Statement]:
        """The statements that the texts name, each once, in the order of the table."""
        named = {piece.statement for text in texts for piece in self.pieces(text)}
        return [one for one in self.statements if one in named]


def names_in(text: str) -> list[str]:
    """The names of theorems and sections in a text, in full.

    >>> names_in("Theorems 6.1 and 6.2, second term; Appendix A")
    ['Theorem 6.1', 'Theorem 6.2', 'Appendix A']
    """
    return [name for _, _, name in _named(text)]


def _named(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and full name of everything named; the first number goes with the word."""
    for found in _NAMES.finditer(text):
        offset = found.start("numbers")
        for k, number in enumerate(re.finditer(_NUMBER, found["numbers"])):
            begin = offset + number.start() if k else found.start()
            yield begin, offset + number.end(), f"{found['kind']} {number[0]}"
