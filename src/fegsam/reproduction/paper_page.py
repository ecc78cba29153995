"""The page of a reproduction: its claims, and where they come from."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fegsam.report import Section
from fegsam.report.page import write_report
from fegsam.report.paper import Paper
from fegsam.reproduction.errata import errata
from fegsam.reproduction.names import PAPER_AUTHORS, PAPER_LINK, PAPER_TITLE
from fegsam.reproduction.statements import STATEMENTS
from fegsam.reproduction.thresholds import FIRST_SEED
from fegsam.run import Engine


def this_paper() -> Paper:
    """The paper by name, with its statements and its errata.

    >>> this_paper().pieces("Theorem 3.1, second term")[0].statement.place
    'Section 3.3, Main result'
    """
    return Paper(PAPER_TITLE, PAPER_AUTHORS, PAPER_LINK, errata(), STATEMENTS)


def write_page(
    sections: Sequence[Section],
    target: Path,
    *,
    quick: bool,
    only: Iterable[str] | None,
    more_seeds: int,
    engine: str | Engine | None,
) -> Path:
    """Write ``target/report.html``, and return its path.

    Equal sections and settings give an equal page, however often the run was interrupted.
    """
    settings: dict[str, Any] = {
        "command": _command(target, quick, only, more_seeds),
        "run": "quick: one problem for each algorithm"
        if quick
        else "full: three problems for each algorithm",
        "seeds": f"from {FIRST_SEED} on; the thresholds were chosen on others",
        "engine": "cpu" if engine is None else str(getattr(engine, "name", engine)),
    }
    return write_report(
        sections,
        target,
        title="Every claim of the paper, checked",
        settings=settings,
        paper=this_paper(),
    )


def _command(target: Path, quick: bool, only: Iterable[str] | None, more_seeds: int) -> str:
    words = ["fegsam", "reproduce", *(["--quick"] if quick else [])]
    if only is not None:
        words += ["--only", "".join(only)]
    if more_seeds > 1:
        words += ["--more-seeds", str(more_seeds)]
    return shlex.join([*words, "-o", str(target)])
