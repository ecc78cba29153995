"""The thresholds of a claim, read from ``specs/<claim>.toml``, where they are set before any run.

A file has the claim's letter and title, a table ``[check.<name>]`` for each check (see `Check`),
other numbers in ``[claim]``, and the sizes of the runs in ``[quick]`` and ``[full]``; ``[both]``
has the sizes that these share.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.experiments.estimates import Estimate, slope_estimate
from fegsam.report import Verdict, judge
from fegsam.report.verdict import Kind

FIRST_SEED = 1_000_000
"""The first seed of the judged runs; the thresholds were chosen on the seeds from 0 on."""


def fresh_seeds(count: int) -> range:
    """`count` seeds on which no threshold was chosen.

    >>> fresh_seeds(3)
    range(1000000, 1000003)
    """
    return range(FIRST_SEED, FIRST_SEED + count)


RULES = {
    "order": "A tenth of a whole order: the theorem's terms are whole powers, so the nearest "
    "other power is ten times as far away.",
    "inequality": "The claim is this inequality, and the threshold is its other side.",
    "equality": "About twice the half-width of the 95 % interval at the sizes of the quick run: "
    "equal numbers are then judged equal in about 95 of 100 runs.",
    "rounding": "Equal up to the rounding errors of double precision.",
    "halfway": "Halfway, on a logarithmic scale, between the value under the claim and the value "
    "if it failed.",
    "limit": "The claim is that there is such a number of steps; a finite one proves it.",
    "remainder": "The law is of first order, and the threshold is the size of the terms that it "
    "omits.",
    "convention": "A convention: no theorem says how much is too much.",
}
"""The rules from which thresholds follow; a check's note adds what is special about it."""


@dataclass(frozen=True)
class Check:
    """One check of a claim, as the spec states it.

    Attributes
    ----------
    claim : str
        The claim in one sentence; ``{names}`` in it are filled in with the sizes of the run.
    theorem : str
        The statement of the paper, or its source.
    kind : {"measured", "exact", "identity"}
    bounds : (2,) tuple of float or None
        The least and the largest value, None if there is no such bound.
    rule : str
        The entry of `RULES` from which the bounds follow.
    note : str
        Further remarks on the bounds.
    fails : str
        How the check can fail.

    Examples
    --------
    >>> claim_spec("sampling", quick=True).checks["slope"].threshold
    '-1.1 to -0.9'
    """

    claim: str
    theorem: str
    kind: Kind
    bounds: tuple[float | None, float | None]
    rule: str
    fails: str
    note: str = ""

    @property
    def threshold(self) -> str:
        """The bounds in words."""
        return bounds_text(*self.bounds)

    @property
    def source(self) -> str:
        """The rule and the note that explain the bounds."""
        return f"{RULES[self.rule]} {self.note}".rstrip()


def bounds_text(low: float | None, high: float | None) -> str:
    """Bounds in words.

    >>> bounds_text(0.4, 0.6), bounds_text(2.0, None), bounds_text(None, None)
    ('0.4 to 0.6', 'at least 2', 'a finite number')
    >>> bounds_text(0.985, 1.015)
    '0.985 to 1.015'
    """
    if low is None:
        return "a finite number" if high is None else f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


@dataclass(frozen=True)
class ClaimSpec:
    """The checks of a claim, and the sizes of its runs.

    Attributes
    ----------
    letter, title : str
        The claim's.
    checks : dict
        The checks by name.
    claim : namespace
        Other numbers that are set before the run.
    sizes : namespace
        The sizes of the runs.

    Examples
    --------
    >>> claim_spec("sampling", quick=True).title
    'Markov against independent draws'
    """

    letter: str
    title: str
    checks: Mapping[str, Check]
    claim: SimpleNamespace
    sizes: SimpleNamespace

    def resized(self, **sizes: Any) -> ClaimSpec:
        """The same thresholds with other sizes of the runs.

        >>> claim_spec("sampling", quick=True).resized(seeds=3).sizes.seeds
        3
        """
        return replace(self, sizes=SimpleNamespace(**(vars(self.sizes) | sizes)))

    def verdict(
        self,
        check: str,
        where: str,
        estimate: Estimate,
        detail: str = "",
        *,
        kind: Kind | None = None,
        **names: Any,
    ) -> Verdict:
        """The verdict on whether the truth lies within the bounds of a check.

        `names` fill in the claim's sentence. `kind` replaces the spec's, for checks whose cases are
        partly computed and partly measured. An estimate of NaN is a number that is not known, so
        the outcome cannot be told.

        >>> claim_spec("sampling", quick=True).verdict(
        ...     "price", "coin", Estimate(1.0, 0.99, 1.01), factor=2.64
        ... ).outcome
        'holds'
        """
        found = self.checks[check]
        outcome = judge(estimate, *found.bounds)
        if found.bounds == (None, None) and not math.isnan(estimate.value):
            outcome = "holds" if math.isfinite(estimate.value) else "does not hold"
        return Verdict(
            where,
            found.claim.format(**names),
            outcome,
            estimate,
            found.threshold,
            detail,
            kind or found.kind,
            found.theorem,
            found.fails,
            found.source,
        )


def claim_spec(name: str, quick: bool, package: str = "fegsam.reproduction") -> ClaimSpec:
    """The contents of ``specs/<name>.toml`` in a package."""
    text = files(package).joinpath("specs", f"{name}.toml").read_text(encoding="utf-8")
    tables: Mapping[str, Any] = tomllib.loads(text)
    checks = {key: _check(given) for key, given in tables["check"].items()}
    sizes = tables.get("both", {}) | tables["quick" if quick else "full"]
    return ClaimSpec(
        tables["letter"],
        tables["title"],
        checks,
        SimpleNamespace(**tables.get("claim", {})),
        SimpleNamespace(**sizes),
    )


def _check(given: Mapping[str, Any]) -> Check:
    low, high = given.get("bounds", (-math.inf, math.inf))
    bounds = (None if low == -math.inf else float(low), None if high == math.inf else float(high))
    return Check(**{**given, "bounds": bounds})


def certain(value: float) -> Estimate:
    """A number that was computed, not sampled.

    >>> certain(0.5).half_width
    0.0
    """
    return Estimate(float(value), float(value), float(value))


def widest(estimates: Iterable[Estimate]) -> Estimate:
    """One estimate for all: the value furthest from 1, and the interval that covers every interval.

    >>> print(widest([Estimate(1.0, 0.9, 1.1), Estimate(1.2, 1.0, 1.4)]))
    1.2 [0.9, 1.4]
    """
    found = list(estimates)
    value = max((each.value for each in found), key=lambda v: abs(v - 1.0))
    return Estimate(
        value, min(each.low for each in found), max(each.high for each in found), found[0].level
    )


def exponent(x: ArrayLike, samples: ArrayLike) -> Estimate:
    """The exponent of the power law of the means of `samples` (seeds, points).

    NaN if a mean is not positive, so that there is no power law.

    >>> exponent([1, 2, 4], [[1.0, 0.5, -0.1], [1.0, 0.5, 0.0]]).value
    nan
    """
    table = np.asarray(samples, dtype=float)
    if not (table.mean(axis=0) > 0).all():
        return certain(np.nan)
    return slope_estimate(x, table)
