"""``fegsam federate``: run a federation here, or set one up on several machines."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fegsam.completion import add_path
from fegsam.federation.errors import FederationError

TRUST = (
    "run the code that the study names, also a rule that lies with results, and module:Env of "
    "Gymnasium"
)
"""What the option --trust does."""


class _Action(NamedTuple):
    line: str
    """its help in one line"""
    about: str
    """in a paragraph"""
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_actions(federate: argparse.ArgumentParser) -> None:
    """Add the actions of `fegsam federate`."""
    actions = federate.add_subparsers(dest="action", metavar="action", required=True)
    for name, action in _ACTIONS.items():
        parser = actions.add_parser(
            name,
            help=action.line,
            description=textwrap.fill(action.about, 98),
            epilog=f"example:\n  fegsam federate {action.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_arguments(parser)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _add_study(parser)
    _add_output(parser)


def _init_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="what is written; it must not be there yet")
    _add_study(parser)
    parser.add_argument(
        "--host",
        action="append",
        required=True,
        help="name or address of the server for nodes; may be repeated",
    )
    parser.add_argument("--port", type=int, default=8000, help="of the server; 8000 by default")


def _server_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="SERVER", help="the directory `server` that init wrote")
    _add_output(parser)


def _node_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="NODE", help="the directory `nodes/NAME` that init wrote")
    parser.add_argument(
        "--trust", action="store_true", help="run the code that its study names, if it has one"
    )


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "output", metavar="DIR", help="the results of `run` or `server`")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_path(
        parser,
        "-o",
        "--output",
        required=True,
        metavar="DIR",
        help="results; the same again goes on",
    )


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
    return _ACTIONS[given.action].run(given)


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
    from fegsam.federation.flower.deployment import Entrance, init

    nodes = init(
        given.directory,
        given.spec,
        Entrance(given.host, given.port, given.insecure),
        seed=given.seed,
        num_nodes=given.nodes,
        rules=_rules(given),
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
    from fegsam.federation.board import read_summary, table

    summary = read_summary(given.output)
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table(summary))
    else:
        print(summary.line())
    return 0


_ACTIONS: dict[str, _Action] = {
    "run": _Action(
        "a whole federation on this machine; killed, it goes on where it was",
        "Start a server and one process an agent on this machine, over TLS and with keys, show "
        "the rounds as they close, and "
        "end every process. DIR/history.nc is what fegsam.run would have given. The same command "
        "again goes on where it was.",
        "run study.toml -o results",
        _run_arguments,
        _run,
    ),
    "init": _Action(
        "write the directories to copy to the server and the nodes",
        "Make an authority, credentials and a directory for the server and for each node, and "
        "print the commands that start "
        "them. Copy each node's directory to its machine: no other machine needs it.",
        "init fed study.toml --host hub.example.org",
        _init_arguments,
        _init,
    ),
    "server": _Action(
        "run the server of a directory that init wrote",
        "Run a federation's server until its last round. Stopped or killed, the same command goes "
        "on at the round it was in.",
        "server fed/server -o results",
        _server_arguments,
        _server,
    ),
    "node": _Action(
        "run the node of a directory that init wrote",
        "Run the agents of one node until the federation ends. Their state stays in the "
        "directory, so that a node that was "
        "stopped or killed goes on where it was, and no sample is used twice.",
        "node fed/nodes/node-0",
        _node_arguments,
        _node,
    ),
    "status": _Action(
        "where the federation in a directory of results stands",
        "Say which round a federation is in, who answered, and what was refused and why; at any "
        "time, also afterwards.",
        "status results",
        _status_arguments,
        _status,
    ),
}
