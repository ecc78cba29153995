"""``fegsam federate``: run a federation here, or set one up on several machines."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace

from fegsam.completion import add_path
from fegsam.federation.errors import FederationError

_ABOUT = {
    "run": (
        "a whole federation on this machine; killed, it goes on where it was",
        "Start a server and one process an agent on this machine, over TLS and with keys, show "
        "the rounds as they close, and "
        "end every process. DIR/history.nc is what fegsam.run would have given. The same command "
        "again goes on where it was.",
        "run study.toml -o results",
    ),
    "init": (
        "write the directories to copy to the server and the nodes",
        "Make an authority, credentials and a directory for the server and for each node, and "
        "print the commands that start "
        "them. Copy each node's directory to its machine: no other machine needs it.",
        "init fed study.toml --host hub.example.org",
    ),
    "server": (
        "run the server of a directory that init wrote",
        "Run a federation's server until its last round. Stopped or killed, the same command goes "
        "on at the round it was in.",
        "server fed/server -o results",
    ),
    "node": (
        "run the node of a directory that init wrote",
        "Run the agents of one node until the federation ends. Their state stays in the "
        "directory, so that a node that was "
        "stopped or killed goes on where it was, and no sample is used twice.",
        "node fed/nodes/node-0",
    ),
    "status": (
        "where the federation in a directory of results stands",
        "Say which round a federation is in, who answered, and what was refused and why; at any "
        "time, also afterwards.",
        "status results",
    ),
}
"""Of each action: in a line, in a paragraph, and an example."""

TRUST = "run the code that the study names, also a rule that lies with results, and module:Env of Gymnasium"
"""What the option --trust does."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `federate` and its own commands."""
    federate = commands.add_parser(
        "federate", help="a real federation on Flower: here, or on several machines"
    )
    actions = federate.add_subparsers(dest="action", metavar="action", required=True)
    parsers = {
        name: actions.add_parser(
            name,
            help=line,
            description=textwrap.fill(paragraph, 115),
            epilog=f"example:\n  fegsam federate {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, (line, paragraph, example) in _ABOUT.items()
    }

    run = parsers["run"]
    _add_study(run)
    add_path(
        run,
        "-o",
        "--output",
        required=True,
        metavar="DIR",
        help="results; the same again goes on",
    )

    init = parsers["init"]
    add_path(init, "directory", metavar="DIR", help="what is written; it must not be there yet")
    _add_study(init)
    init.add_argument(
        "--host",
        action="append",
        required=True,
        help="name or address of the server for nodes; may be repeated",
    )
    init.add_argument("--port", type=int, default=8000, help="of the server; 8000 by default")

    server = parsers["server"]
    add_path(server, "directory", metavar="SERVER", help="the directory `server` that init wrote")
    add_path(
        server,
        "-o",
        "--output",
        required=True,
        metavar="DIR",
        help="results; the same again goes on",
    )

    node = parsers["node"]
    add_path(node, "directory", metavar="NODE", help="the directory `nodes/NAME` that init wrote")
    node.add_argument(
        "--trust", action="store_true", help="run the code that its study names, if it has one"
    )
    add_path(parsers["status"], "output", metavar="DIR", help="the results of `run` or `server`")


def _add_study(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "spec", help="a study; its first cell is run")
    parser.add_argument("--seed", type=int, help="the study's first by default")
    parser.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="nodes that share the agents; one an agent by default",
    )
    parser.add_argument(
        "--quorum",
        type=int,
        metavar="N",
        help="replies with which a round may close; all by default",
    )
    parser.add_argument(
        "--participants", type=int, metavar="N", help="agents drawn for each round; all by default"
    )
    parser.add_argument(
        "--round-timeout",
        type=float,
        metavar="SECONDS",
        help="after which a round closes with its quorum",
    )
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="plain text, and nodes without keys: whoever connects takes part",
    )


def federate(given: argparse.Namespace) -> int:
    return _ACTIONS[given.action](given)


def _rules(given: argparse.Namespace) -> dict[str, int | float]:
    named = {name: getattr(given, name) for name in ("quorum", "participants", "round_timeout")}
    return {name: value for name, value in named.items() if value is not None}


def _run(given: argparse.Namespace) -> int:
    from fegsam.federation.board import Board
    from fegsam.federation.flower.local import run_locally

    with Board() as board:
        history = run_locally(
            given.spec,
            given.output,
            seed=given.seed,
            num_nodes=given.nodes,
            rules=_rules(given),
            insecure=given.insecure,
            trust=given.trust or None,
            on_event=board.show,
        )
    print(f"history: {history}")
    return 0


def _init(given: argparse.Namespace) -> int:
    from fegsam.federation.flower.deployment import init

    nodes = init(
        given.directory,
        given.spec,
        seed=given.seed,
        hosts=given.host,
        port=given.port,
        num_nodes=given.nodes,
        rules=_rules(given),
        insecure=given.insecure,
        trust=given.trust or None,
    )
    print("On the server, with a copy of this directory:")
    print(f"  fegsam federate server {shlex.quote(str(given.directory / 'server'))} -o results")
    print("On each node, with a copy of its directory alone:")
    for node in nodes:
        print(f"  fegsam federate node {shlex.quote(str(node))}")
    if not given.insecure:
        print(
            f"Keep {given.directory / 'authority'} where no machine of the federation reaches it."
        )
    return 0


def _server(given: argparse.Namespace) -> int:
    from fegsam.federation.board import Board
    from fegsam.federation.flower.deployment import load_server
    from fegsam.federation.flower.local import finished
    from fegsam.federation.flower.supervisor import Supervisor
    from fegsam.federation.protocol.share import load_terms

    side = load_server(given.directory)
    with Board() as board:
        Supervisor(side, given.output, fresh=False, on_event=board.show).run()
    print(f"history: {finished(given.output, load_terms(side.terms).settings)}")
    return 0


def _node(given: argparse.Namespace) -> int:
    """Becomes Flower's SuperNode: what supervises this process supervises the node."""
    from fegsam.federation.flower.deployment import load_node
    from fegsam.federation.flower.processes import environment
    from fegsam.federation.flower.supervisor import mark_of, node_command

    side = replace(load_node(given.directory), trust=given.trust)
    side.check_trust()
    command, home = node_command(side)
    sys.stdout.flush()
    try:
        os.execve(command[0], command, environment(home, mark_of(side.directory)))
    except FileNotFoundError:
        raise FederationError("A node needs Flower; run: pip install 'fegsam[flower]'") from None


def _status(given: argparse.Namespace) -> int:
    from fegsam.federation.board import read_standing, table

    standing = read_standing(given.output)
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table(standing))
    else:
        print(standing.line())
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "init": _init,
    "server": _server,
    "node": _node,
    "status": _status,
}
