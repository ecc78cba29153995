"""Figures for print (matplotlib), and a page for the browser (Plotly) with verdicts on claims."""

from __future__ import annotations

from fegsam.report.figure_data import FigureData, Series
from fegsam.report.figures import save
from fegsam.report.page import write_report
from fegsam.report.terminal import summary
from fegsam.report.verdict import Section, Verdict, judge

__all__ = ["FigureData", "Section", "Series", "Verdict", "judge", "save", "summary", "write_report"]


def __dir__() -> list[str]:
    return list(__all__)
