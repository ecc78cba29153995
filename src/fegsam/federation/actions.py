"""What the actions of ``fegsam federate`` do; heavy modules are imported when they are needed."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path


def _rules(given: argparse.Namespace) -> dict[str, int | float]:
    named = {name: getattr(given, name) for name in ("quorum", "participants", "round_timeout")}
    return {name: value for name, value in named.items() if value is not None}


def run(given: argparse.Namespace) -> int:
    from fegsam.federation.board import Board
    from fegsam.federation.local import run_locally

    with Board() as board:
        history = run_locally(
            given.spec,
            given.output,
            seed=given.seed,
            num_nodes=given.nodes,
            rules=_rules(given),
            insecure=given.insecure,
            trust=given.trust or None,
            transport=given.transport,
            aggregate=given.aggregate,
            on_event=board.show,
        )
    print(f"history: {history}")
    return 0


def init(given: argparse.Namespace) -> int:
    from fegsam.federation import founding
    from fegsam.federation.deployment import NODE_FILE
    from fegsam.federation.own_data import TEMPLATE

    nodes = founding.init(
        given.directory,
        given.spec,
        founding.Entrance(given.host, given.port, given.insecure, given.transport),
        seed=given.seed,
        num_nodes=given.nodes,
        rules=_rules(given),
        trust=given.trust or None,
        aggregate=given.aggregate,
    )
    print("On the server, with a copy of this directory:")
    print(f"  fegsam federate server {shlex.quote(str(given.directory / 'server'))} -o results")
    print("On each node, with a copy of its directory alone:")
    private = any(TEMPLATE in (node / NODE_FILE).read_text(encoding="utf-8") for node in nodes)
    for node in nodes:
        if private:
            print(f"  fegsam federate check {shlex.quote(str(node))}")
        print(f"  fegsam federate node {shlex.quote(str(node))}")
    if private:
        print("Before that, the owner of each node names its data under [data] in node.toml.")
    if not given.insecure:
        print(
            f"Keep {given.directory / 'authority'} where no machine of the federation can read it."
        )
    return 0


def server(given: argparse.Namespace) -> int:
    from fegsam.federation.board import Board
    from fegsam.federation.deployment import load_server
    from fegsam.federation.protocol.share import load_terms
    from fegsam.federation.results import finished

    side = load_server(given.directory)
    with Board() as board:
        if side.transport == "flower":
            from fegsam.federation.flower.supervisor import Supervisor

            Supervisor(side, given.output, fresh=False, on_event=board.show).run()
        else:
            from fegsam.federation.grpc.server import serve

            serve(side, given.output, on_event=board.show)
    print(f"history: {finished(given.output, load_terms(side.terms).settings)}")
    return 0


def check(given: argparse.Namespace) -> int:
    from fegsam.federation.deployment import load_node
    from fegsam.federation.hosting import check_node

    side = replace(load_node(given.directory), trust=given.trust)
    side.check_trust()
    for line in check_node(side, enough=True) or ["the study simulates these agents"]:
        print(line)
    return 0


def node(given: argparse.Namespace) -> int:
    from fegsam.federation.deployment import load_node
    from fegsam.federation.hosting import check_node

    side = replace(load_node(given.directory), trust=given.trust)
    side.check_trust()
    check_node(side, enough=False)
    if side.transport == "flower":
        from fegsam.federation.flower.supervisor import become_node

        become_node(side)
    else:
        from fegsam.federation.grpc.node import run_node

        run_node(side)
    return 0


def status(given: argparse.Namespace) -> int:
    from fegsam.federation.board import read_summary, table

    summary = read_summary(given.output)
    if given.timeline is not None:
        _write_timeline(given.output, given.timeline)
    if given.serve is not None:
        from fegsam.federation.status_page import status_server

        with status_server(given.output, given.host, given.serve) as server:
            print(f"http://{given.host}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
            server.serve_forever()
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table(summary))
    else:
        print(summary.line())
    return 0


def _write_timeline(results: Path, target: Path) -> None:
    from fegsam.federation.errors import FederationError
    from fegsam.federation.protocol.ledger import read_events
    from fegsam.federation.timeline import timeline
    from fegsam.safe_files import whole

    picture = timeline(read_events(results))
    if not picture:
        raise FederationError(
            f"{str(results)!r} has no rounds yet, so there is no timeline: ask again after the "
            "first round."
        )
    with whole(target) as temporary:
        temporary.write_text(picture, encoding="utf-8")


def renew(given: argparse.Namespace) -> int:
    from fegsam.federation import renewal

    written = renewal.renew(given.directory)
    print("New certificates, to be copied to their machines, whose processes then start again:")
    for path in written:
        print(f"  {path}")
    return 0


def revoke(given: argparse.Namespace) -> int:
    from fegsam.federation import renewal

    renewal.revoke(given.directory, given.nodes)
    print(f"revoked: {', '.join(given.nodes)}; a server that runs cuts them off within a second")
    return 0


def readmit(given: argparse.Namespace) -> int:
    from fegsam.federation.deployment import load_server
    from fegsam.federation.errors import FederationError
    from fegsam.federation.protocol import ledger
    from fegsam.federation.protocol.share import load_terms

    whom = ", ".join([*(f"agent {agent}" for agent in given.agents), *given.nodes])
    if not whom:
        raise FederationError(
            "nobody is named: name the agents (--agents) or the nodes (--nodes) to forgive."
        )
    terms = load_terms(load_server(given.directory).terms)
    ledger.readmit(terms, given.output, given.agents, given.nodes)
    print(f"readmitted: {whom}; start the server again")
    return 0
