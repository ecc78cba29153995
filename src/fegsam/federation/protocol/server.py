"""The server: asks, checks, averages, keeps. It owns no environment and draws no sample.

A round, from the average after r rounds to the next:

1. Who takes part is drawn (all, unless `Rules.participants` says fewer), from words of the
   experiment's seed.
2. Each is asked where it lives, and asked again when an answer is lost, refused or its node comes
   back: nodes compute a round once, so asking again is always safe.
3. What comes is checked (`wire.check_reply`) before it touches anything. Who offends
   `Rules.offences` times is quarantined.
4. The round closes when all have answered; or, with a quorum, at its timeout, or when all that are
   connected have.
5. The average is over those who answered, with equal weights and in the order of the agents, so
   that it is the same bits whatever the order of arrival. It is on the disk before the next round
   is asked for.
"""

from __future__ import annotations

import pathlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fegsam.engines.randomness import PARTICIPATION, words
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.experiment import Terms
from fegsam.federation.protocol.inbox import Inbox
from fegsam.federation.protocol.ledger import Event, Ledger, Standing
from fegsam.federation.protocol.roster import Roster
from fegsam.federation.protocol.transport import Transport
from fegsam.federation.protocol.wire import Accepted, Ask, Request, encode
from fegsam.history.history import History
from fegsam.methods.average import Aggregator, Mean

_GREETINGS_APART = 10
"""Times `retry_after`: how long a node has to answer a hello before it is greeted again."""


@dataclass(frozen=True)
class Rules:
    """How a server deals with its agents."""

    quorum: int | None = None
    """replies without which no round closes; None: all that take part and are not quarantined"""
    participants: int | None = None
    """agents that are asked in a round; None: all"""
    round_timeout: float = 600.0
    """seconds after which a round closes with its quorum"""
    give_up: float = 3600.0
    """seconds after which a round without its quorum ends the server; a restart resumes it"""
    retry_after: float = 5.0
    """seconds before an agent is asked again; twice as long each time"""
    poll: float = 0.5
    """seconds to wait for messages before looking up"""
    offences: int = 3
    """refused replies after which an agent is quarantined"""
    norm_bound: float = 1e9
    """largest 2-norm of parameters that are believed"""

    def check(self, num_agents: int) -> None:
        asked = num_agents if self.participants is None else self.participants
        for name, value, most in (
            ("participants", asked, num_agents),
            ("quorum", self.quorum, asked),
        ):
            if value is not None and not 1 <= value <= most:
                raise FederationError(
                    f"{name} is {value}; give a number from 1 to {most}, of {num_agents} agents."
                )
        for name in ("round_timeout", "give_up", "retry_after", "poll", "offences", "norm_bound"):
            if not getattr(self, name) > 0:
                raise FederationError(f"{name} is {getattr(self, name)}; give a positive number.")


