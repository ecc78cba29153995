"""A round that the server has opened: who was asked, and who has answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fegsam.federation.protocol.exact_sums import are_sums, number_of
from fegsam.federation.protocol.wire import Accepted, Refused


@dataclass(eq=False)
class Round:
    """An open round; each change costs what it changes, however many agents there are."""

    number: int
    steps: int
    stops: tuple[int, ...]
    asked: frozenset[int]
    begun: float
    start: np.ndarray
    """(1 or 2, d): what is sent to the agents"""
    too_large: Callable[[np.ndarray], bool] = lambda _: False
    """whether changes (stops, d) are larger than a round can make them"""
    answered: dict[int, Accepted] = field(default_factory=dict)
    outstanding: dict[str, set[int]] = field(default_factory=dict)
    """of each node: the agents that were asked there and have not answered"""
    failures: Counter[int] = field(default_factory=Counter)
    retry_at: dict[int, float] = field(default_factory=dict)
    waiting: bool = False
    """whether its timeout has passed without a quorum"""
    drawn: int | None = None
    """number of agents that the method drew, quarantined or not; None: it draws none"""
    local_steps: Mapping[int, int] = field(default_factory=dict)
    """the steps of each agent in a round, where agents differ in that"""
    in_sums: bool = False
    """whether nodes report sums over their agents"""
    room: np.ndarray | None = None
    """the `params` of an earlier round, to write over: new memory takes time"""

    def __post_init__(self) -> None:
        self.places = {agent: place for place, agent in enumerate(sorted(self.asked))}
        rows = 0 if self.in_sums else len(self.asked)
        shape = rows, len(self.stops), self.start.shape[1]
        if self.room is None or self.room.shape != shape:
            self.room = np.empty(shape)
        self.params = self.room
        """what agents have reported, at their places"""
        self.total = np.zeros((3, len(self.stops), self.start.shape[1] + 1), np.int64)
        """where nodes report sums: that of all, see `exact_sums`"""
        self.pending = set(self.asked)
        """those who were asked, have not answered and are not quarantined"""
        self.idle = set(self.asked)
        """those of them whose answer is not under way"""

    def reported(self) -> tuple[np.ndarray, np.ndarray]:
        """int64 (m), (m, stops, d): the agents that answered, in order, and their parameters."""
        agents = np.array(sorted(self.answered), np.int64)
        if self.in_sums:
            return agents[:1], self.mean_of(self.total, len(agents))[: len(agents), :, :-1]
        if len(agents) == len(self.asked):
            return agents, self.params
        return agents, self.params[[self.places[agent] for agent in agents.tolist()]]

    def add(self, sums: bytes, count: int) -> Refused | None:
        """Add a sum over `count` agents, unless it cannot be one."""
        if len(sums) != 8 * self.total.size:
            return Refused("wrong shape")
        limbs = np.frombuffer(sums, "<i8").reshape(self.total.shape)
        if not are_sums(limbs, count):
            return Refused("change too large")
        if self.too_large(self.mean_of(limbs, count)[0, :, :-1] - self.start[0]):
            return Refused("change too large")
        self.total += limbs
        return None

    @staticmethod
    def mean_of(total: np.ndarray, count: int) -> np.ndarray:
        """(1, stops, d + 1): the mean of what was added up in integers (3, stops, d + 1)."""
        return (number_of(total) / max(count, 1))[None]

    def spread(self) -> float:
        """The mean squared distance from the mean at the end of a round that is in sums."""
        *mean, square = self.mean_of(self.total, len(self.answered))[0, -1]
        return max(0.0, float(square - np.square(mean - self.start[0]).sum()))

    def steps_of(self, agent: int) -> int:
        """The number of steps that an agent should make."""
        return min(self.steps, self.local_steps.get(agent, self.steps))

    def ask(self, node: str, agents: Iterable[int]) -> None:
        """Note that these agents are asked on a node."""
        self.idle.difference_update(agents)
        self.outstanding.setdefault(node, set()).update(agents)

    def answer(self, node: str, accepted: Accepted) -> None:
        agent = accepted.reply.agent
        self.answered[agent] = accepted
        self.outstanding.get(node, set()).discard(agent)
        self.drop((agent,))

    def drop(self, agents: Iterable[int]) -> None:
        """Expect nothing more of these agents in this round."""
        self.pending.difference_update(agents)
        self.idle.difference_update(agents)

    def retire(self, agents: Iterable[int]) -> None:
        """Expect nothing more of these agents, as if the method had not drawn them."""
        out = self.pending.intersection(agents)
        if self.drawn is not None:
            self.drawn -= len(out)
        self.drop(out)

    def put_off(self, node: str, now: float, retry_after: float) -> None:
        """Schedule the agents outstanding on a node to be asked again later."""
        for agent in self.outstanding.pop(node, set()) & self.pending:
            self.idle.add(agent)
            self.retry_at[agent] = now + retry_after * 2 ** min(self.failures[agent], 6)
            self.failures[agent] += 1

    def welcome(self, node: str, agents: Iterable[int]) -> None:
        """Ask these agents of a node that came back without a wait."""
        self.idle |= self.outstanding.pop(node, set()) & self.pending
        self.clear_waits(agents)

    def clear_waits(self, agents: Iterable[int]) -> None:
        for agent in agents:
            self.retry_at.pop(agent, None)
            self.failures.pop(agent, None)
