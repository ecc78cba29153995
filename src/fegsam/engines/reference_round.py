"""A round of the `reference` engine: who takes part, the local steps, and what the server does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fegsam.engines.agent import Agent
from fegsam.engines.job import LARGEST, Job
from fegsam.engines.round_draws import participants, reported
from fegsam.history.settings import Settings
from fegsam.methods.aggregate import Aggregator, Replies, ServerState
from fegsam.methods.average import ByVisits
from fegsam.methods.variates import Variates


class RoundAgent(Agent, Protocol):
    """An agent that takes part in rounds."""

    @property
    def state(self) -> int:
        """The state of its chain at the time of the next step; 0 where it has none."""
        ...

    @property
    def cell(self) -> int:
        """The cell that the last step wrote, where the rule writes one."""
        ...

    @property
    def finite_steps(self) -> int:
        """The steps of the last call that left the parameters finite."""
        ...

    def skip(self, count: int) -> None:
        """Move on by `count` steps that are not made."""
        ...


class ReferenceServer:
    """The server under one seed: its state, and how it opens and closes a round."""

    def __init__(self, job: Job, index: int) -> None:
        self.job, self.seed = job, job.settings.seeds[index]
        self.kinds = job.agents.kinds.astype(np.int64)
        num_kinds, memory = len(job.agents.mdps), job.start.memory
        self.aggregator = Aggregator(job.method, self.kinds, num_kinds)
        self._state = self.aggregator.start(job.start.params[index])
        if "velocity" in memory:
            self._state = ServerState(self._state.params, memory["velocity"][index])
        self.variates: Variates | None = None
        correction = job.method.correction
        if correction is not None:
            self.variates = Variates.start(
                correction, self.kinds, self.aggregator.weights, num_kinds, job.dimension
            )
            if "variates" in memory:
                self.variates = self.variates.restored(
                    {name: values[index] for name, values in memory.items()}
                )

    @property
    def params(self) -> np.ndarray:
        return self._state.params

    def open(self, agents: Sequence[RoundAgent], time: int) -> ReferenceRound:
        """The round that starts at `time`."""
        number = int(self.job.rounds.containing(np.asarray(time)))
        present = participants(self.job.method.participation, len(agents), self.seed, number)
        return ReferenceRound(self, agents, present, number, self.aggregator.sent(self._state))

    def close(self, current: ReferenceRound) -> np.ndarray:
        """Synchronise: the server's parameters (d) after the round."""
        method, agents = self.job.method, current.present
        changes = current.params - current.sent
        if self.variates is not None and current.keeps_variates:
            total = self.job.step_sizes(current.begin, current.end).sum()
            self.variates = self.variates.after(agents, current.drifts / total)
        if method.local_steps is not None:
            changes = method.local_steps.factors(self.kinds)[agents, None] * changes
        if method.rounding is not None:
            changes = np.array(
                [
                    reported(method.rounding, change, self.seed, int(agent), current.number)
                    for agent, change in zip(agents, changes, strict=True)
                ]
            ).reshape(changes.shape)
        replies = Replies(agents, current.params, changes, current.log_weights)
        self._state = self.aggregator.update(self._state, replies)
        current.end_clocks()
        return self._state.params

    def memory(self, agents: Sequence[RoundAgent]) -> dict[str, np.ndarray]:
        """What a continued run needs besides the parameters and the agents' states."""
        found: dict[str, np.ndarray] = {}
        if self.job.method.server.momentum:
            found["velocity"] = self._state.velocity
        if self.variates is not None and self.job.method.exchanges == 1:
            sparse = self.job.form == "cell" and self.variates.by_agent
            width = min(self.job.rounds.longest, self.job.dimension)
            found |= self.variates.saved(width if sparse else None)
        if self.job.method.own_clocks:
            found["clocks"] = np.array([agent.time for agent in agents], np.int64)
        return found


