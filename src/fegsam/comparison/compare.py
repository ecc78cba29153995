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
from fegsam.comparison.kept_curves import KeptCurves
from fegsam.comparison.suite import SuiteProblem, entries, refusal
from fegsam.report import Section
from fegsam.report.drawing import save_figures
from fegsam.report.kept import KeptParts
from fegsam.reproduction.kept_claims import KeptClaims
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

    What is finished is kept in the directory: each method on each problem, and each claim. A call
    that was interrupted or killed goes on where it was, and a second call takes seconds.

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
        As for `fegsam.run`; all cores by default. Results of an engine that is given as an object
        are not kept.
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
    spec = (spec or claim_spec("contest", quick, PACKAGE)).deepened(more_seeds)
    work = _Work(target, engine, progress)
    try:
        contests, left_out = work.contests(entries() if suite is None else suite, spec)
        judged = [("against_plain", against_plain.examine(spec, contests, left_out))]
        for name in claims:
            given = claim_spec(name, quick, PACKAGE).deepened(more_seeds)
            judged.append((name, work.claim(name, given)))
        sections = [_told(name, found, quick, more_seeds) for name, found in judged]
        sections += [
            contest.section(each, number, spec.sizes)
            for number, each in enumerate(contests, start=1)
        ]
        save_figures([figure for found in sections for figure in found.figures], target / "figures")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; what is finished is kept in {str(target)!r}: run the same command "
            "again to go on"
        ) from None
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
    }
    title = "Methods of federated stochastic approximation, compared"
    return sections, write_report(sections, target, title=title, settings=settings)


class _Work:
    """Computes the problems and the claims of a comparison, or reads them where they are kept."""

    def __init__(self, target: Path, engine: str | Engine | None, progress: bool) -> None:
        self._engine, self._progress = engine, progress
        self._curves: KeptCurves | None = None
        self._claims: KeptClaims | None = None
        if isinstance(engine, str | None):
            self._curves = KeptCurves(KeptParts(target / "contests", engine or "cpu"))
            self._claims = KeptClaims(target, engine or "cpu")

    def contests(
        self, suite: Sequence[SuiteProblem], spec: ClaimSpec
    ) -> tuple[list[contest.Contest], list[str]]:
        """The frontiers on every problem, and notes on the problems that are left out."""
        found, left_out = [], []
        for number, entry in enumerate(suite, start=1):
            why = refusal(entry, spec.sizes.agents)
            if why:
                left_out.append(f"{entry.title} is left out: {why}")
                _say(self._progress, left_out[-1])
                continue
            with _Timed(self._progress, f"problem {number}: {entry.title}"):
                found.append(
                    contest.compete(entry, spec.sizes, self._engine or "cpu", self._curves)
                )
        return found, left_out

    def claim(self, name: str, spec: ClaimSpec) -> Section:
        with _Timed(self._progress, f"claim: {name.replace('_', ' ')}"):
            found = self._claims.read(name, spec) if self._claims else None
            if found is None:
                module = importlib.import_module(f"{PACKAGE}.{name}")
                found = module.examine(spec, self._engine)
                if self._claims:
                    self._claims.write(name, spec, found)
        return found


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
