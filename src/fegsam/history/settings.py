"""The settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fegsam.methods.rounds import Rounds


@dataclass(frozen=True, eq=False)
class Settings:
    """Everything that determines a history; `fingerprint` identifies the problem."""

    algorithm: str
    num_agents: int
    step_size: float
    sync_period: int
    """the length of a round; where rounds differ, of all after those in `periods`"""
    num_steps: int
    seeds: tuple[int, ...]
    record: np.ndarray
    """int64: the recorded times, in order"""
    record_params: bool
    engine: str
    sampling: Literal["markov", "iid"]
    output_decay: float
    stop_at_output: bool
    fingerprint: str
    """a hash of the problem, the algorithm and the initial parameters"""
    version: str
    """the package's version"""
    periods: tuple[int, ...] = ()
    """the lengths of the first rounds where they differ"""
    method: str = ""
    """the method; empty for plain averaging"""
    exchanges: int = 1
    """communications in a round"""
    schedule: str = ""
    """the schedule of the step sizes; empty for a constant one"""
    tail: float = 0.0
    """the last part of the run whose mean is kept, as a fraction of it"""
    tail_over: Literal["steps", "syncs"] = "steps"
    num_actions: int = 0
    """A, where the parameters are a table (S, A) of action values; else 0"""

    def __post_init__(self) -> None:
        self.record.setflags(write=False)

    @cached_property
    def rounds(self) -> Rounds:
        return Rounds(tuple(self.periods), self.sync_period)

    @property
    def communications(self) -> int:
        """The number of times that agents and server communicate: once a round for most methods."""
        return self.rounds.count(self.num_steps) * self.exchanges

    @property
    def tail_start(self) -> int:
        """The time after which the tail average begins; the end of the run where none is kept."""
        return self.num_steps - round(self.tail * self.num_steps)
