"""Founds a federation: writes the directories of its server and of its nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fegsam.data.charter import Charter
from fegsam.errors import ProblemError
from fegsam.experiments.spec.study import load_study
from fegsam.experiments.spec.toml_text import toml_text
from fegsam.federation.credentials import (
    Authority,
    make_authority,
    make_flower_key,
    make_node,
    make_server,
    private_directory,
    write_new,
)
from fegsam.federation.deployment import (
    NODE_FILE,
    SERVER_FILE,
    SHARE_FILE,
    STUDY_FILE,
    TERMS_FILE,
    TransportName,
    address,
    check_rules,
)
from fegsam.federation.errors import FederationError
from fegsam.federation.own_data import TEMPLATE
from fegsam.federation.protocol.experiment import Aggregate, Experiment, new_salt
from fegsam.federation.protocol.identity import AGENTS_FILE, Claims
from fegsam.federation.protocol.share import save_share, save_terms


@dataclass(frozen=True)
class Entrance:
    """How nodes reach the server."""

    hosts: Sequence[str]
    """its names and addresses; nodes use the first by default"""
    port: int
    insecure: bool = False
    """no encryption, and nodes without keys"""
    transport: TransportName = "grpc"

    @property
    def listen(self) -> str:
        """Where the server listens: on loopback if nodes reach it there, else everywhere."""
        if not all(_is_loopback(host) for host in self.hosts):
            return address("0.0.0.0" if self.transport == "flower" else "::", self.port)
        return address("::1" if self.hosts[0] == "::1" else "127.0.0.1", self.port)


def init(
    directory: Path,
    spec: Path,
    entrance: Entrance,
    *,
    seed: int | None = None,
    salt: str | None = None,
    num_nodes: int | None = None,
    rules: Mapping[str, Any] | None = None,
    trust: bool | None = None,
    aggregate: Aggregate = "agent",
) -> list[Path]:
    """Write the directories of a federation, and return those of the nodes.

    Parameters
    ----------
    spec : a study; its first cell is run, under `seed` or its first seed
    salt : text in the fingerprint, without which private data could be guessed; random by default
    num_nodes : number of nodes that share the agents; one node per agent by default
    rules : the fields of `Rules` that differ from their defaults
    trust : as in `load_study`
    aggregate : as in `Experiment`
    """
    rules, insecure = dict(rules or {}), entrance.insecure
    salt = new_salt() if salt is None else salt
    whole = Experiment.from_spec(spec, seed, trust=trust, salt=salt)
    experiment = replace(whole, aggregate=aggregate)
    dealt = deal(experiment.num_agents, experiment.num_agents if num_nodes is None else num_nodes)
    checked = check_rules(rules, str(directory / "server" / SERVER_FILE))
    checked.check(experiment.num_agents, experiment.method)
    if not entrance.hosts:
        raise FederationError(
            "the server has no host: give the name or address under which nodes reach it."
        )
    private_directory(directory)
    server = private_directory(directory / "server")
    keys = private_directory(server / "nodes")
    authority = None
    if not insecure:
        authority = make_authority(private_directory(directory / "authority"))
        make_server(server, entrance.hosts, authority)
    head = {
        "listen": entrance.listen,
        "transport": entrance.transport,
        "insecure": insecure,
    }
    write_new(server / SERVER_FILE, toml_text({"server": head, "rules": rules}).encode())
    save_terms(experiment.terms(), server / TERMS_FILE)
    names = [f"node-{number}" for number in range(len(dealt))]
    if entrance.transport == "grpc":
        Claims(dict(zip(names, dealt, strict=True))).save(server / AGENTS_FILE)
    private_directory(directory / "nodes")
    nodes = []
    for name, agents in zip(names, dealt, strict=True):
        node = private_directory(directory / "nodes" / name)
        if authority is not None:
            _make_credentials(node, keys / f"{name}.pub", entrance.transport, authority)
            write_new(node / "ca.pem", (server / "ca.pem").read_bytes())
        head = _node_head(name, agents, entrance)
        text = toml_text({"node": head | hand_over(experiment, spec, agents, node)})
        if isinstance(experiment.problem, Charter):
            text += TEMPLATE
        write_new(node / NODE_FILE, text.encode())
        nodes.append(node)
    return nodes


def _make_credentials(
    node: Path, public_key: Path, transport: TransportName, authority: Authority
) -> None:
    """A node's key and what proves whose it is; the server keeps its public key."""
    if transport == "flower":
        make_flower_key(node / "node.key", public_key)
    else:
        make_node(node, public_key, authority)


def _node_head(name: str, agents: list[int], entrance: Entrance) -> dict[str, Any]:
    """The keys of a node's file that do not depend on its experiment."""
    return {
        "name": name,
        "server": address(entrance.hosts[0], entrance.port),
        "transport": entrance.transport,
        "agents": agents,
        "insecure": entrance.insecure,
    }


def hand_over(experiment: Experiment, spec: Path, agents: list[int], node: Path) -> dict[str, Any]:
    """Write a node's share or, if there is none, its study; return the keys of its file.

    A share has nothing that belongs to other agents.
    """
    try:
        save_share(experiment, agents, node / SHARE_FILE)
    except ProblemError:
        if experiment.aggregate == "node" or isinstance(experiment.problem, Charter):
            raise
        study = load_study(spec, trust=False)
        write_new(node / STUDY_FILE, study.text.encode())
        study.copy_inputs(node)
        return {"experiment": STUDY_FILE, "seed": experiment.seed, "salt": experiment.salt}
    return {"experiment": SHARE_FILE}


def deal(num_agents: int, num_nodes: int) -> list[list[int]]:
    """Distribute agents to nodes in turn.

    >>> deal(5, 2)
    [[0, 2, 4], [1, 3]]
    """
    if not 1 <= num_nodes <= num_agents:
        raise FederationError(
            f"the number of nodes is {num_nodes}; give one from 1 to {num_agents}, the number of "
            "agents in the study's first cell, or more agents (num_agents in [grid])."
        )
    return [list(range(node, num_agents, num_nodes)) for node in range(num_nodes)]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
