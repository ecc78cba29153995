"""A round that the server has opened: who was asked, and who has answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fegsam.federation.protocol.wire import Accepted


@dataclass(eq=False)
class Round:
    """An open round."""

    number: int
    steps: int
    stops: tuple[int, ...]
    asked: frozenset[int]
    begun: float
    answered: dict[int, Accepted] = field(default_factory=dict)
    outstanding: dict[int, str] = field(default_factory=dict)
    """agent -> node that was asked and has not answered"""
    failures: Counter[int] = field(default_factory=Counter)
    retry_at: dict[int, float] = field(default_factory=dict)
    waiting: bool = False
    """whether its timeout has passed without a quorum"""
    drawn: int | None = None
    """number of agents that the method drew, quarantined or not; None: it draws none"""
    local_steps: Mapping[int, int] = field(default_factory=dict)
    """the steps of each agent in a round, where agents differ in that"""

    def steps_of(self, agent: int) -> int:
        """The number of steps that an agent should make."""
        return min(self.steps, self.local_steps.get(agent, self.steps))

    def put_off(self, agents: list[int], now: float, retry_after: float) -> None:
        """Schedule these agents to be asked again later."""
        for agent in agents:
            self.outstanding.pop(agent, None)
            self.retry_at[agent] = now + retry_after * 2 ** min(self.failures[agent], 6)
            self.failures[agent] += 1
