"""The server's inbox: decodes messages of nodes, and checks each against its sender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from fegsam.federation.protocol.experiment import Terms
from fegsam.federation.protocol.ledger import FederationState, Ledger
from fegsam.federation.protocol.open_round import Round
from fegsam.federation.protocol.roster import Roster
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import (
    FROM_NODE,
    Accepted,
    Expected,
    Failure,
    Hello,
    Reply,
    Trouble,
    WireError,
    check_reply,
    decode,
)


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
    ) -> None:
        self._terms, self._rules, self._roster, self._ledger = terms, rules, roster, ledger
        self._state, self._clock = state, clock
        self._first_round = state.round
        self._owed: Counter[tuple[int, int]] = Counter()
        """(agent, round) -> number of requests without a reply so far"""

    def note_request(self, number: int, agents: Iterable[int]) -> None:
        """Count a request: each may be answered once, however late."""
        self._owed.update((agent, number) for agent in agents)

    def take(self, node: str, came: object, current: Round) -> bool:
        """Handle one payload or loss; return whether to greet the node again."""
        if isinstance(came, Lost):
            self._ledger.event("lost", round=current.number, node=node, reason=came.reason)
            self._put_off_node(node, current)
            return node in self._roster.silent()
        if node not in self._roster.nodes():
            self._ledger.event(
                "refused", round=current.number, node=node, agent=None, reason="node not connected"
            )
            return False
        try:
            if not isinstance(came, bytes):
                raise WireError("not bytes")
            self._state.bytes_up += len(came)
            messages = decode(came, FROM_NODE)
            replies = [message.agent for message in messages if isinstance(message, Reply)]
            if len(set(replies)) < len(replies):
                raise WireError("duplicate agent")
        except WireError as error:
            self._refuse(node, self._suspects(node, current), str(error), current)
            self._put_off_node(node, current)
            return False
        wishes = [self._take_message(node, message, current) for message in messages]
        if any(
            not isinstance(message, Hello) and message.round == current.number
            for message in messages
        ):
            # Agents of the same request that are missing from the answer must be asked again.
            self._put_off_node(node, current)
        return any(wishes)

    def _take_message(self, node: str, message: Any, current: Round) -> bool:
        if message.fingerprint != self._terms.fingerprint:
            self._refuse(node, self._suspects(node, current), "other experiment", current)
            return False
        if isinstance(message, Hello):
            self._roster.hello(node, message.agents)
            return False
        if isinstance(message, Failure):
            return self._take_failure(node, message, current)
        self._take_reply(node, message, current)
        return False

    def _take_failure(self, node: str, failure: Failure, current: Round) -> bool:
        hosted = self._roster.agents_of(node)
        agents = sorted(hosted.intersection(failure.agents))
        self._ledger.event(
            "failed", round=current.number, node=node, agents=agents, reason=failure.reason.value
        )
        current.put_off(
            [agent for agent in agents if agent in current.outstanding],
            self._clock(),
            self._rules.retry_after,
        )
        if failure.reason is Trouble.NOT_HERE:
            self._roster.forget(node)
            return True
        return False

    def _take_reply(self, node: str, reply: Reply, current: Round) -> None:
        hosted = self._roster.agents_of(node)
        state = self._state
        judged = check_reply(
            reply,
            Expected(
                fingerprint=self._terms.fingerprint,
                round=current.number,
                steps=current.steps_of(reply.agent),
                shape=(len(current.stops), len(self._terms.initial_params)),
                norm_bound=self._rules.norm_bound,
                hosted=hosted,
                asked=current.asked,
                answered=current.answered,
                times=state.times,
                unheard=state.unheard,
            ),
        )
        owed = self._owed[reply.agent, reply.round] > 0
        if owed and reply.agent in hosted:
            self._owed[reply.agent, reply.round] -= 1
        if isinstance(judged, Accepted):
            quarantined = state.offences[reply.agent] >= self._rules.offences
            if quarantined:
                self._ledger.event(
                    "refused",
                    round=current.number,
                    node=node,
                    agent=reply.agent,
                    reason="quarantined",
                )
                return
            current.answered[reply.agent] = judged
            current.outstanding.pop(reply.agent, None)
        elif judged.reason in ("stale round", "duplicate") and (
            owed or reply.round < self._first_round
        ):
            # A late answer is no offence; its samples are in no average.
            self._ledger.event(
                "late", round=current.number, node=node, agent=reply.agent, of_round=reply.round
            )
        else:
            culprits = [reply.agent] if reply.agent in hosted else self._suspects(node, current)
            self._refuse(node, culprits, judged.reason, current)
            current.put_off(
                [agent for agent in culprits if agent in current.outstanding],
                self._clock(),
                self._rules.retry_after,
            )

    def _suspects(self, node: str, current: Round) -> list[int]:
        """Agents to blame for an unattributable message: those outstanding on this node."""
        return sorted(
            agent
            for agent in self._roster.agents_of(node)
            if current.outstanding.get(agent) == node
        )

    def _put_off_node(self, node: str, current: Round) -> None:
        agents = [agent for agent, where in current.outstanding.items() if where == node]
        current.put_off(agents, self._clock(), self._rules.retry_after)

    def _refuse(self, node: str, agents: list[int], reason: str, current: Round) -> None:
        if not agents:
            self._ledger.event(
                "refused", round=current.number, node=node, agent=None, reason=reason
            )
        for agent in agents:
            self._state.offences[agent] += 1
            offences = self._state.offences[agent]
            self._ledger.event(
                "refused",
                round=current.number,
                node=node,
                agent=agent,
                reason=reason,
                offences=offences,
            )
            if offences == self._rules.offences:
                self._ledger.event("quarantined", round=current.number, node=node, agent=agent)
