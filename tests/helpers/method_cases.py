"""Methods that the tests run: each place of a round alone, and places that meet."""

from __future__ import annotations

from typing import Any

import fegsam as fg

AGENTS, KINDS = 5, 3
BY_AGENT, BY_KIND = (0.1, 0.3, 0.2, 0.15, 0.25), (0.5, 0.3, 0.2)


def _variates(of: Any = "agent", source: Any = "last_round") -> fg.ControlVariates:
    return fg.ControlVariates(of, source)


def _some(others: Any, divide_by: Any = "answered", **who: Any) -> fg.Participation:
    return fg.Participation(**who, others=others, divide_by=divide_by)


METHODS: dict[str, fg.Method] = {
    "plain": fg.Method(),
    "weights of agents": fg.Method(fg.Mean(BY_AGENT)),
    "weights of kinds": fg.Method(fg.Mean(BY_KIND)),
    "last round by agent": fg.methods.scafflsa(),
    "last round by kind": fg.Method(correction=_variates("kind")),
    "first step by agent": fg.methods.fedhsa(),
    "first step by kind": fg.Method(correction=_variates("kind", "first_step")),
    "weighted last round by agent": fg.Method(fg.Mean(BY_AGENT), _variates()),
    "weighted last round by kind": fg.Method(fg.Mean(BY_KIND), _variates("kind")),
    "weighted first step by agent": fg.Method(fg.Mean(BY_AGENT), _variates(source="first_step")),
    "server step": fg.Method(server=fg.Server(step=0.5)),
    "momentum": fg.methods.fedavgm(0.6, step=0.8),
    "nesterov": fg.methods.fedavgm(0.6, step=0.8, nesterov=True),
    "m of N wait": fg.Method(participation=_some("wait", agents=2)),
    "m of N go on": fg.Method(participation=_some("go_on", agents=3)),
    "m of N, divided by all": fg.Method(participation=_some("wait", "all", agents=3)),
    "lost at random": fg.Method(participation=_some("wait", probability=0.4)),
    "often nobody, divided by all": fg.Method(
        participation=_some("go_on", "all", probability=0.2), server=fg.Server(momentum=0.5)
    ),
    "rounding": fg.Method(rounding=fg.Rounding(0.05)),
    "dithered rounding": fg.Method(rounding=fg.Rounding(0.05, dither=True)),
    "some cells": fg.Method(rounding=fg.SomeCells(2)),
    "normalised local steps": fg.methods.fednova((1, 4, 3)),
    "raw local steps": fg.Method(local_steps=fg.LocalSteps((4, 2, 1), normalised=False)),
    "rounded local steps of some": fg.Method(
        rounding=fg.Rounding(0.05),
        local_steps=fg.LocalSteps((2, 4, 3)),
        participation=_some("go_on", agents=3),
    ),
    "last round of some agents": fg.Method(
        correction=_variates(), participation=_some("wait", agents=2)
    ),
    "last round of some by kind": fg.Method(
        fg.Mean(BY_AGENT), _variates("kind"), participation=_some("go_on", probability=0.5)
    ),
    "first step of some": fg.Method(
        fg.Mean(BY_AGENT),
        _variates("kind", "first_step"),
        fg.Server(0.8, 0.5, nesterov=True),
        _some("wait", probability=0.5),
    ),
    "last round with nesterov": fg.Method(
        correction=_variates(), server=fg.Server(0.8, 0.5, nesterov=True)
    ),
    "rounding of some with momentum": fg.Method(
        fg.Mean(BY_KIND),
        server=fg.Server(0.9, 0.3),
        participation=_some("wait", "all", agents=4),
        rounding=fg.Rounding(0.02, dither=True),
    ),
}
BY_VISITS: dict[str, fg.Method] = {
    "by visits": fg.methods.importance_averaging(),
    "by visits of some": fg.Method(fg.ByVisits(), participation=_some("wait", agents=3)),
    "by visits of some, divided by all": fg.Method(
        fg.ByVisits(), participation=_some("go_on", "all", probability=0.5)
    ),
    "by visits with nesterov": fg.Method(fg.ByVisits(), server=fg.Server(0.8, 0.5, nesterov=True)),
}
EVERY_METHOD = METHODS | BY_VISITS


def methods_of(name: str) -> dict[str, fg.Method]:
    """Those that an algorithm can have."""
    return EVERY_METHOD if name in ("alg3", "alg4") else METHODS
