"""(g) The variance of control variates if only half of the agents take part in a round."""

from __future__ import annotations

from typing import Any

from fegsam.comparison.participation import VARIATES, variances
from fegsam.report import Section
from fegsam.reproduction.thresholds import ClaimSpec, certain


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All variances are exact, so `engine` is not used."""
    sizes, verdicts = spec.sizes, []
    for period in sizes.periods:
        found = variances(spec, period)
        some, all_ = found[f"half, {VARIATES}"], found[f"all, {VARIATES}"]
        detail = f"variance {some:.4g}; all agents: {all_:.4g}"
        verdicts.append(spec.verdict("sampling", f"K = {period}", certain(some / all_), detail))
    return Section(
        spec.letter,
        spec.title,
        "The long-run mean is not affected, but the variance is: a round of half of the agents "
        "has half of the samples, which would double the variance, and with control variates it "
        "is three times as large.",
        tuple(verdicts),
        notes=(
            "The law is (α/2) s² (2/m − 1/N) for m of N agents with noise s. The second 1/m is "
            "the noise of the variates themselves: an agent that is away keeps an old one, so "
            "they do not cancel in the average as they do if all take part.",
        ),
    )
