"""The settings of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Settings:
    """Everything that determines a history; `fingerprint` identifies the problem."""

    algorithm: str
    num_agents: int
    step_size: float
    sync_period: int
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

    def __post_init__(self) -> None:
        self.record.setflags(write=False)

    @property
    def communications(self) -> int:
        """The number of synchronisations: num_steps // sync_period."""
        return self.num_steps // self.sync_period
