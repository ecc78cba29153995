"""The mean of the averages over the last part of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fegsam.errors import ProblemError, shown
from fegsam.methods.rounds import Rounds
from fegsam.problem.checks import fraction


@dataclass(frozen=True)
class Tail:
    """The mean over the last part of a run, a fraction of its steps.

    Parameters
    ----------
    fraction : float
        At most 1: the mean over the whole run.
    over : {"steps", "syncs"}
        The mean over all steps, or over the synchronisations alone.

    Examples
    --------
    >>> Tail(0.5)
    Tail(fraction=0.5, over='steps')
    """

    fraction: float
    over: Literal["steps", "syncs"] = "steps"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fraction", fraction(self.fraction, "tail", closed=True))
        if self.over not in ("steps", "syncs"):
            raise ProblemError(f"over is {shown(self.over)}; give 'steps' or 'syncs'.")

    def check(self, rounds: Rounds, num_steps: int) -> None:
        """Raise `ProblemError` if a run has nothing in its tail.

        >>> Tail(0.1, "syncs").check(Rounds((), 50), 120)
        Traceback (most recent call last):
        fegsam.errors.ProblemError: The tail, 0.1 of 120 steps, has no synchronisation; give ...
        """
        first = num_steps - round(self.fraction * num_steps)
        last = num_steps if self.over == "steps" else rounds.last_sync(num_steps)
        if self.fraction and last <= first:
            what = "step" if self.over == "steps" else "synchronisation"
            raise ProblemError(
                f"The tail, {self.fraction:g} of {num_steps} steps, has no {what}; give a larger "
                "fraction or more steps."
            )


def tail_of(tail: Any) -> Tail:
    """The tail that the argument `tail` asks for; of fraction zero where it asks for none.

    >>> tail_of(0.5) == Tail(0.5), tail_of(None).fraction
    (True, 0.0)
    """
    if isinstance(tail, Tail):
        return tail
    return Tail(0.0 if tail is None else tail)
