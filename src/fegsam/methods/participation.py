"""Which agents take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import fraction, integer

_LEAST = 2.0**-32
"""Random words of 32 bits decide who takes part."""


@dataclass(frozen=True)
class Participation:
    """Some of the agents take part in each round; the others send nothing.

    Parameters
    ----------
    agents : int, optional
        How many of the N, drawn anew in each round, uniformly and without replacement.
    probability : float, optional
        Instead of `agents`: each agent takes part with this probability, independently.
    others : {"wait", "go_on"}
        What the chains of the other agents do in the round: stand still, as in a deployed
        federation, or move on.
    divide_by : {"answered", "all"}
        The mean is over the agents that take part, or their sum is divided as if the others had
        reported no change.

    Examples
    --------
    >>> Participation(agents=100).agents, Participation(probability=0.9).probability
    (100, 0.9)
    """

    agents: int | None = None
    probability: float | None = None
    others: Literal["wait", "go_on"] = "wait"
    divide_by: Literal["answered", "all"] = "answered"

    def __post_init__(self) -> None:
        if (self.agents is None) == (self.probability is None):
            raise ProblemError(
                "Participation needs either agents, the number that takes part in a round, or "
                "probability, with which each takes part; give one of them."
            )
        if self.agents is not None:
            object.__setattr__(self, "agents", integer(self.agents, "agents"))
        else:
            probability = fraction(self.probability, "probability")
            object.__setattr__(self, "probability", probability)
            if probability < _LEAST:
                raise ProblemError(
                    f"probability is {probability}, so nobody would ever take part; give at "
                    f"least 2^-32, about {_LEAST:.3g}."
                )
        if self.others not in ("wait", "go_on"):
            raise ProblemError(f"others is {shown(self.others)}; give 'wait' or 'go_on'.")
        if self.divide_by not in ("answered", "all"):
            raise ProblemError(f"divide_by is {shown(self.divide_by)}; give 'answered' or 'all'.")
