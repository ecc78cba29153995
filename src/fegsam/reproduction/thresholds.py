"""The thresholds of a claim, read from ``specs/<claim>.toml``, where they are set before any run.

A file has the claim's letter and title, the statement of the paper, the finding in one sentence, a
table ``[check.<name>]`` for each check (see `Check`), other numbers in ``[claim]``, and the sizes
of the runs in ``[quick]`` and ``[full]``; ``[both]`` has the sizes that these share.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.experiments.estimates import Estimate, slope_estimate
from fegsam.report import Verdict, judge
from fegsam.report.verdict import Kind, Outcome, Role
from fegsam.reproduction.names import algorithm_of

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


EQUALITIES = ("order", "equality", "remainder")
"""The rules whose bounds lie on both sides of a claimed number."""


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
    role : {"main", "support", "apart"}
        As in `Verdict`.

    Examples
    --------
    >>> claim_spec("sampling", quick=True).checks["slope"].threshold
    'within 10 % of -1'
    """

    claim: str
    theorem: str
    kind: Kind
    bounds: tuple[float | None, float | None]
    rule: str
    fails: str
    note: str = ""
    role: Role = "main"

    @property
    def target(self) -> float | None:
        """The number that the claim says the estimate equals, in the middle of the bounds.

        None for an inequality, and for a number that is claimed to be zero: no percentage measures
        the distance from zero.
        """
        low, high = self.bounds
        if self.rule not in EQUALITIES or low is None or high is None or low == -high:
            return None
        return round((low + high) / 2, 12)

    @property
    def threshold(self) -> str:
        """The bounds in words."""
        low, high = self.bounds
        if self.target is not None and high is not None:
            return f"within {100 * abs(high / self.target - 1):.3g} % of {self.target:g}"
        if low is not None and high is not None and low <= 0 and self.rule not in EQUALITIES:
            # The lower bound is the least value that the number can have.
            return bounds_text(None, high)
        return bounds_text(low, high)

    @property
    def source(self) -> str:
        """The rule and the note that explain the bounds."""
        return f"{RULES[self.rule]} {self.note}".rstrip()


def bounds_text(low: float | None, high: float | None) -> str:
    """Bounds in words.

    >>> bounds_text(0.4, 0.6), bounds_text(2.0, None), bounds_text(None, None)
    ('0.4 to 0.6', 'at least 2', 'a finite number')
    >>> bounds_text(1.0, 1.0), bounds_text(-0.1, 0.1)
    ('exactly 1', 'within 0.1 of 0')
    """
    if low is not None and high is not None and low == -high:
        return f"within {high:g} of 0"
    if low is not None and low == high:
        return f"exactly {high:g}"
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
    theorem : str
        The statement of the paper, by its number.
    finding : str
        What the checks find, in one sentence; see `findings.finding`.
    expected : dict
        The outcomes of the checks that the sentence is true of, other than "holds".
    errata : tuple of str
        The numbers of the errata that concern the claim.
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
    theorem: str = ""
    finding: str = ""
    expected: Mapping[str, Outcome] = field(default_factory=dict)
    errata: tuple[str, ...] = ()

    def resized(self, **sizes: Any) -> ClaimSpec:
        """The same thresholds with other sizes of the runs.

        >>> claim_spec("sampling", quick=True).resized(seeds=3).sizes.seeds
        3
        """
        return replace(self, sizes=SimpleNamespace(**(vars(self.sizes) | sizes)))

    def deepened(self, times: int) -> ClaimSpec:
        """The same checks with `times` as many seeds and random problems: narrower intervals.

        >>> claim_spec("sampling", quick=True).deepened(4).sizes.seeds
        1200
        """
        counts = {
            name: times * size
            for name, size in vars(self.sizes).items()
            if isinstance(size, int) and (name.endswith("seeds") or name == "problems")
        }
        return self.resized(**counts)

    def verdict(
        self,
        check: str,
        where: str,
        estimate: Estimate,
        detail: str = "",
        *,
        kind: Kind | None = None,
        column: str = "",
        **names: Any,
    ) -> Verdict:
        """The verdict on whether the truth lies within the bounds of a check.

        `names` fill in the claim's sentence. `kind` replaces the spec's, for checks whose cases are
        partly computed and partly measured. `column` is the algorithm or method; by default the
        algorithm with which `where` begins. An estimate of NaN is a number that is not known, so
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
            found.target,
            column or algorithm_of(where),
            found.role,
            check,
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
        tables.get("theorem", ""),
        tables.get("finding", ""),
        tables.get("expected", {}),
        tuple(tables.get("errata", ())),
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
