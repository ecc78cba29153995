"""Unequal numbers of local steps: agents of different kinds make different numbers in a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fegsam.errors import ProblemError
from fegsam.problem.checks import flag, integer, several


@dataclass(frozen=True)
class LocalSteps:
    """The agents of kind k make `by_kind[k]` local steps in a round, then wait for its end.

    A round lasts `sync_period` steps of the federation's time, and no kind makes more. The clock of
    an agent's path counts its own steps.

    Parameters
    ----------
    by_kind : sequence of int
        The number of local steps of each kind.
    normalised : bool
        Divide each agent's change by its number of steps and multiply by the mean number (FedNova).
        Without it, kinds with more steps count for more and the fixed point moves.

    Examples
    --------
    >>> import numpy as np
    >>> LocalSteps((5, 10)).factors(np.array([0, 1, 1, 1]))
    array([1.75 , 0.875, 0.875, 0.875])
    """

    by_kind: Sequence[int]
    normalised: bool = True

    def __post_init__(self) -> None:
        given = several(
            self.by_kind, "by_kind", "but must be a list: give one number for each kind"
        )
        if not given:
            raise ProblemError("by_kind is empty; give one number of local steps for each kind.")
        counts = tuple(integer(count, f"by_kind[{k}]") for k, count in enumerate(given))
        object.__setattr__(self, "by_kind", counts)
        object.__setattr__(self, "normalised", flag(self.normalised, "normalised"))

    def of_agents(self, kinds: np.ndarray) -> np.ndarray:
        """int64 (N,): the number of local steps of each agent."""
        return np.array(self.by_kind, np.int64)[kinds]

    def factors(self, kinds: np.ndarray) -> np.ndarray:
        """(N,): what each agent's change is multiplied by."""
        steps = self.of_agents(kinds)
        return steps.mean() / steps if self.normalised else np.ones(len(steps))
