"""The paper whose claims a page checks, with its errata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Erratum(NamedTuple):
    """One erratum: what is printed, what is right, and how much it matters."""

    number: str
    title: str
    where: str
    printed: str
    right: str
    severity: str
    test: str


@dataclass(frozen=True)
class Paper:
    """A paper by name, with its errata.

    Examples
    --------
    >>> Paper("On coins", "A. Author", "https://example.org").false_ones
    0
    """

    title: str
    authors: str
    link: str
    errata: Sequence[Erratum] = ()

    def erratum(self, number: str) -> Erratum:
        """The erratum of a number."""
        return next(one for one in self.errata if one.number == number)

    @property
    def false_ones(self) -> int:
        """How many errata are false statements."""
        return sum(one.severity == "false" for one in self.errata)
