"""A federation as directories to copy to its machines: one for the server, one for each node.

    DIR/authority/     ca.key: signs certificates; it is not needed while the federation runs, so
                       keep it elsewhere
    DIR/server/        federation.toml, the terms (no environment, no policy), certificate and key,
                       the nodes' public keys, and which agents each of them may speak for
    DIR/nodes/NAME/    node.toml, the share of its agents (nothing of the others), the node's key
                       and certificate, the authority's certificate; if the study is a charter, the
                       owner adds the table [data] to node.toml

`founding.init` writes them, `load_server` and `load_node` read them. Paths in the files are
relative to the file's own directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fegsam.errors import SpecError
from fegsam.experiments.spec.foreign_code import check_trust
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study import MOST_BYTES, load_study
from fegsam.experiments.spec.tables import Seed, TableModel, Text
from fegsam.federation.credentials import Tls
from fegsam.federation.errors import FederationError
from fegsam.federation.hosting import NodeSettings
from fegsam.federation.protocol.identity import AGENTS_FILE, Claims
from fegsam.federation.protocol.rules import Rules
from fegsam.safe_files import read_plain

SERVER_FILE, NODE_FILE, TERMS_FILE, SHARE_FILE, STUDY_FILE = (
    "federation.toml",
    "node.toml",
    "terms",
    "share",
    "study.toml",
)


TransportName = Literal["grpc", "flower"]


class _ServerTable(TableModel):
    listen: Text
    # Directories that were written when Flower was the only transport do not name it.
    transport: TransportName = "flower"
    insecure: bool = False


class _NodeTable(TableModel):
    name: Text
    server: Text
    transport: TransportName = "flower"
    agents: list[int]
    experiment: Text = SHARE_FILE
    """the share of its agents, or a study"""
    seed: Seed | None = None
    """the seed, if the experiment is a study"""
    salt: str = ""
    """what the fingerprint is salted with, if the experiment is a study"""
    state: Text = "state"
    insecure: bool = False


@dataclass(frozen=True)
class ServerSide:
    """The content of `DIR/server`."""

    directory: Path
    transport: TransportName
    listen: tuple[str, int]
    tls: Tls | None
    terms: Path
    rules: Rules
    node_keys: tuple[Path, ...]
    claims: Claims | None
    """the agents of each node; None with Flower, which names nodes by numbers of its own"""


@dataclass(frozen=True, kw_only=True)
class NodeSide(NodeSettings):
    """The content of `DIR/nodes/NAME`: what the node hosts, and how it reaches its server."""

    directory: Path
    transport: TransportName
    name: str
    server: str
    authority: Path | None
    """None: no encryption and no key"""
    key: Path
    certificate: Path
    """with Flower there is none"""

    @property
    def tls(self) -> Tls | None:
        """What the node shows to the server, and what it demands of it."""
        if self.authority is None:
            return None
        return Tls(self.authority, self.certificate, self.key)

    def check_trust(self) -> None:
        """Refuse a node whose study names code that may not run, before anything starts."""
        if self.experiment.suffix == ".toml":
            check_trust(load_study(self.experiment, trust=self.trust).cells()[0])


def load_server(directory: Path) -> ServerSide:
    source = _read(directory / SERVER_FILE)
    head = source.check(source.tables.get("server", {}), _ServerTable, ("server",))
    directory = directory.resolve()
    return ServerSide(
        directory=directory,
        transport=head.transport,
        listen=split_address(head.listen, source.name),
        tls=None
        if head.insecure
        else Tls(directory / "ca.pem", directory / "server.pem", directory / "server.key"),
        terms=directory / TERMS_FILE,
        rules=check_rules(source.tables.get("rules", {}), source.name),
        node_keys=tuple(sorted((directory / "nodes").glob("*.pub"))),
        claims=None if head.transport == "flower" else Claims.load(directory / AGENTS_FILE),
    )


def load_node(directory: Path) -> NodeSide:
    source = _read(directory / NODE_FILE)
    head = source.check(source.tables.get("node", {}), _NodeTable, ("node",))
    split_address(head.server, source.name)
    directory = directory.resolve()
    return NodeSide(
        directory=directory,
        transport=head.transport,
        name=head.name,
        server=head.server,
        authority=None if head.insecure else directory / "ca.pem",
        key=directory / "node.key",
        certificate=directory / "node.pem",
        experiment=directory / head.experiment,
        seed=head.seed,
        agents=tuple(head.agents),
        state_dir=directory / head.state,
        salt=head.salt,
        data=directory / NODE_FILE,
    )


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str, where: str) -> tuple[str, int]:
    """The host and port of an address.

    >>> split_address("[::1]:8000", "federation.toml")
    ('::1', 8000)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise FederationError(f"{where}: {text!r} is not an address: write host:port.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _read(path: Path) -> SpecText:
    try:
        return SpecText(read_plain(path, MOST_BYTES).decode(), str(path), path.parent)
    except OSError as error:
        raise SpecError(
            f"{path} cannot be read ({error.strerror}): write it with `fegsam federate init`."
        ) from None
    except UnicodeDecodeError:
        raise SpecError(
            f"{path} cannot be read (it is not UTF-8): write it with `fegsam federate init`."
        ) from None


def check_rules(given: Mapping[str, Any], where: str) -> Rules:
    """The rules in a file; unknown ones are refused by name."""
    known = [field.name for field in fields(Rules)]
    for name in given:
        if name not in known:
            raise FederationError(
                f"{where}: rules.{name} is not known: choose from {', '.join(known)}."
            )
    return Rules(**given)
