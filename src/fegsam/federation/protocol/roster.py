"""The connected nodes and the agents that each of them hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.state import named


class Roster:
    """The connected nodes and the agents that they host; each change costs what it changes.

    A node hosts the agents of its hello that its key may speak for. If two nodes claim one agent,
    the one that claimed it first hosts it until it leaves.
    """

    def __init__(
        self, num_agents: int, event: Callable[..., None], claims: Claims | None = None
    ) -> None:
        self._num_agents, self._event, self._claims = num_agents, event, claims
        self._connected: list[str] = []
        self._hosted: dict[str, set[int] | None] = {}
        """of each connected node; None before its hello"""
        self._claimed: dict[str, frozenset[int]] = {}
        """the last hello of each node"""
        self._host: dict[int, str] = {}
        self._next: dict[int, list[str]] = {}
        """the nodes that claim an agent whose host is another node"""

    def update(self, nodes: list[str]) -> tuple[list[str], list[str]]:
        """Note the connected nodes; return those that are new, and those that have left."""
        if nodes == self._connected:
            return [], []
        self._connected, now = [*nodes], dict.fromkeys(nodes)
        gone = [node for node in self._hosted if node not in now]
        for node in gone:
            self._event("left", node=node, count=len(self.agents_of(node)))
            self.forget(node)
            del self._hosted[node]
        fresh = [node for node in now if node not in self._hosted]
        self._hosted.update(dict.fromkeys(fresh))
        return fresh, gone

    def hello(self, node: str, agents: Iterable[int]) -> list[int]:
        """Note the agents that a node claims; return those that its key may not speak for."""
        claim = frozenset(agents)
        if node not in self._hosted or claim == self._claimed.get(node):
            return []
        self.forget(node)
        self._claimed[node] = claim
        allowed = claim if self._claims is None else claim & self._claims.of(node)
        real = {agent for agent in allowed if 0 <= agent < self._num_agents}
        taken = {agent for agent in real if self._host.setdefault(agent, node) != node}
        for agent in taken:
            self._next.setdefault(agent, []).append(node)
        self._hosted[node] = real - taken
        self._event("joined", node=node, count=len(real - taken))
        self._refuse(node, allowed - real, "there is no such agent")
        self._refuse(node, taken, "another node hosts it")
        self._refuse(node, claim - allowed, "the node's key may not speak for it")
        return sorted(claim - allowed)

    def _refuse(self, node: str, agents: Iterable[int], reason: str) -> None:
        if some := sorted(agents):
            self._event("claim-refused", node=node, **named(some), reason=reason)

    def forget(self, node: str) -> None:
        """Forget what a node claims, and give its agents to the next node that claims them."""
        for agent in self._claimed.pop(node, frozenset()) - self.agents_of(node):
            if node in self._next.get(agent, ()):
                self._next[agent].remove(node)
        for agent in self.agents_of(node):
            del self._host[agent]
            if heirs := self._next.get(agent):
                self._host[agent] = heir = heirs.pop(0)
                hosted = self._hosted[heir]
                assert hosted is not None  # it has said hello
                hosted.add(agent)
        if node in self._hosted:
            self._hosted[node] = None

    def silent(self) -> list[str]:
        """The connected nodes without a hello."""
        return [node for node, hosted in self._hosted.items() if hosted is None]

    def nodes(self) -> list[str]:
        return list(self._hosted)

    def has(self, node: str) -> bool:
        return node in self._hosted

    def is_silent(self, node: str) -> bool:
        """Whether a connected node has not said hello."""
        return node in self._hosted and self._hosted[node] is None

    @property
    def homeless(self) -> bool:
        """Whether some agent has no node."""
        return len(self._host) < self._num_agents

    def host(self, agent: int) -> str | None:
        return self._host.get(agent)

    def agents_of(self, node: str) -> Set[int]:
        return self._hosted.get(node) or frozenset()
