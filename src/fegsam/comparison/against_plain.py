"""(a) Every method against plain averaging: the errors of tuned settings at one budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fegsam.comparison.contest import Contest
from fegsam.comparison.contestants import PLAIN, ComparedMethod
from fegsam.comparison.curve import Curve
from fegsam.experiments.estimates import Estimate, ratio_estimate
from fegsam.report import Section, Verdict
from fegsam.reproduction.thresholds import ClaimSpec, certain


def examine(spec: ClaimSpec, contests: Sequence[Contest], left_out: Sequence[str]) -> Section:
    """One verdict for each method on each problem; `left_out` are notes on missing problems."""
    found: dict[str, list[Verdict]] = {}
    same: dict[str, list[str]] = {}
    for each in dict.fromkeys(one for contest in contests for one in contest.by_communications):
        for contest in contests:
            if each.name == PLAIN or each not in contest.by_communications:
                continue
            if _is_plain(contest, each, spec.sizes.judged):
                same.setdefault(contest.entry.title, []).append(each.name)
            else:
                found.setdefault(each.name, []).append(_verdict(spec, contest, each))
    verdicts = tuple(verdict for group in found.values() for verdict in group)
    return Section(
        spec.letter,
        spec.title,
        "Each method is proposed as an improvement on plain averaging. Here each is tuned with "
        f"the same trials and compared within {spec.sizes.judged} communications.",
        verdicts,
        notes=(
            "A round is one communication, of FedHSA two. An extrapolated run is two runs of the "
            "same samples whose parameters travel together: its messages are twice as long. Half "
            "of the agents that take part send half as many messages in a round.",
            *(
                f"{title}: {', '.join(names)} and plain averaging are one method there, so they "
                "are not compared."
                for title, names in same.items()
            ),
            *left_out,
        ),
        finding=_finding(found, spec.sizes.judged),
    )


def _finding(found: Mapping[str, Sequence[Verdict]], budget: int) -> str:
    """Which methods are better on every problem, on some, and on none.

    >>> won, lost = (Verdict("Slow mixing", "Less.", it) for it in ("holds", "does not hold"))
    >>> print(_finding({"FedHSA, b": [lost, lost], "tail mean": [won, lost]}, 64))
    No method is better than plain averaging on every problem. On some: tail mean (1 of 2). On none:
    FedHSA with b. All are tuned alike, within 64 communications.
    """
    always, never, some = [], [], []
    for key, verdicts in found.items():
        name, better = key.replace(", ", " with "), sum(one.outcome == "holds" for one in verdicts)
        if better == len(verdicts):
            always.append(name)
        elif better:
            some.append((better / len(verdicts), f"{name} ({better} of {len(verdicts)})"))
        else:
            never.append(name)
    if not found:
        return ""
    only = f"{'Only ' if some or never else ''}{_listed(always)}" if always else "No method"
    said = f"{only[0].upper()}{only[1:]} {'are' if len(always) > 1 else 'is'} better than "
    said += "plain averaging on every problem."
    if some:
        ranked = [text for _, text in sorted(some, key=lambda each: -each[0])]
        said += f" On some: {_listed(ranked)}."
    if never:
        said += f" On none: {_listed(never)}."
    return f"{said} All are tuned alike, within {budget} communications."


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _is_plain(contest: Contest, each: ComparedMethod, budget: int) -> bool:
    """Whether the method's chosen run is, number by number, that of plain averaging."""
    found, base = (curve.at(budget) for curve in _curves(contest, each))
    return (
        found is not None
        and base is not None
        and bool(np.allclose(found[1], base[1], rtol=1e-9, atol=0.0))
    )


def _curves(contest: Contest, each: ComparedMethod) -> tuple[Curve, Curve]:
    """The frontiers of a method and of plain averaging."""
    curves = contest.by_communications
    return curves[each], next(curve for one, curve in curves.items() if one.name == PLAIN)


def _verdict(spec: ClaimSpec, contest: Contest, each: ComparedMethod) -> Verdict:
    budget = spec.sizes.judged
    found, base = (curve.at(budget) for curve in _curves(contest, each))
    ratio, detail = certain(math.nan), "No setting runs within the budget."
    if found is not None and base is not None:
        ratio = error_ratio(found[1], base[1])
        detail = f"{found[0]}; {PLAIN}: {base[0]}"
    return spec.verdict(
        "better",
        contest.entry.title,
        ratio,
        detail,
        column=contest.entry.title,
        method=f"{each.name[0].upper()}{each.name[1:]}",
    )


def error_ratio(errors: np.ndarray, base: np.ndarray) -> Estimate:
    """The ratio of two mean errors over the same seeds; NaN if a run diverged."""
    if not (math.isfinite(errors.mean()) and math.isfinite(base.mean())):
        return certain(math.nan)
    return ratio_estimate(errors, base, paired=True)
