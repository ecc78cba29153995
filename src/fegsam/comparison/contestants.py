"""The methods that are compared, each with what it counts as a communication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fegsam.methods import fedavgm, fedhsa, importance_averaging, scafflsa
from fegsam.methods.correction import ControlVariates
from fegsam.methods.method import Method
from fegsam.methods.participation import Participation
from fegsam.methods.schedules import Polynomial, StepSchedule
from fegsam.methods.server import Server

PLAIN = "plain averaging"
TAIL = 0.5
"""The last part of a run whose mean is the output of contestants that take one."""
_MOMENTUM, _STEP, _OFFSET = 0.9, 1.5, 64.0


@dataclass(frozen=True)
class ComparedMethod:
    """One method and its output.

    Attributes
    ----------
    key, name : str
    figure : {"local", "server"}
        The figure in which it is drawn: what changes the local steps, or what the server does.
    method : function of N
        The method for N agents.
    schedule : StepSchedule or None
    output : {"last", "tail", "extrapolated"}
        The last average, its mean over the tail, or that of two step sizes, extrapolated.
    for_cells : bool
        Whether it is defined for cell rules alone.
    scale : float
        What multiplies the step sizes of the grid, so that every method is tuned over the same
        range of effective step sizes: eta alpha / (1 - beta) at the server, the first step of a
        schedule.
    has_exact : bool
        Whether its error on linear problems is computed exactly in reasonable time.

    Examples
    --------
    >>> contestant("fedhsa").exchanges
    2
    """

    key: str
    name: str
    figure: Literal["local", "server"]
    method: Callable[[int], Method]
    schedule: StepSchedule | None = None
    output: Literal["last", "tail", "extrapolated"] = "last"
    for_cells: bool = False
    scale: float = 1.0
    has_exact: bool = True

    @property
    def exchanges(self) -> int:
        """The number of communications in a round."""
        return self.method(2).exchanges

    @property
    def has_tail(self) -> bool:
        return self.output != "last"


def half(agents: int) -> Participation:
    """Half of the agents take part in a round; the chains of the others go on.

    >>> half(8).agents
    4
    """
    return Participation(agents=max(agents // 2, 1), others="go_on")


def by_kind(agents: int) -> Method:
    """SCAFFLSA with one control variate for each kind of agents.

    >>> by_kind(8).correction
    ControlVariates(of='kind', source='last_round')
    """
    return Method(correction=ControlVariates(of="kind"))


CONTESTANTS = (
    ComparedMethod("plain", PLAIN, "local", lambda agents: Method()),
    ComparedMethod("scafflsa", "SCAFFLSA", "local", lambda agents: scafflsa(), has_exact=False),
    ComparedMethod("by_kind", "SCAFFLSA by kind", "local", by_kind),
    ComparedMethod("fedhsa", "FedHSA", "local", lambda agents: fedhsa(), has_exact=False),
    ComparedMethod(
        "half", "half take part", "local", lambda agents: Method(participation=half(agents))
    ),
    ComparedMethod(
        "half_variates",
        "half take part, variates by kind",
        "local",
        lambda agents: Method(participation=half(agents), correction=ControlVariates(of="kind")),
    ),
    ComparedMethod(
        "fedavgm",
        "FedAvgM, momentum 0.9",
        "server",
        lambda agents: fedavgm(_MOMENTUM),
        scale=1 - _MOMENTUM,
    ),
    ComparedMethod(
        "server_step",
        "server step 1.5",
        "server",
        lambda agents: Method(server=Server(step=_STEP)),
        scale=1 / _STEP,
    ),
    ComparedMethod(
        "importance",
        "importance averaging",
        "server",
        lambda agents: importance_averaging(),
        for_cells=True,
    ),
    ComparedMethod(
        "tail", "tail mean", "server", lambda agents: Method(), output="tail", has_exact=False
    ),
    ComparedMethod(
        "polynomial",
        "falling step size, tail mean",
        "server",
        lambda agents: Method(),
        schedule=Polynomial(power=0.5, offset=_OFFSET),
        output="tail",
        scale=_OFFSET**0.5,
        has_exact=False,
    ),
    ComparedMethod(
        "extrapolated",
        "extrapolated tail mean",
        "server",
        lambda agents: Method(),
        output="extrapolated",
        has_exact=False,
    ),
)
"""All contestants; the first is the one that the others are compared with."""


def contestant(key: str) -> ComparedMethod:
    """The contestant of that key.

    >>> contestant("plain").name
    'plain averaging'
    """
    return {each.key: each for each in CONTESTANTS}[key]