class ReferenceRound:
    """An open round: the parameters of the agents that take part."""

    def __init__(
        self,
        server: ReferenceServer,
        agents: Sequence[RoundAgent],
        present: np.ndarray,
        number: int,
        sent: np.ndarray,
    ) -> None:
        job = server.job
        self.present, self.number, self.sent = present, number, sent
        self.begin, self.end = (int(job.rounds.start(np.asarray(r))) for r in (number, number + 1))
        self._server, self._job, self._agents = server, job, agents
        self.params = np.tile(sent, (len(present), 1))
        self.drifts = np.zeros_like(self.params)
        """what the rule alone, without a correction, has added"""
        self.corrections = self._corrections()
        self._lengths = np.full(len(agents), self.end - self.begin)
        if job.method.local_steps is not None:
            self._lengths = job.method.local_steps.of_agents(server.kinds)
        self.log_weights = None
        if isinstance(job.method.average, ByVisits):
            self.log_weights = np.zeros_like(self.params)

    @property
    def keeps_variates(self) -> bool:
        correction = self._job.method.correction
        return correction is not None and correction.source == "last_round"

    def _corrections(self) -> np.ndarray | None:
        """(m, d): what each agent adds to its steps; None where the method has no correction."""
        variates = self._server.variates
        if variates is None or len(self.present) == 0:
            return None if variates is None else np.zeros_like(self.params)
        if self.keeps_variates:
            return variates.corrections(self.present)
        first = np.array([self._agents[i].direction(self.sent) for i in self.present])
        return variates.within(self.present, first)

    def advance(self, begin: int, end: int) -> int:
        """The local steps at times begin..end-1; the time up to which all agents are finite.

        Only the agents that take part make steps, and each no more than its own number of them.
        """
        at_once = self.corrections is None and self.log_weights is None
        if not at_once:
            for time in range(begin, end):
                self._step(time)
            return end
        sizes, reached = self._job.step_sizes(begin, end), end
        for place, agent in enumerate(self.present):
            count = min(end, self.begin + int(self._lengths[agent])) - begin
            if count > 0:
                moved = self._agents[agent].local_steps(self.params[place], count, sizes[:count])
                self.params[place] = moved
                if self._agents[agent].finite_steps < count:
                    reached = min(reached, begin + self._agents[agent].finite_steps + 1)
        return reached

    def _step(self, time: int) -> None:
        """One local step of every agent that takes part and has not made all of its own."""
        size = self._job.step_sizes(time, time + 1)
        for place, agent in enumerate(self.present):
            if time - self.begin >= self._lengths[agent]:
                continue
            moved = self._agents[agent].local_steps(self.params[place], 1, size)
            self.drifts[place] += moved - self.params[place]
            if self.corrections is not None:
                moved += size * self.corrections[place]
            self.params[place] = moved
            if self.log_weights is not None:
                self.log_weights[place, self._agents[agent].cell] -= np.log1p(-size[0])

    def average(self) -> tuple[np.ndarray, float]:
        """The mean over the agents that take part, and their mean squared distance from it."""
        if len(self.present) == 0:
            return self.sent, 0.0
        aggregator = self._server.aggregator
        mean = aggregator.mean(self.params, self.present)
        return mean, aggregator.spread(self.params, self.present, mean)

    def end_clocks(self) -> None:
        """Let the chains of the agents that did not take part move on, where the method says so."""
        participation = self._job.method.participation
        if participation is not None and participation.others == "go_on":
            for agent in np.setdiff1d(np.arange(len(self._agents)), self.present):
                self._agents[agent].skip(int(self._lengths[agent]))

    def failed_kind(self) -> int | None:
        """The kind of an agent with a parameter that is no longer finite, or None."""
        finite = (np.abs(self.params) <= LARGEST).all(axis=1)
        if finite.all():
            return None
        return int(self._server.kinds[self.present[finite.argmin()]])


class TailSum:
    """The mean of the averages over the last part of a run, as the settings ask for it."""

    def __init__(self, settings: Settings, dimension: int) -> None:
        self._settings, self._sum, self._count = settings, np.zeros(dimension), 0

    def add(self, time: int, average: np.ndarray) -> None:
        """Count the average at `time`, if it belongs to the tail."""
        settings = self._settings
        if settings.tail_over == "syncs" and not settings.rounds.is_sync(np.asarray(time)):
            return
        if time > settings.tail_start:
            self._sum += average
            self._count += 1

    def mean(self) -> np.ndarray:
        """(d); NaN if no time belongs to the tail."""
        return self._sum / self._count if self._count else np.full_like(self._sum, np.nan)
