"""`reproduce`: all claims in order, their figures, and the report."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from fegsam.problem.toy_text import from_gymnasium
from fegsam.report import Section, save
from fegsam.reproduction.thresholds import FIRST_SEED
from fegsam.run import Engine

CLAIMS = (
    "speed_up",
    "local_steps",
    "heterogeneity",
    "corollary",
    "bias_variance",
    "sampling",
    "lower_bound",
    "output",
    "privacy",
    "consensus",
    "local_sgd",
    "look_ahead",
    "inequality",
    "problem_size",
)
"""The modules of the claims (a) to (n): each has ``section(quick, engine) -> Section``."""


def reproduce(
    directory: str | Path,
    *,
    quick: bool = False,
    progress: bool = True,
    engine: str | Engine | None = None,
) -> tuple[list[Section], Path]:
    """Check every claim of the paper, and write figures and ``report.html`` to `directory`.

    Parameters
    ----------
    directory : path
        Created if it is missing. The figures are SVG, PDF and PNG files.
    quick : bool
        One problem for each algorithm and fewer seeds: minutes instead of half an hour.
    progress : bool
        Whether to report each claim and its outcome on standard error.
    engine : optional
        As for `fegsam.run`; all cores by default.

    Returns
    -------
    sections : list of Section
        One per claim.
    page : Path
        The path of the report.
    """
    from fegsam.report.figures import require_matplotlib
    from fegsam.report.interactive import require_plotly
    from fegsam.report.page import require_jinja2, write_report

    # A missing package is reported before the work, not after it.
    require_matplotlib()
    require_plotly()
    require_jinja2()
    if not quick:
        from_gymnasium("FrozenLake-v1", discount=0.9)
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    sections, begin = [], time.perf_counter()
    for number, name in enumerate(CLAIMS, start=1):
        _say(
            progress,
            f"[{number}/{len(CLAIMS)}] ({chr(96 + number)}) {name.replace('_', ' ')} ...",
            end="",
        )
        started = time.perf_counter()
        found: Section = importlib.import_module(f"fegsam.reproduction.{name}").section(
            quick, engine
        )
        _say(progress, f" {found.outcome} ({time.perf_counter() - started:.0f} s)")
        sections.append(found)
    for figure in (figure for found in sections for figure in found.figures):
        save(figure, target / "figures")
    settings = {
        "run": "quick: one problem for each algorithm"
        if quick
        else "full: three problems for each algorithm",
        "seeds": f"from {FIRST_SEED} on; the thresholds were chosen on others",
        "engine": "cpu" if engine is None else str(getattr(engine, "name", engine)),
        "seconds": f"{time.perf_counter() - begin:.0f}",
    }
    page = write_report(
        sections,
        target,
        title="Federated stochastic approximation: every claim, checked",
        settings=settings,
    )
    return sections, page


def _say(progress: bool, text: str, end: str = "\n") -> None:
    """Print lines instead of a `Progress` bar, so that the outcome of each claim stays visible."""
    if progress:
        print(text, end=end, file=sys.stderr, flush=True)
