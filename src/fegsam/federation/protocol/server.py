"""The server: requests rounds, checks replies, averages and stores. It draws no samples.

A round works as follows.

1. The participants are drawn from words of the experiment's seed (all agents, unless the method
   has a participation or `Rules.participants` is smaller).
2. Each participant is asked on its node. It is asked again when an answer is lost or refused, or
   its node comes back. Nodes compute a round once, so asking again is always safe.
3. A reply is checked (`wire.check_reply`) before it is used. An agent with `Rules.offences` refused
   replies is quarantined.
4. The round closes when all participants have answered. With a quorum, it also closes at its
   timeout, or when all connected participants have answered.
5. The average is over the agents that answered, in the order of the agents, so its bits do not
   depend on the order of arrival. The server moves by it as the method says (`server_rounds`), and
   its state is on the disk before the next round is requested.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fegsam.engines.round_draws import draw_participants
from fegsam.federation.errors import FederationError
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.inbox import Inbox
from fegsam.federation.protocol.ledger import Event, FederationState, Ledger
from fegsam.federation.protocol.open_round import Round
from fegsam.federation.protocol.roster import Roster
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.server_rounds import ServerRounds
from fegsam.federation.protocol.sparse_rows import pack_rows
from fegsam.federation.protocol.starts import Starts
from fegsam.federation.protocol.state import named
from fegsam.federation.protocol.terms import Terms
from fegsam.federation.protocol.transport import Joined, Transport
from fegsam.federation.protocol.wire import Ask, Request, encode
from fegsam.history.history import History

_GREETINGS_APART = 10
"""Time before a node without an answer is greeted again, in units of `retry_after`."""
_OUTLIER = 10.0
"""An outlier's distance from the mean of a round, in units of the median distance."""
_NAMED = 100
"""The most agents that the event of a round names."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of a federation."""

    history: History
    """the history that the simulator gives; `settings.engine` is "federation" """
    participation: np.ndarray
    """bool (rounds, N): whose reply went into each average"""
    communications: int
    """number of replies that went into an average"""
    bytes_up: int
    bytes_down: int
    left_out: tuple[int, ...] = ()
    """the agents that were quarantined at the end, of whom some may have taken part before"""
    used_up: tuple[int, ...] = ()
    """the agents whose data was used up before the end"""


