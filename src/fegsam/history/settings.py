"""What a run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Settings:
    """Everything that decides a history, apart from the problem itself (which `fingerprint` stands
    for)."""

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
        """How often the agents meet: num_steps // sync_period."""
        return self.num_steps // self.sync_period
