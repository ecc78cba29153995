"""`compare`: the suite, then the published claims, their figures, and the report."""

from __future__ import annotations

import importlib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fegsam.comparison import against_plain, contest
from fegsam.comparison.suite import SuiteProblem, entries, refusal
from fegsam.report import Section
from fegsam.report.drawing import save_figures
from fegsam.reproduction.thresholds import FIRST_SEED, ClaimSpec, claim_spec
from fegsam.run import Engine

PACKAGE = "fegsam.comparison"
CLAIMS = (
    "drift",
    "longer_rounds",
    "importance",
    "momentum",
    "participation",
    "client_sampling",
    "first_step",
    "extrapolation",
    "unstable",
)
"""The modules of the claims after (a): each has ``examine(spec, engine) -> Section``."""


def compare(
    directory: str | Path,
    *,
    quick: bool = False,
    more_seeds: int = 1,
    progress: bool = True,
    engine: str | Engine | None = None,
    spec: ClaimSpec | None = None,
    suite: Sequence[SuiteProblem] | None = None,
    claims: Sequence[str] = CLAIMS,
) -> tuple[list[Section], Path]:
    """Compare all methods, and write figures and ``report.html`` to `directory`.

    Parameters
    ----------
    directory : path
        Created if it is missing. The figures are SVG, PDF and PNG files.
    quick : bool
        Shorter runs and fewer seeds: minutes instead of an hour.
    more_seeds : int
        This many times the seeds, to decide what cannot be told with fewer.
    progress : bool
        Whether to report each problem and each claim on standard error.
    engine : optional
        As for `fegsam.run`; all cores by default.
    spec : ClaimSpec, optional
        Other sizes of the contest than those of the quick or the full run.
    suite : sequence of SuiteProblem, optional
        Some of the problems; all by default.
    claims : sequence of str
        Some of the claims; all by default.

    Returns
    -------
    sections : list of Section
        The verdicts first, then one section for each problem.
    page : Path
        The path of the report.
    """
    from fegsam.print_style import require_matplotlib
    from fegsam.report.interactive import require_plotly
    from fegsam.report.page import require_jinja2, write_report

    # A missing package is reported before the work, not after it.
    require_matplotlib()
    require_plotly()
    require_jinja2()
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    spec = (spec or claim_spec("contest", quick, PACKAGE)).deepened(more_seeds)
    contests, left_out = [], []
    for number, entry in enumerate(entries() if suite is None else suite, start=1):
        why = refusal(entry, spec.sizes.agents)
        if why:
            left_out.append(f"{entry.title} is left out: {why}")
            _say(progress, left_out[-1])
            continue
        with _Timed(progress, f"problem {number}: {entry.title}"):
            contests.append(contest.compete(entry, spec.sizes, engine or "cpu"))
    sections = [
        _told("against_plain", against_plain.examine(spec, contests, left_out), quick, more_seeds)
    ]
    for name in claims:
        with _Timed(progress, f"claim: {name.replace('_', ' ')}"):
            module = importlib.import_module(f"{PACKAGE}.{name}")
            given = claim_spec(name, quick, PACKAGE).deepened(more_seeds)
            sections.append(_told(name, module.examine(given, engine), quick, more_seeds))
    sections += [
        contest.section(each, number, spec.sizes) for number, each in enumerate(contests, start=1)
    ]
    save_figures([figure for found in sections for figure in found.figures], target / "figures")
    words = ["fegsam", "compare", *(["--quick"] if quick else [])]
    words += ["--more-seeds", str(more_seeds)] if more_seeds > 1 else []
    settings = {
        "command": shlex.join([*words, "-o", str(target)]),
        "run": "quick" if quick else "full",
        "seeds": f"pilots from {spec.sizes.first_pilot} on, evaluation from {FIRST_SEED} on",
        "step sizes": spec.sizes.step_sizes,
        "sync periods": spec.sizes.sync_periods,
        "lengths of runs": spec.sizes.lengths,
        "agents": spec.sizes.agents,
        "engine": "cpu" if engine is None else str(getattr(engine, "name", engine)),
        "seconds": f"{time.perf_counter() - begin:.0f}",
    }
    title = "Methods of federated stochastic approximation, compared"
    return sections, write_report(sections, target, title=title, settings=settings)


def _told(name: str, found: Section, quick: bool, more_seeds: int) -> Section:
    """The section with the file that checks it, and the command that decides more.

    A full run has more seeds and longer runs than a quick one.
    """
    more = "" if quick else f" --more-seeds {4 * more_seeds}"
    return replace(
        found,
        code=f"src/fegsam/comparison/{name}.py",
        deeper=f"fegsam compare{more} -o comparison-deeper",
    )


class _Timed:
    """Prints what begins, and how long it took, on lines of their own.

    A bar of the work between them does not overwrite either.
    """

    def __init__(self, wanted: bool, what: str) -> None:
        self._wanted = wanted
        self._begin = time.perf_counter()
        _say(wanted, what)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        _say(self._wanted, f"    done in {time.perf_counter() - self._begin:.0f} s")


def _say(wanted: bool, text: str) -> None:
    if wanted:
        print(text, file=sys.stderr, flush=True)
