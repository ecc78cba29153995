"""The server's inbox: decodes messages of nodes, and checks each against its sender.

What cannot be used is an offence: of the agent whose result it is, or, if a node speaks for agents
that are not its own or says nothing that can be read, of the node. One payload makes at most one
line of the log for each kind of event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.ledger import FederationState, Ledger
from fegsam.federation.protocol.open_round import Round
from fegsam.federation.protocol.roster import Roster
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.starts import Starts
from fegsam.federation.protocol.state import named
from fegsam.federation.protocol.terms import Terms
from fegsam.federation.protocol.transport import Joined, Lost
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Accepted,
    Expected,
    Failure,
    Hello,
    NodeSum,
    Refused,
    Reply,
    Trouble,
    WireError,
    check_claim,
    check_reply,
    decode,
)


def _reported(message: Any) -> tuple[int, ...]:
    """The agents whose results a message brings."""
    if isinstance(message, NodeSum):
        if not message.agents or len(message.agents) != len(message.times):
            raise WireError("wrong shape")
        return message.agents
    return (message.agent,) if isinstance(message, Reply) else ()


class Inbox:
    """Handles the messages that nodes send to one server."""

    def __init__(
        self,
        terms: Terms,
        rules: Rules,
        roster: Roster,
        ledger: Ledger,
        state: FederationState,
        clock: Callable[[], float],
        starts: Starts,
        claims: Claims | None = None,
    ) -> None:
        self._terms, self._rules, self._roster, self._ledger = terms, rules, roster, ledger
        self._state, self._clock, self._starts, self._claims = state, clock, starts, claims
        self._first_round, self._one_by_one = state.round, terms.aggregate == "agent"
        self._owed: Counter[tuple[int, int]] = Counter()
        """(agent, round) -> number of requests without a reply so far"""
        self._said: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
        """what the log will say of the payload at hand: event -> reason -> agents"""

    def note_request(self, number: int, agents: Iterable[int]) -> None:
        """Count a request: each may be answered once, however late."""
        self._owed.update((agent, number) for agent in agents)

    def banned(self) -> set[str]:
        """The nodes that are quarantined, as they can be where keys are bound to agents."""
        if self._claims is None:
            return set()
        most = self._rules.offences
        return {node for node, count in self._state.node_offences.items() if count >= most}

    def take(self, node: str, came: object, current: Round) -> bool:
        """Handle what came from a node; return whether to greet the node again."""
        if node in self.banned():
            return False
        if isinstance(came, Joined):
            self._starts.lost(node)
            current.welcome(node, self._roster.agents_of(node))
            self._roster.forget(node)
            return False
        if isinstance(came, Lost):
            self._starts.lost(node)
            self._ledger.event("lost", round=current.number, node=node, reason=came.reason)
            self._put_off(node, current)
            return self._roster.is_silent(node)
        if not self._roster.has(node):
            self._say("refused", "node not connected")
            self._log(node, current)
            return False
        greet = self._take_payload(node, came, current)
        self._log(node, current)
        return greet

    def _take_payload(self, node: str, came: object, current: Round) -> bool:
        try:
            if not isinstance(came, bytes):
                raise WireError("not bytes")
            self._state.bytes_up += len(came)
            messages = decode(came, FROM_NODE, self._terms.settings.num_agents)
            if any(each.fingerprint != self._terms.fingerprint for each in messages):
                raise WireError("other experiment")
            if any(isinstance(each, NodeSum if self._one_by_one else Reply) for each in messages):
                raise WireError("not a message that is expected")
            replies = [agent for message in messages for agent in _reported(message)]
            if len(set(replies)) < len(replies):
                raise WireError("duplicate agent")
        except WireError as error:
            self._blame_node(node, str(error), current)
            self._put_off(node, current)
            return False
        wishes = [self._take_message(node, message, current) for message in messages]
        if any(
            not isinstance(message, Hello) and message.round == current.number
            for message in messages
        ):
            # Agents of the same request that are missing from the answer must be asked again.
            self._put_off(node, current)
        return any(wishes)

    def _take_message(self, node: str, message: Any, current: Round) -> bool:
        if isinstance(message, Hello):
            if self._roster.hello(node, message.agents):
                self._charge_node(node, current)
            current.clear_waits(self._roster.agents_of(node))
            return False
        if isinstance(message, Failure):
            return self._take_failure(node, message, current)
        if isinstance(message, NodeSum):
            self._take_sum(node, message, current)
        else:
            expected = self._expected(node, message.agent, current)
            self._judge(node, message, check_reply(message, expected), current)
        return False

    def _take_failure(self, node: str, failure: Failure, current: Round) -> bool:
        for agent in self._roster.agents_of(node) & set(failure.agents):
            event = "used-up" if failure.reason is Trouble.USED_UP else "failed"
            self._say(event, failure.reason.value, agent)
        if failure.reason is Trouble.UNKNOWN_BASE and self._starts.not_known(node):
            current.welcome(node, ())
            return False
        self._starts.lost(node)
        if failure.reason is Trouble.USED_UP:
            self._retire(sorted(self._roster.agents_of(node) & set(failure.agents)), current)
        self._put_off(node, current)
        if failure.reason is Trouble.NOT_HERE:
            self._roster.forget(node)
            return True
        return False

    def _retire(self, agents: list[int], current: Round) -> None:
        """Ask agents no more whose data is used up; this round closes without them."""
        self._state.used_up[agents] = True
        current.retire(agents)

    def _expected(self, node: str, agent: int, current: Round) -> Expected:
        return Expected(
            fingerprint=self._terms.fingerprint,
            round=current.number,
            steps=current.steps_of(agent),
            start=current.start[0],
            out=current.params[current.places.get(agent, 0)] if self._one_by_one else None,
            too_large=current.too_large,
            hosted=self._roster.agents_of(node),
            asked=current.asked,
            answered=current.answered,
            times=self._state.times,
            unheard=self._state.unheard,
        )

    def _take_sum(self, node: str, message: NodeSum, current: Round) -> None:
        """Take all replies in a sum, or none of them."""
        replies = [
            Reply(message.fingerprint, message.round, agent, current.steps_of(agent), at, b"")
            for agent, at in zip(message.agents, message.times, strict=True)
        ]
        lost = [check_claim(each, self._expected(node, each.agent, current)) for each in replies]
        judged: list[Accepted | Refused] = [
            one if isinstance(one, Refused) else Accepted(each, one)
            for each, one in zip(replies, lost, strict=True)
        ]
        fault = next((one for one in judged if isinstance(one, Refused)), None)
        fault = fault or current.add(message.sums, len(replies))
        for each, one in zip(replies, judged, strict=True):
            self._judge(node, each, one if fault is None else fault, current)

    def _judge(self, node: str, reply: Reply, judged: Accepted | Refused, current: Round) -> None:
        """Use a reply, or charge it to whoever is to blame."""
        state, agent, hosted = self._state, reply.agent, self._roster.agents_of(node)
        owed = self._owed[agent, reply.round]
        if owed > 1 and agent in hosted:
            self._owed[agent, reply.round] -= 1
        elif agent in hosted:
            del self._owed[agent, reply.round]
        if isinstance(judged, Accepted):
            if state.offences[agent] >= self._rules.offences:
                self._say("refused", "quarantined", agent)
            else:
                current.answer(node, judged)
                self._starts.answered(node)
        elif judged.reason in ("stale round", "duplicate") and (
            owed > 0 or reply.round < self._first_round
        ):
            # A late answer is no offence; its samples are in no average.
            state.silences[agent] = 0
            self._say("late", f"round {reply.round}", agent)
        elif agent in hosted:
            self._blame([agent], judged.reason, current)
            self._put_off(node, current)
        elif self._claims is not None and agent not in self._claims.of(node):
            self._say("refused", judged.reason)
            self._charge_node(node, current)
        elif self._roster.is_silent(node):
            # The answer to a server before this one, before the node has said who lives there.
            self._say("refused", judged.reason)
        else:
            self._blame_node(node, judged.reason, current)
            self._put_off(node, current)

    def _put_off(self, node: str, current: Round) -> None:
        current.put_off(node, self._clock(), self._rules.retry_after)

    def _blame_node(self, node: str, reason: str, current: Round) -> None:
        """Charge what no agent can be named for: to the agents outstanding on the node or to it."""
        suspects = sorted(current.outstanding.get(node, set()) & self._roster.agents_of(node))
        if suspects:
            self._blame(suspects, reason, current)
        else:
            self._say("refused", reason)
            self._charge_node(node, current)

    def _blame(self, agents: list[int], reason: str, current: Round) -> None:
        """Charge an offence to agents of the node that sent it."""
        for agent in agents:
            self._state.offences[agent] += 1
            self._say("refused", reason, agent)
            if self._state.offences[agent] == self._rules.offences:
                self._say("quarantined", reason, agent)
                current.drop((agent,))

    def _charge_node(self, node: str, current: Round) -> None:
        """Charge an offence to a node, which its agents have no part in."""
        offences = self._state.node_offences.get(node, 0) + 1
        self._state.node_offences[node] = offences
        if offences == self._rules.offences and self._claims is not None:
            self._say("quarantined", "the node's own offences")
            current.drop(self._claims.of(node))

    def _say(self, event: str, reason: str, *agents: int) -> None:
        self._said[event].setdefault(reason, []).extend(agents)

    def _log(self, node: str, current: Round) -> None:
        """Write one line for each kind of event of a payload."""
        for name, reasons in self._said.items():
            agents = sorted({agent for some in reasons.values() for agent in some})
            self._ledger.event(
                name,
                round=current.number,
                node=node,
                **named(agents),
                reason="; ".join(reasons),
            )
        self._said.clear()
