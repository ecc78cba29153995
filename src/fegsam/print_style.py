"""The look of figures in print: fonts, widths and colours, for every renderer with matplotlib."""

from __future__ import annotations

from typing import Any

from fegsam.errors import ProblemError

COLUMN, PAGE = 3.4, 7.0
"""Inches: one column of a two-column page, and both."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without yellow, which is invisible on white; black is the page's ink."""
GREY = "#767676"
"""The colour of reference lines, readable on white and on black."""
PRINT: dict[str, Any] = {
    # This font comes with matplotlib and has mathematical symbols, so a figure looks the same on
    # every machine.
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#e4e4e4",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.35,
    "figure.constrained_layout.use": True,
    # Text stays text in a PDF, and a figure always has the same bytes.
    "pdf.fonttype": 42,
    "svg.hashsalt": "fegsam",
    "savefig.dpi": 300,
}
"""Settings of matplotlib for a figure in print."""


def require_matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ProblemError("Figures need matplotlib; run: pip install 'fegsam[report]'") from error
    return matplotlib
