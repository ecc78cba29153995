"""Which agents each node may speak for, bound to its key by the operator.

The file ``agents.toml`` of a server has one line for each node, in the table ``agents``::

    [agents]
    "node-0" = [0, 2]
    "node-1" = [1, 3]

A transport names a peer after its key, so no node can act in another's name. What a node says of an
agent that is not its own counts against the node, never against the agent.
"""

from __future__ import annotations

import json
import pathlib
import tomllib
from collections.abc import Iterable, Mapping

from fegsam.federation.errors import FederationError
from fegsam.safe_files import read_plain, whole

AGENTS_FILE = "agents.toml"


class Claims:
    """The agents that each node may speak for; an agent has one node.

    Examples
    --------
    >>> claims = Claims({"node-0": [0, 2], "node-1": [1]})
    >>> sorted(claims.of("node-0")), sorted(claims.of("stranger"))
    ([0, 2], [])
    """

    def __init__(self, agents: Mapping[str, Iterable[int]]) -> None:
        self._agents = {node: frozenset(some) for node, some in agents.items()}
        nodes: dict[int, str] = {}
        for node, some in self._agents.items():
            for agent in some:
                if nodes.setdefault(agent, node) != node:
                    raise FederationError(
                        f"agent {agent} is of node {nodes[agent]!r} and of node {node!r}; "
                        "give each agent one node."
                    )

    def of(self, node: str) -> frozenset[int]:
        return self._agents.get(node, frozenset())

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._agents)

    def save(self, path: pathlib.Path) -> None:
        # A string of JSON is a string of TOML.
        lines = [f"{json.dumps(node)} = {sorted(some)}" for node, some in self._agents.items()]
        with whole(path) as temporary:
            temporary.write_text("\n".join(["[agents]", *lines, ""]))

    @staticmethod
    def load(path: pathlib.Path) -> Claims:
        """The claims in a file; `FederationError` if it is damaged."""
        try:
            agents = tomllib.loads(read_plain(path).decode())["agents"]
            if not all(isinstance(agent, int) for some in agents.values() for agent in some):
                raise TypeError("an agent is not a number")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FederationError(
                f"{path} does not say which agents each node has ({error}): restore it, or write a "
                "new deployment with `fegsam federate init`."
            ) from None
        return Claims(agents)
