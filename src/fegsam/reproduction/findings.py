"""What the checks of a claim found, in one sentence.

The spec of a claim has the sentence for the expected outcomes, with the numbers of the run filled
in. If an outcome is another, the sentence would not be true, and another one says what differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fegsam.report import Verdict
from fegsam.report.verdict import Outcome, joint_outcome
from fegsam.reproduction.thresholds import ClaimSpec
from fegsam.text import short


def finding(spec: ClaimSpec, verdicts: Sequence[Verdict]) -> str:
    """The sentence of the spec if every check came out as expected, or what differs.

    In the sentence ``{slope.within}`` is the percentage within which all verdicts of the check
    "slope" hold, and ``{slope.least}`` and ``{slope.most}`` are its extreme values.
    ``{slope.share}`` is the least in percent, ``{slope.times}`` is 1 over the largest, both rounded
    down, and ``{slope.dearer}`` says by how many percent the number of agents to the largest power
    that an interval has exceeds 1. ``{agents}`` is that number.

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
        sizes = getattr(spec.sizes, "agents", 0)
        agents = sizes if isinstance(sizes, int) else max(sizes)
        numbers = {key: _Numbers(group, agents) for key, group in groups.items()}
        return spec.finding.format(agents=agents, **numbers)
    said = [f"{outcome}: {_plain(groups[key][0].sentence)}" for key, outcome in odd.items()]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _outcome(group: Sequence[Verdict]) -> Outcome:
    if all(verdict.kind == "identity" and verdict.outcome == "holds" for verdict in group):
        return "holds"
    return joint_outcome(group)


def _plain(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:]}".removesuffix(".")


@dataclass(frozen=True)
class _Numbers:
    """What a sentence may say of the verdicts of one check; each is computed if it is said."""

    group: Sequence[Verdict]
    agents: int

    @property
    def _values(self) -> list[float]:
        return [verdict.estimate.value for verdict in self.group if verdict.estimate is not None]

    @property
    def within(self) -> int:
        return max(verdict.within for verdict in self.group)

    @property
    def least(self) -> str:
        return short(min(self._values))

    @property
    def most(self) -> str:
        return short(max(self._values))

    @property
    def share(self) -> str:
        return f"{math.floor(100 * min(self._values))}"

    @property
    def dearer(self) -> str:
        highest = max(each.estimate.high for each in self.group if each.estimate is not None)
        return f"{math.ceil(100 * (self.agents**highest - 1))}"

    @property
    def times(self) -> str:
        return f"{_two_digits_down(1 / max(self._values)):,.0f}"


def _two_digits_down(value: float) -> float:
    """A number of two significant digits that is not above the value.

    >>> _two_digits_down(28986.0), _two_digits_down(2.0)
    (28000.0, 2.0)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit + 1e-9) * unit
