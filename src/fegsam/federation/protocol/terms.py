"""The terms of a federation: all that its server knows of an experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from fegsam.federation.protocol.reach import Reach
from fegsam.federation.protocol.round_plan import RoundPlan
from fegsam.history.recorder import Truth
from fegsam.history.settings import Settings
from fegsam.methods.method import Method
from fegsam.methods.schedules import StepSchedule

Aggregate = Literal["agent", "node"]


@dataclass(frozen=True, eq=False)
class Terms:
    """All that a server knows of an experiment."""

    fingerprint: str
    settings: Settings
    """those of ``fegsam.run`` on engine "federation", with synchronisations and the end recorded"""
    initial_params: np.ndarray
    """(d)"""
    truth: Truth
    """the reference for the error of the average; NaN if it is unknown"""
    output_time: int
    kinds: np.ndarray
    """int64 (N): the kind of each agent, for weights, variates and local steps by kind"""
    num_kinds: int
    method: Method = field(default_factory=Method)
    schedule: StepSchedule | None = None
    discount: float | None = None
    reach: Reach | None = None
    """what bounds an agent's step; None: nothing is known"""
    salt: str = ""
    """what the fingerprint was salted with"""
    aggregate: Aggregate = "agent"
    """what nodes report"""

    @property
    def seed(self) -> int:
        return self.settings.seeds[0]

    @property
    def rounds(self) -> int:
        """The number of rounds; the last may be shorter, and its average is only measured."""
        return self.plan.count

    @cached_property
    def plan(self) -> RoundPlan:
        """The times and step sizes of all rounds."""
        settings = self.settings
        return RoundPlan(
            self.method,
            settings.rounds,
            settings.num_steps,
            settings.step_size,
            self.schedule,
            self.discount,
        )
