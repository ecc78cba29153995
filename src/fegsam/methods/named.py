"""Methods by the names under which they were published."""

from __future__ import annotations

from collections.abc import Sequence

from fegsam.methods.average import ByVisits
from fegsam.methods.correction import ControlVariates
from fegsam.methods.local_steps import LocalSteps
from fegsam.methods.method import Method
from fegsam.methods.server import Server


def scafflsa() -> Method:
    """SCAFFLSA (Mangold et al., 2024): control variates of the last round, one for each agent.

    This is SCAFFOLD (Karimireddy et al., 2020) with its second option for the variates.

    >>> scafflsa().correction
    ControlVariates(of='agent', source='last_round')
    """
    return Method(correction=ControlVariates())


def fedhsa() -> Method:
    """FedHSA: control variates of the round's first step, with two communications a round.

    >>> fedhsa().exchanges
    2
    """
    return Method(correction=ControlVariates(source="first_step"))


def fedavgm(momentum: float = 0.9, *, step: float = 1.0, nesterov: bool = False) -> Method:
    """FedAvgM (Hsu, Qi and Brown, 2019): plain averaging with momentum at the server.

    >>> fedavgm(0.9).server.momentum
    0.9
    """
    return Method(server=Server(step, momentum, nesterov))


def fednova(local_steps: Sequence[int]) -> Method:
    """FedNova (Wang et al., 2020): unequal local steps, by kind, with normalised changes.

    >>> fednova((5, 10)).local_steps
    LocalSteps(by_kind=(5, 10), normalised=True)
    """
    return Method(local_steps=LocalSteps(local_steps))


def importance_averaging() -> Method:
    """Importance averaging (Woo, Joshi and Chi, 2023): each cell's mean, weighted by visits.

    >>> importance_averaging()
    Method(average=ByVisits())
    """
    return Method(average=ByVisits())
