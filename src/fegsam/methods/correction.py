"""Control variates: what an agent adds to each of its steps so that its drift cancels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fegsam.errors import ProblemError, shown


@dataclass(frozen=True)
class ControlVariates:
    """Agent i adds ``gbar - g_i`` to every F_i of a round.

    g_i estimates the mean of F_i at the common parameters, and gbar is the weighted mean of the
    g_i, so the corrections sum to zero and only the drift of the agents cancels.

    Parameters
    ----------
    of : {"agent", "kind"}
        Whether each agent has its own g_i, or the agents of a kind share their mean. By kind, all
        state is the server's, and the moments of linear algorithms can be computed exactly.
    source : {"last_round", "first_step"}
        What g_i is: the mean of F_i over the last round in which the agent took part, weighted by
        the step sizes (SCAFFOLD's option II, SCAFFLSA), starting at zero; or F_i at the round's
        first observation and common parameters (FedHSA), which keeps nothing from round to round
        but communicates twice a round.

    Examples
    --------
    >>> ControlVariates(of="kind")
    ControlVariates(of='kind', source='last_round')
    """

    of: Literal["agent", "kind"] = "agent"
    source: Literal["last_round", "first_step"] = "last_round"

    def __post_init__(self) -> None:
        if self.of not in ("agent", "kind"):
            raise ProblemError(f"of is {shown(self.of)}; give 'agent' or 'kind'.")
        if self.source not in ("last_round", "first_step"):
            raise ProblemError(
                f"source is {shown(self.source)}; give 'last_round' or 'first_step'."
            )