class FederationServer:
    """The server of one experiment.

    Parameters
    ----------
    terms : Terms
        See `Experiment.terms`.
    transport : Transport
    directory : path
        The directory of its files (see `ledger`); a server that died resumes from them.
    rules : Rules
    claims : Claims, optional
        The agents that each node may speak for; by default a node may claim any agent.
    on_event : callable, optional
        It is called with every event that is logged.
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(
        self,
        terms: Terms,
        transport: Transport,
        directory: str | pathlib.Path,
        rules: Rules | None = None,
        *,
        claims: Claims | None = None,
        on_event: Callable[[Event], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terms, self._transport, self._clock = terms, transport, clock
        self._claims = claims
        self._rules = Rules() if rules is None else rules
        self._num_agents = terms.settings.num_agents
        self._rules.check(self._num_agents, terms.method)
        self._rounds = ServerRounds(terms)
        self._ledger = Ledger(terms, directory, on_event)
        self._roster = Roster(self._num_agents, self._ledger.event, claims)
        self._state = FederationState.first(terms)
        self._greet_at: dict[str, float] = {}
        self._gathered = False

    def run(self) -> Outcome:
        """Run to the end; `FederationError` if a round gets no quorum."""
        with self._ledger.held():
            self._begin()
            starts = Starts(self._terms.fingerprint, self._transport.remembers)
            inbox = Inbox(
                self._terms,
                self._rules,
                self._roster,
                self._ledger,
                self._state,
                self._clock,
                starts,
                self._claims,
            )
            room = None
            while self._state.round < self._terms.rounds:
                current = self._open(room)
                starts.open(current.number, current.stops, current.start)
                while not self._may_close(current):
                    self._greet(current, inbox)
                    self._ask(current, inbox, starts)
                    for node, came in self._transport.receive(self._rules.poll):
                        self._take_in(inbox, node, came, current)
                self._close(current)
                room = current.params
            left_out = np.flatnonzero(self._quarantined()).tolist()
            used_up = np.flatnonzero(self._state.used_up).tolist()
            self._ledger.event(
                "finished",
                round=self._state.round,
                left_out=left_out[:_NAMED],
                count=len(left_out),
                used_up=used_up[:_NAMED],
            )
            return Outcome(
                history=self._ledger.history(self._state.average),
                participation=self._ledger.participation(),
                communications=self._state.communications,
                bytes_up=self._state.bytes_up,
                bytes_down=self._state.bytes_down,
                left_out=tuple(left_out),
                used_up=tuple(used_up),
            )

    def _quarantined(self) -> np.ndarray:
        return self._state.quarantined(self._rules.offences, self._claims)

    def _begin(self) -> None:
        kept = self._ledger.load()
        name, number = ("started", 0) if kept is None else ("resumed", kept.round)
        self._ledger.event(name, round=number, rounds=self._terms.rounds, agents=self._num_agents)
        if kept is not None:
            self._state = kept
            return
        self._ledger.record("0", self._state.average)
        self._ledger.save(self._state)

    def _open(self, room: np.ndarray | None) -> Round:
        number, plan = self._state.round, self._terms.plan
        begin, end = plan.begin(number), plan.begin(number + 1)
        output = self._terms.output_time
        if output == begin:
            self._ledger.record("output", self._state.average)
        stops = (output - begin, end - begin) if begin < output < end else (end - begin,)
        drawn, start = self._rounds.drawn(number), self._rounds.start(self._state)
        if drawn is not None:
            drawn = drawn[~self._state.used_up[drawn]]
        return Round(
            number,
            end - begin,
            stops,
            self._participants(number, drawn),
            self._clock(),
            start,
            self._rounds.too_large(number, start[0], self._rules.norm_bound),
            drawn=None if drawn is None else len(drawn),
            local_steps=self._rounds.local_steps(),
            in_sums=self._terms.aggregate == "node",
            room=room,
        )

    def _participants(self, number: int, drawn: np.ndarray | None) -> frozenset[int]:
        """The agents to ask in a round, of which the method has `drawn` some."""
        out = self._quarantined() | self._state.used_up
        good, count = np.flatnonzero(~out), self._rules.participants
        if drawn is not None:
            good = drawn[~out[drawn]]
        elif count is not None and count < len(good):
            good = draw_participants(good, count, self._terms.seed, number)
        return frozenset(good.tolist())

    def _greet(self, current: Round, inbox: Inbox) -> None:
        """Note the connected nodes, and greet new ones.

        While the node of some agent is unknown, all nodes are greeted at intervals.
        """
        now = self._clock()
        connected, banned = self._transport.nodes(), inbox.banned()
        if banned:
            connected = [node for node in connected if node not in banned]
        fresh, gone = self._roster.update(connected)
        self._greet_at |= dict.fromkeys(fresh, now)
        for node in gone:
            current.welcome(node, ())
        homeless = self._roster.homeless
        self._gathered |= not homeless
        for node in self._roster.nodes() if homeless else self._roster.silent():
            if now >= self._greet_at[node]:
                self._greet_at[node] = now + _GREETINGS_APART * self._rules.retry_after
                self._send(node, encode(Ask(self._terms.fingerprint)))

    def _ask(self, current: Round, inbox: Inbox, starts: Starts) -> None:
        now = self._clock()
        by_node: dict[str, list[int]] = {}
        for agent in current.idle:
            node = self._roster.host(agent)
            if node is not None and now >= current.retry_at.get(agent, now):
                by_node.setdefault(node, []).append(agent)
        for node, agents in by_node.items():
            agents.sort()
            current.ask(node, agents)
            inbox.note_request(current.number, agents)
            self._send(node, starts.frame(node) + encode(self._request(current, agents)))

    def _request(self, current: Round, agents: list[int]) -> Request:
        state, rounds = self._state, self._rounds
        corrections = rounds.corrections(state, agents)
        return Request(
            self._terms.fingerprint,
            current.number,
            tuple(agents),
            tuple(state.times[agents].tolist()),
            tuple(state.heard[agents].tolist()) if rounds.agents_keep_variates else (),
            b"" if corrections is None else pack_rows(corrections, np.zeros(len(state.average))),
        )

    def _send(self, node: str, payload: bytes) -> None:
        self._state.bytes_down += len(payload)
        self._transport.send(node, payload)

    def _take_in(self, inbox: Inbox, node: str, came: object, current: Round) -> None:
        if inbox.take(node, came, current):
            self._greet_at[node] = self._clock() + self._rules.retry_after
        if isinstance(came, Joined):
            self._greet_at[node] = self._clock()

    def _may_close(self, current: Round) -> bool:
        if current.drawn == 0:
            return True
        pending, now = current.pending, self._clock()
        reachable = len(current.answered) + len(pending)
        quorum = reachable if self._rules.quorum is None else self._rules.quorum
        if current.drawn is not None:
            quorum = min(quorum, current.drawn)
        if reachable < max(quorum, 1):
            less = " and have data left" if self._state.used_up.any() else ""
            raise self._gave_up(
                current, f"only {reachable} of the agents asked are not quarantined{less}"
            )
        if not pending:
            return True
        late = now - current.begun >= self._rules.round_timeout
        if len(current.answered) < quorum:
            if now - current.begun >= self._rules.give_up:
                late_ones = sorted(pending)[:_NAMED]
                raise self._gave_up(
                    current, f"agents {late_ones} did not answer for {self._rules.give_up:g} s"
                )
            if late and not current.waiting:
                current.waiting = True
                self._ledger.event(
                    "waiting",
                    round=current.number,
                    answered=len(current.answered),
                    missing=sorted(pending)[:_NAMED],
                )
            return False
        self._gathered |= late
        return late or (
            self._gathered and all(self._roster.host(agent) is None for agent in pending)
        )

    def _gave_up(self, current: Round, why: str) -> FederationError:
        self._ledger.event(
            "gave-up", round=current.number, answered=len(current.answered), reason=why
        )
        return FederationError(
            f"Round {current.number} has {len(current.answered)} replies, and {why}; repair them "
            "and start the server again "
            "(it resumes at this round), or set a smaller quorum."
        )

    def _close(self, current: Round) -> None:
        """Move by what the agents answered, store the state and log the round."""
        state, answered, before = self._state, sorted(current.answered), self._state.average
        missing = sorted(current.asked.difference(answered))
        self._settle(current)
        state.round += 1
        for agent in missing:
            state.unheard[agent] += current.steps_of(agent)
        self._count_silence(current, missing)
        state.times[answered] = [current.answered[agent].reply.time for agent in answered]
        state.unheard[answered] = state.silences[answered] = 0
        state.heard[answered] = state.round
        state.communications += len(answered)
        lost = {agent: each.lost for agent, each in sorted(current.answered.items()) if each.lost}
        if lost:
            steps = list(lost.values())[:_NAMED]
            self._ledger.event(
                "samples-lost", round=current.number, **named(list(lost)), steps=steps
            )
        self._ledger.note_answers(current.number, answered)
        self._ledger.event(
            "round",
            round=current.number,
            time=self._terms.plan.begin(state.round),
            asked=len(current.asked),
            answered=len(answered),
            missing=missing[:_NAMED],
            squared_error=self._size(state.average - self._terms.truth.fixed_point, 2),
            moved=self._size(state.average - before),
            seconds=self._clock() - current.begun,
            bytes_up=state.bytes_up,
            bytes_down=state.bytes_down,
        )
        # Log before saving: every closed round has its line, and a round that a restart closes
        # again has another one after it.
        self._ledger.save(state)

    def _count_silence(self, current: Round, missing: list[int]) -> None:
        """Count the connected agents that left a round unanswered, or refused to make it."""
        connected = [
            agent
            for agent in missing
            if self._roster.host(agent) is not None and not self._state.used_up[agent]
        ]
        self._state.silences[connected] += 1
        silent = [a for a in connected if self._state.silences[a] == self._rules.silences]
        if silent:
            self._state.offences[silent] = self._rules.offences
            self._ledger.event(
                "quarantined",
                round=current.number,
                **named(silent),
                reason=f"no answer in {self._rules.silences} rounds",
            )

    def _look_for_outliers(self, number: int, agents: np.ndarray, params: np.ndarray) -> None:
        """Keep each agent's distance from the mean, and log who has become an outlier."""
        if len(agents) < 2:
            return
        before = self._state.distances.copy()
        mean, distances = params.mean(axis=0), np.empty(len(agents))
        for row, each in enumerate(params):  # a copy of all of them takes longer than the rest
            distances[row] = np.linalg.norm(each - mean)
        limit = _OUTLIER * np.median(distances)
        self._state.distances[agents] = distances
        far = agents[(distances > limit) & ~(before[agents] > limit)]
        if len(far):
            self._ledger.event(
                "outlier",
                round=number,
                **named(far.tolist()),
                distance=float(self._state.distances[far].max()),
                median=float(np.median(distances)),
            )

    def _settle(self, current: Round) -> None:
        """Form the averages of a round, and record those that the history needs."""
        state, plan = self._state, self._terms.plan
        agents, params = current.reported()
        self._look_for_outliers(current.number, agents, params[:, -1])
        if len(current.stops) > 1:
            self._ledger.record("output", self._rounds.measured(state, agents, params[:, 0])[0])
        # After a synchronisation the agents are equal; after a shorter last round they are not.
        sync_error = 0.0
        if plan.is_whole(current.number):
            self._rounds.synchronise(state, agents, params[:, -1])
        else:
            state.average, sync_error = self._rounds.measured(state, agents, params[:, -1])
            sync_error = current.spread() if current.in_sums else sync_error
        now = plan.begin(current.number + 1)
        if now in self._terms.settings.record:
            self._ledger.record(str(now), state.average, sync_error)

    def _size(self, vector: np.ndarray, power: int = 1) -> float | None:
        """A power of the norm of a vector (d), in which errors are measured; None if unknown."""
        order = np.inf if self._terms.truth.norm == "sup" else 2
        size = float(np.linalg.norm(vector, order) ** power)
        return size if np.isfinite(size) else None
