"""What a claim is held against, read from ``specs/<claim>.toml``: it stands there before anything is run.

A file has the thresholds in ``[claim]`` and how much is run in ``[quick]`` and ``[full]``; ``[both]`` holds what these share.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.experiments.estimates import Estimate, short, slope_estimate
from fegsam.report import Verdict, judge

FIRST_SEED = 1_000_000
"""The claims and their thresholds were worked out on the seeds from 0 on; what is judged runs on others."""


def fresh_seeds(count: int) -> range:
    """So many seeds that no threshold was chosen by.

    >>> fresh_seeds(3)
    range(1000000, 1000003)
    """
    return range(FIRST_SEED, FIRST_SEED + count)


@dataclass(frozen=True)
class ClaimSpec:
    """The thresholds of a claim and the sizes of its runs.

    Examples
    --------
    >>> claim_spec("sampling", quick=True).claim.slope
    [-1.1, -0.9]
    """

    claim: SimpleNamespace
    sizes: SimpleNamespace

    def resized(self, **sizes: Any) -> ClaimSpec:
        """The same thresholds, other runs.

        >>> claim_spec("sampling", quick=True).resized(seeds=3).sizes.seeds
        3
        """
        return ClaimSpec(self.claim, SimpleNamespace(**(vars(self.sizes) | sizes)))


def claim_spec(name: str, quick: bool) -> ClaimSpec:
    """What stands in ``specs/<name>.toml``."""
    text = files("fegsam.reproduction").joinpath("specs", f"{name}.toml").read_text(encoding="utf-8")
    tables: Mapping[str, Any] = tomllib.loads(text)
    sizes = tables.get("both", {}) | tables["quick" if quick else "full"]
    return ClaimSpec(SimpleNamespace(**tables["claim"]), SimpleNamespace(**sizes))


def held_against(
    claim: str, sentence: str, estimate: Estimate, low: float | None = None, high: float | None = None, detail: str = ""
) -> Verdict:
    """The verdict on whether the truth lies in [low, high].

    >>> held_against("coin", "The mean is about a half.", Estimate(0.5, 0.49, 0.51), 0.4, 0.6).threshold
    '0.4 to 0.6'
    """
    if low is None:
        bounds = f"at most {short(high or 0.0)}"
    else:
        bounds = f"at least {short(low)}" if high is None else f"{short(low)} to {short(high)}"
    return Verdict(claim, sentence, judge(estimate, low, high), estimate, bounds, detail)


def certain(value: float) -> Estimate:
    """A number that was computed, not sampled.

    >>> certain(0.5).half_width
    0.0
    """
    return Estimate(float(value), float(value), float(value))


def widest(estimates: Iterable[Estimate]) -> Estimate:
    """All of them together: the value furthest from 1 and an interval around every interval.

    >>> print(widest([Estimate(1.0, 0.9, 1.1), Estimate(1.2, 1.0, 1.4)]))
    1.2 [0.9, 1.4]
    """
    found = list(estimates)
    value = max((each.value for each in found), key=lambda v: abs(v - 1.0))
    return Estimate(value, min(each.low for each in found), max(each.high for each in found), found[0].level)


def exponent(x: ArrayLike, samples: ArrayLike) -> Estimate:
    """Of the power law of the means of (seeds, points) `samples`; NaN where a mean is not positive, and there is none.

    >>> exponent([1, 2, 4], [[1.0, 0.5, -0.1], [1.0, 0.5, 0.0]]).value
    nan
    """
    table = np.asarray(samples, dtype=float)
    if not (table.mean(axis=0) > 0).all():
        return certain(np.nan)
    return slope_estimate(x, table)
