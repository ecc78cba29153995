"""Sections as JSON and back, number for number."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from fegsam.experiments.estimates import Estimate
from fegsam.report.figure_data import FigureData, Series
from fegsam.report.verdict import Section, Verdict


def section_json(section: Section) -> str:
    """A section as text; `parse_section` gives back an equal one.

    Examples
    --------
    >>> verdict = Verdict("Garnet", "It holds.", "holds", Estimate(1.0, 0.9, 1.1))
    >>> section = Section("a", "Speed-up", "More is better.", (verdict,), notes=("One.",))
    >>> parse_section(section_json(section)) == section
    True
    """
    return json.dumps(dataclasses.asdict(section), default=_plain, ensure_ascii=False)


def figure_json(figure: FigureData) -> str:
    """A figure as text: two figures that are drawn alike have the same."""
    return json.dumps(dataclasses.asdict(figure), default=_plain, ensure_ascii=False)


def parse_section(text: str) -> Section:
    """The section that `section_json` wrote."""
    fields = json.loads(text)
    fields["verdicts"] = [_verdict(given) for given in fields["verdicts"]]
    fields["figures"] = [_figure(given) for given in fields["figures"]]
    return Section(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")


def _verdict(given: dict[str, Any]) -> Verdict:
    found = given["estimate"]
    return Verdict(**{**given, "estimate": None if found is None else Estimate(**found)})


def _figure(given: dict[str, Any]) -> FigureData:
    return FigureData(**{**given, "series": [Series(**one) for one in given["series"]]})
