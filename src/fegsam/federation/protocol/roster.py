"""The connected nodes and the agents that each of them hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Roster:
    """The connected nodes and the agents that they claim.

    If two nodes claim one agent, the node that joined first hosts it.
    """

    def __init__(self, num_agents: int, event: Callable[..., None]) -> None:
        self._num_agents, self._event = num_agents, event
        self._claims: dict[str, frozenset[int] | None] = {}
        """in the order of joining; None before the node's hello"""

    def update(self, nodes: Iterable[str]) -> list[str]:
        """Note the connected nodes, and return the new ones."""
        now = list(dict.fromkeys(nodes))
        for node in [node for node in self._claims if node not in now]:
            claim = self._claims.pop(node)
            self._event("left", node=node, agents=sorted(claim or ()))
        fresh = [node for node in now if node not in self._claims]
        self._claims.update(dict.fromkeys(fresh))
        return fresh

    def hello(self, node: str, agents: Iterable[int]) -> None:
        """Note the agents that a node claims; unknown and taken ones are refused by name."""
        if node not in self._claims:
            return
        claim = frozenset(agents)
        if claim != self._claims[node]:
            self._event("joined", node=node, agents=sorted(claim))
            self._claims[node] = claim
            for agent in sorted(claim - self.agents_of(node)):
                owner = self.host(agent)
                reason = "there is no such agent" if owner is None else f"it lives on node {owner}"
                self._event("claim-refused", node=node, agent=agent, reason=reason)

    def forget(self, node: str) -> None:
        """Forget the claim of a node."""
        if node in self._claims:
            self._claims[node] = None

    def silent(self) -> list[str]:
        """The connected nodes without a hello."""
        return [node for node, claim in self._claims.items() if claim is None]

    def nodes(self) -> list[str]:
        return list(self._claims)

    def host(self, agent: int) -> str | None:
        if agent not in range(self._num_agents):
            return None
        return next(
            (node for node, claim in self._claims.items() if claim and agent in claim), None
        )

    def agents_of(self, node: str) -> frozenset[int]:
        claim: Any = self._claims.get(node) or ()
        return frozenset(agent for agent in claim if self.host(agent) == node)
