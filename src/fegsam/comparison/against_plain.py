"""(a) Every method against plain averaging: the errors of tuned settings at one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fegsam.comparison.contest import Contest
from fegsam.comparison.contestants import PLAIN, ComparedMethod
from fegsam.experiments.estimates import Estimate, ratio_estimate
from fegsam.report import Section, Verdict
from fegsam.reproduction.thresholds import ClaimSpec, certain


def examine(spec: ClaimSpec, contests: Sequence[Contest], left_out: Sequence[str]) -> Section:
    """One verdict for each method on each problem; `left_out` are notes on missing problems."""
    verdicts = [
        _verdict(spec, contest, each)
        for each in dict.fromkeys(one for contest in contests for one in contest.by_communications)
        if each.name != PLAIN
        for contest in contests
        if each in contest.by_communications
    ]
    return Section(
        spec.letter,
        spec.title,
        "Each method is proposed as an improvement on plain averaging. Here each is tuned with "
        f"the same trials and compared within {spec.sizes.judged} communications. No method is "
        "better on every problem unless every verdict below says so.",
        tuple(verdicts),
        notes=(
            "A round is one communication, of FedHSA two. An extrapolated run is two runs of the "
            "same samples whose parameters travel together: its messages are twice as long. Half "
            "of the agents that take part send half as many messages in a round.",
            *left_out,
        ),
    )


def _verdict(spec: ClaimSpec, contest: Contest, each: ComparedMethod) -> Verdict:
    curves = contest.by_communications
    plain = next(curve for one, curve in curves.items() if one.name == PLAIN)
    budget = spec.sizes.judged
    found, base = curves[each].at(budget), plain.at(budget)
    ratio, detail = certain(math.nan), "No setting runs within the budget."
    if found is not None and base is not None:
        same = np.allclose(found[1], base[1], rtol=1e-9, atol=0.0)
        ratio = certain(math.nan) if same else error_ratio(found[1], base[1])
        detail = "It is plain averaging here." if same else f"{found[0]}; {PLAIN}: {base[0]}"
    return spec.verdict(
        "better",
        contest.entry.title,
        ratio,
        detail,
        column=contest.entry.title,
        budget=budget,
        method=each.name,
    )


def error_ratio(errors: np.ndarray, base: np.ndarray) -> Estimate:
    """The ratio of two mean errors over the same seeds; NaN if a run diverged."""
    if not (math.isfinite(errors.mean()) and math.isfinite(base.mean())):
        return certain(math.nan)
    return ratio_estimate(errors, base, paired=True)
