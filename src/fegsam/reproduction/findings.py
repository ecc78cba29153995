"""What the checks of a claim found, in one sentence.

The spec of a claim has the sentence for the expected outcomes, with the numbers of the run filled
in. If an outcome is another, the sentence would not be true, and another one says what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from fegsam.report import Verdict
from fegsam.report.verdict import Outcome, joint_outcome
from fegsam.reproduction.thresholds import ClaimSpec
from fegsam.text import short


def finding(spec: ClaimSpec, verdicts: Sequence[Verdict]) -> str:
    """The sentence of the spec if every check came out as expected, or what differs.

    In the sentence ``{slope.within}`` is the percentage within which all verdicts of the check
    "slope" hold, ``{slope.least}`` and ``{slope.most}`` are its extreme values, and
    ``{slope.times}`` is 1 over the largest, rounded.

    Examples
    --------
    >>> from fegsam.experiments.estimates import Estimate
    >>> from fegsam.reproduction.thresholds import claim_spec
    >>> spec = claim_spec("inequality", quick=True)
    >>> finding(spec, [spec.verdict("bound", "TD", Estimate(0.5, 0.5, 0.5))]).partition(": ")[2]
    'it is at least 2 times the error.'
    >>> finding(spec, [spec.verdict("bound", "TD", Estimate(2.0, 2.0, 2.0))]).partition(",")[0]
    'Does not hold: at every setting that the theorem admits'
    """
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.check, []).append(verdict)
    found = {key: _outcome(group) for key, group in groups.items()}
    odd = {
        key: outcome for key, outcome in found.items() if outcome != spec.expected.get(key, "holds")
    }
    if not odd:
        return spec.finding.format(**{key: _numbers(group) for key, group in groups.items()})
    said = [f"{outcome}: {_plain(groups[key][0].sentence)}" for key, outcome in odd.items()]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _outcome(group: Sequence[Verdict]) -> Outcome:
    if all(verdict.kind == "identity" and verdict.outcome == "holds" for verdict in group):
        return "holds"
    return joint_outcome(group)


def _plain(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:]}".removesuffix(".")


def _numbers(group: Sequence[Verdict]) -> SimpleNamespace:
    values = [verdict.estimate.value for verdict in group if verdict.estimate is not None]
    return SimpleNamespace(
        within=max(verdict.within for verdict in group),
        least=short(min(values)) if values else "",
        most=short(max(values)) if values else "",
        times=f"{float(f'{1 / max(values):.2g}'):,.0f}" if values and max(values) > 0 else "",
    )
