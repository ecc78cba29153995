"""The rules that an operator gives to a server."""

from __future__ import annotations

from dataclasses import dataclass

from fegsam.federation.errors import FederationError
from fegsam.methods.method import Method


@dataclass(frozen=True)
class Rules:
    """The rules of a server: participation, timeouts and refusals."""

    quorum: int | None = None
    """smallest number of replies of a round; None: all participants that are not quarantined"""
    participants: int | None = None
    """number of agents that take part in a round; None: those of the method, or all"""
    round_timeout: float = 600.0
    """seconds after which a round closes with its quorum"""
    give_up: float = 3600.0
    """seconds after which a round without its quorum ends the server; a restart resumes it"""
    retry_after: float = 5.0
    """seconds before an agent is asked again; doubled each time"""
    poll: float = 0.5
    """seconds to wait for messages at a time"""
    offences: int = 3
    """number of refused replies after which an agent is quarantined"""
    silences: int = 10
    """number of rounds in a row that a connected agent may leave unanswered before it is
    quarantined"""
    norm_bound: float = 1e9
    """largest 2-norm of an agent's change in a round, where its steps could make a larger one"""

    def check(self, num_agents: int, method: Method | None = None) -> None:
        asked = num_agents if self.participants is None else self.participants
        participation = None if method is None else method.participation
        if participation is not None:
            if self.participants is not None:
                raise FederationError(
                    f"participants is {self.participants}, but the method has a participation of "
                    "its own; leave one of them out."
                )
            asked = participation.agents or num_agents
        for name, value, most in (
            ("participants", asked, num_agents),
            ("quorum", self.quorum, asked),
        ):
            if value is not None and not 1 <= value <= most:
                raise FederationError(
                    f"{name} is {value}; give a number from 1 to {most} for {num_agents} agents."
                )
        for name in (
            "round_timeout",
            "give_up",
            "retry_after",
            "poll",
            "offences",
            "silences",
            "norm_bound",
        ):
            if not getattr(self, name) > 0:
                raise FederationError(f"{name} is {getattr(self, name)}; give a positive number.")
