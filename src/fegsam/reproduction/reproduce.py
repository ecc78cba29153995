"""`reproduce`: all claims in order, their figures, and the report."""

from __future__ import annotations

import importlib
import string
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fegsam.errors import ProblemError
from fegsam.problem.toy_text import from_gymnasium
from fegsam.report import Section
from fegsam.report.drawing import save_figures
from fegsam.reproduction.findings import finding
from fegsam.reproduction.kept_claims import KeptClaims
from fegsam.reproduction.paper_page import write_page
from fegsam.reproduction.thresholds import ClaimSpec, claim_spec
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
"""The modules of the claims (a) to (n): each has ``examine(spec, engine) -> Section``."""


def reproduce(
    directory: str | Path,
    *,
    quick: bool = False,
    only: Iterable[str] | None = None,
    more_seeds: int = 1,
    progress: bool = True,
    engine: str | Engine | None = None,
) -> tuple[list[Section], Path]:
    """Check every claim of the paper, and write figures and ``report.html`` to `directory`.

    Each finished claim is kept in the directory. A call that was interrupted or killed goes on
    where it was, and a second call takes seconds.

    Parameters
    ----------
    directory : path
        Created if it is missing. The figures are SVG, PDF and PNG files.
    quick : bool
        One problem for each algorithm and fewer seeds: minutes instead of half an hour.
    only : letters, optional
        The claims to check, such as "cd"; all by default.
    more_seeds : int
        This many times the seeds, to decide what cannot be told with fewer.
    progress : bool
        Whether to report each claim and its outcome on standard error.
    engine : optional
        As for `fegsam.run`; all cores by default. Results of an engine that is given as an object
        are not kept.

    Returns
    -------
    sections : list of Section
        One per claim.
    page : Path
        The path of the report.
    """
    from fegsam.report.figures import require_matplotlib
    from fegsam.report.interactive import require_plotly
    from fegsam.report.page import require_jinja2

    # A missing package is reported before the work, not after it.
    require_matplotlib()
    require_plotly()
    require_jinja2()
    chosen = _chosen(only)
    if not quick:
        from_gymnasium("FrozenLake-v1", discount=0.9)
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    kept = KeptClaims(target, engine or "cpu") if isinstance(engine, str | None) else None
    sections: list[Section] = []
    try:
        for number, name in enumerate(chosen, start=1):
            spec = claim_spec(name, quick).deepened(more_seeds)
            _say(progress, f"[{number}/{len(chosen)}] ({spec.letter}) {spec.title}")
            found = _examined(name, spec, kept, engine, progress)
            sections.append(_told(name, spec, found, quick, more_seeds))
        _say(progress, "drawing the figures")
        save_figures([each for found in sections for each in found.figures], target / "figures")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; {len(sections)} of {len(chosen)} claims are kept in {str(target)!r}: "
            "run the same command again to go on"
        ) from None
    return sections, write_page(
        sections, target, quick=quick, only=only, more_seeds=more_seeds, engine=engine
    )


def _chosen(only: Iterable[str] | None) -> tuple[str, ...]:
    """The modules of the claims with these letters."""
    if only is None:
        return CLAIMS
    modules = dict(zip(string.ascii_lowercase, CLAIMS, strict=False))
    unknown = [letter for letter in only if letter not in modules]
    if unknown or not list(only):
        raise ProblemError(
            f"only is {only!r}; name claims by their letters, {min(modules)} to {max(modules)}, "
            "such as 'cd'."
        )
    return tuple(name for letter, name in modules.items() if letter in only)


def _examined(
    name: str,
    spec: ClaimSpec,
    kept: KeptClaims | None,
    engine: str | Engine | None,
    progress: bool,
) -> Section:
    """The section of a claim, kept or computed."""
    found = None if kept is None else kept.read(name, spec)
    if found is not None:
        _say(progress, f"       {found.words} (kept)")
        return found
    begin = time.perf_counter()
    found = importlib.import_module(f"fegsam.reproduction.{name}").examine(spec, engine)
    if kept is not None:
        kept.write(name, spec, found)
    _say(progress, f"       {found.words} ({time.perf_counter() - begin:.0f} s)")
    return found


def _told(name: str, spec: ClaimSpec, found: Section, quick: bool, more_seeds: int) -> Section:
    """The section with its finding, and the commands that run it again or deeper."""
    start = f"fegsam reproduce --only {spec.letter} -o claim-{spec.letter}"
    more = f" --more-seeds {more_seeds}" if more_seeds > 1 else ""
    return replace(
        found,
        finding=finding(spec, found.verdicts),
        theorem=spec.theorem,
        errata=spec.errata,
        code=f"src/fegsam/reproduction/{name}.py",
        command=f"{start}{' --quick' if quick else ''}{more}",
        deeper=start if quick else f"{start} --more-seeds {4 * more_seeds}",
    )


def _say(progress: bool, text: str) -> None:
    """Print lines instead of a `Progress` bar, so that the outcome of each claim stays visible."""
    if progress:
        print(text, file=sys.stderr, flush=True)