def draw_participants(agents: list[int], count: int, seed: int, number: int) -> frozenset[int]:
    """`count` of `agents` for round `number`, uniformly and without replacement: those with the
    smallest random words."""
    candidates = np.array(agents, np.uint64)
    high, low = words(np.uint64(seed), candidates, np.uint64(number), PARTICIPATION)
    order = np.lexsort((candidates, low, high))
    return frozenset(int(agent) for agent in candidates[order[:count]])


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a federation leaves behind."""

    history: History
    """as of the simulator; `settings.engine` is "federation" """
    participation: np.ndarray
    """bool (rounds, N): whose reply went into each average"""
    communications: int
    """replies that went into an average"""
    bytes_up: int
    bytes_down: int


@dataclass(eq=False)
class Round:
    """A round that is open."""

    number: int
    steps: int
    stops: tuple[int, ...]
    asked: frozenset[int]
    begun: float
    answered: dict[int, Accepted] = field(default_factory=dict)
    outstanding: dict[int, str] = field(default_factory=dict)
    """agent -> node that has been asked for it and has not answered"""
    failures: Counter[int] = field(default_factory=Counter)
    retry_at: dict[int, float] = field(default_factory=dict)
    waiting: bool = False
    """its timeout has passed without a quorum"""

    def put_off(self, agents: list[int], now: float, retry_after: float) -> None:
        """Ask these again later."""
        for agent in agents:
            self.outstanding.pop(agent, None)
            self.retry_at[agent] = now + retry_after * 2 ** min(self.failures[agent], 6)
            self.failures[agent] += 1


class Server:
    """The server of one experiment.

    Parameters
    ----------
    terms : Terms
        See `Experiment.terms`.
    transport : Transport
    directory : path
        Where it keeps its files (see `ledger`); a server that died goes on from there.
    rules : Rules
    on_event : callable, optional
        Gets every event as it is logged.
    clock : callable
        Seconds, growing.
    """

    def __init__(
        self,
        terms: Terms,
        transport: Transport,
        directory: str | pathlib.Path,
        rules: Rules | None = None,
        *,
        on_event: Callable[[Event], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms, self._transport, self._clock = terms, transport, clock
        self._rules = Rules() if rules is None else rules
        self._num_agents = terms.settings.num_agents
        self._rules.check(self._num_agents)
        self._ledger = Ledger(terms, directory, on_event)
        self._roster = Roster(self._num_agents, self._ledger.event)
        self._standing = Standing.first(terms)
        self._greet_at: dict[str, float] = {}
        self._gathered = False
        self._aggregator: Aggregator = Mean()

    def run(self) -> Outcome:
        """Go on to the end; `FederationError` where a round finds no quorum."""
        with self._ledger.held():
            self._begin()
            inbox = Inbox(
                self._terms, self._rules, self._roster, self._ledger, self._standing, self._clock
            )
            while self._standing.round < self._terms.rounds:
                current = self._open()
                while not self._may_close(current):
                    self._greet()
                    self._ask(current, inbox)
                    for node, came in self._transport.receive(self._rules.poll):
                        self._take_in(inbox, node, came, current)
                self._close(current)
            self._ledger.event("finished", round=self._standing.round)
            return Outcome(
                history=self._ledger.history(self._standing.average),
                participation=self._ledger.participation(),
                communications=self._standing.communications,
                bytes_up=self._standing.bytes_up,
                bytes_down=self._standing.bytes_down,
            )

    def _begin(self) -> None:
        kept = self._ledger.load()
        name, number = ("started", 0) if kept is None else ("resumed", kept.round)
        self._ledger.event(name, round=number, rounds=self._terms.rounds, agents=self._num_agents)
        if kept is not None:
            self._standing = kept
            return
        self._ledger.record("0", self._standing.average)
        self._ledger.save(self._standing)

    def _time(self, rounds: int) -> int:
        return min(rounds * self._terms.settings.sync_period, self._terms.settings.num_steps)

    def _open(self) -> Round:
        number = self._standing.round
        begin, end = self._time(number), self._time(number + 1)
        output = self._terms.output_time
        if output == begin:
            self._ledger.record("output", self._standing.average)
        stops = (output - begin, end - begin) if begin < output < end else (end - begin,)
        return Round(number, end - begin, stops, self._participants(number), self._clock())

    def _participants(self, number: int) -> frozenset[int]:
        good, count = self._good(), self._rules.participants
        if count is None or count >= len(good):
            return frozenset(good)
        return draw_participants(good, count, self._terms.seed, number)

    def _good(self) -> list[int]:
        """Agents that are not quarantined."""
        return [
            agent
            for agent, offences in enumerate(self._standing.offences)
            if offences < self._rules.offences
        ]

    def _pending(self, current: Round) -> list[int]:
        good = set(self._good())
        return sorted(
            agent for agent in current.asked if agent not in current.answered and agent in good
        )

    def _greet(self) -> None:
        """Note who is connected; greet newcomers, and everybody once in a while as long as an
        agent's home is not known."""
        now = self._clock()
        for node in self._roster.update(self._transport.nodes()):
            self._greet_at[node] = now
        homeless = any(self._roster.host(agent) is None for agent in range(self._num_agents))
        self._gathered |= not homeless
        for node in self._roster.nodes() if homeless else self._roster.silent():
            if now >= self._greet_at[node]:
                self._greet_at[node] = now + _GREETINGS_APART * self._rules.retry_after
                self._send(node, encode(Ask(self._terms.fingerprint)))

    def _ask(self, current: Round, inbox: Inbox) -> None:
        now = self._clock()
        by_node: dict[str, list[int]] = {}
        for agent in self._pending(current):
            node = self._roster.host(agent)
            if current.outstanding.get(agent) != node:
                current.outstanding.pop(agent, None)
            if (
                node is not None
                and agent not in current.outstanding
                and now >= current.retry_at.get(agent, now)
            ):
                by_node.setdefault(node, []).append(agent)
        for node, agents in by_node.items():
            current.outstanding |= dict.fromkeys(agents, node)
            inbox.note_request(current.number, agents)
            params = self._standing.average[None]
            self._send(
                node,
                encode(
                    Request(
                        self._terms.fingerprint,
                        current.number,
                        tuple(agents),
                        current.stops,
                        params,
                    )
                ),
            )

    def _send(self, node: str, payload: bytes) -> None:
        self._standing.bytes_down += len(payload)
        self._transport.send(node, payload)

    def _take_in(self, inbox: Inbox, node: str, came: object, current: Round) -> None:
        if inbox.take(node, came, current):
            self._greet_at[node] = self._clock() + self._rules.retry_after

    def _may_close(self, current: Round) -> bool:
        pending, now = self._pending(current), self._clock()
        reachable = len(current.answered) + len(pending)
        quorum = reachable if self._rules.quorum is None else self._rules.quorum
        if reachable < max(quorum, 1):
            raise self._gave_up(
                current, f"only {reachable} of the agents asked are not quarantined"
            )
        if not pending:
            return True
        late = now - current.begun >= self._rules.round_timeout
        if len(current.answered) < quorum:
            if now - current.begun >= self._rules.give_up:
                raise self._gave_up(
                    current, f"agents {pending} did not answer for {self._rules.give_up:g} s"
                )
            if late and not current.waiting:
                current.waiting = True
                self._ledger.event(
                    "waiting",
                    round=current.number,
                    answered=sorted(current.answered),
                    missing=pending,
                )
            return False
        self._gathered |= late
        return late or (
            self._gathered and all(self._roster.host(agent) is None for agent in pending)
        )

    def _gave_up(self, current: Round, why: str) -> FederationError:
        self._ledger.event(
            "gave-up", round=current.number, answered=sorted(current.answered), reason=why
        )
        return FederationError(
            f"Round {current.number} has {len(current.answered)} replies, and {why}; see to them "
            "and start the server again "
            "(it resumes at this round), or set a smaller quorum."
        )

    def _close(self, current: Round) -> None:
        """Average over those who answered, keep it, and say who."""
        standing, settings = self._standing, self._terms.settings
        answered = sorted(current.answered)
        params = np.array([current.answered[agent].reply.params for agent in answered])
        averages = self._aggregator.update(standing.average, params)
        missing = sorted(current.asked.difference(answered))
        for agent in missing:
            standing.unheard[agent] += current.steps
            self._ledger.event("silent", round=current.number, agent=agent)
        for agent in answered:
            accepted = current.answered[agent]
            standing.times[agent], standing.unheard[agent] = accepted.reply.time, 0
            if accepted.lost:
                self._ledger.event(
                    "samples-lost", round=current.number, agent=agent, steps=accepted.lost
                )
        standing.round += 1
        standing.average = averages[-1]
        standing.communications += len(answered)
        now = self._time(standing.round)
        if len(current.stops) > 1:
            self._ledger.record("output", averages[0])
        if now in settings.record:
            apart = np.square(params[:, -1] - averages[-1]).sum(axis=1).mean()
            # A synchronisation leaves the agents together; the end of a shorter last round does
            # not.
            self._ledger.record(
                str(now), standing.average, 0.0 if now % settings.sync_period == 0 else float(apart)
            )
        self._ledger.event(
            "round",
            round=current.number,
            time=now,
            asked=sorted(current.asked),
            answered=answered,
            missing=missing,
            squared_error=self._squared_error(),
            seconds=self._clock() - current.begun,
            bytes_up=standing.bytes_up,
            bytes_down=standing.bytes_down,
        )
        # Logged first: a round that is closed for good has its line, and one that is closed again
        # has another behind it.
        self._ledger.save(standing)

    def _squared_error(self) -> float | None:
        truth = self._terms.truth
        error = float(
            np.linalg.norm(
                self._standing.average - truth.fixed_point, np.inf if truth.norm == "sup" else 2
            )
            ** 2
        )
        return error if np.isfinite(error) else None
