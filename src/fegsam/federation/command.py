"""``fegsam federate``: run a federation on this machine, or set one up on several."""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fegsam.completion import add_path

TRUST = (
    "run all code that the study names, including a rule that is stored with results and "
    "module:Env of Gymnasium"
)
"""The help of the option --trust."""


class _Action(NamedTuple):
    line: str
    """its help in one line"""
    about: str
    """its help in one paragraph"""
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
    add_path(parser, "directory", metavar="DIR", help="new directory of the federation")
    _add_study(parser)
    parser.add_argument(
        "--host",
        action="append",
        required=True,
        help="name or address under which nodes reach the server; may be repeated",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port of the server; 8000 by default"
    )


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
        help="directory of the results; the same command again resumes the run",
    )


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--transport",
        choices=("grpc", "flower"),
        default="grpc",
        help="what carries the messages: gRPC (the default), or Flower for fleets that run it",
    )
    add_path(parser, "spec", help="a study, whose first cell is run")
    parser.add_argument("--seed", type=int, help="seed of the run; the study's first by default")
    parser.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="number of nodes that share the agents; one per agent by default",
    )
    parser.add_argument(
        "--quorum",
        type=int,
        metavar="N",
        help="number of replies with which a round may close; all by default",
    )
    parser.add_argument(
        "--participants",
        type=int,
        metavar="N",
        help="number of agents drawn for each round; all by default",
    )
    parser.add_argument(
        "--round-timeout",
        type=float,
        metavar="SECONDS",
        help="time after which a round closes with its quorum",
    )
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="no encryption and no keys: anyone who connects takes part",
    )


def federate(given: argparse.Namespace) -> int:
    return _ACTIONS[given.action].run(given)


def _rules(given: argparse.Namespace) -> dict[str, int | float]:
    named = {name: getattr(given, name) for name in ("quorum", "participants", "round_timeout")}
    return {name: value for name, value in named.items() if value is not None}


def _run(given: argparse.Namespace) -> int:
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
            on_event=board.show,
        )
    print(f"history: {history}")
    return 0


def _init(given: argparse.Namespace) -> int:
    from fegsam.federation.deployment import Entrance, init

    nodes = init(
        given.directory,
        given.spec,
        Entrance(given.host, given.port, given.insecure, given.transport),
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
            f"Keep {given.directory / 'authority'} where no machine of the federation can read it."
        )
    return 0


def _server(given: argparse.Namespace) -> int:
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


def _node(given: argparse.Namespace) -> int:
    from fegsam.federation.deployment import load_node

    side = replace(load_node(given.directory), trust=given.trust)
    side.check_trust()
    if side.transport == "flower":
        from fegsam.federation.flower.supervisor import become_node

        become_node(side)
    else:
        from fegsam.federation.grpc.node import run_node

        run_node(side, say=lambda text: print(text, file=sys.stderr, flush=True))
    return 0


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
        "run a whole federation on this machine; a killed run resumes where it stopped",
        "Start a server and one process per agent on this machine, with TLS and keys, show the "
        "rounds as they close, and "
        "end every process. DIR/history.nc equals the history that fegsam.run gives. The same "
        "command again resumes a stopped run.",
        "run study.toml -o results",
        _run_arguments,
        _run,
    ),
    "init": _Action(
        "write the directories to copy to the server and the nodes",
        "Create a certificate authority, credentials, and a directory for the server and for each "
        "node, and print the commands that start "
        "them. Copy each node's directory to its machine; no other machine needs it.",
        "init fed study.toml --host hub.example.org",
        _init_arguments,
        _init,
    ),
    "server": _Action(
        "run the server of a directory that init wrote",
        "Run a federation's server until its last round. The same command again resumes a stopped "
        "server at its current round.",
        "server fed/server -o results",
        _server_arguments,
        _server,
    ),
    "node": _Action(
        "run the node of a directory that init wrote",
        "Run the agents of one node until the federation ends. Their state is kept in the "
        "directory, so a stopped or killed "
        "node resumes where it stopped, and no sample is used twice.",
        "node fed/nodes/node-0",
        _node_arguments,
        _node,
    ),
    "status": _Action(
        "show the state of the federation in a directory of results",
        "Show the current round of a federation, which agents answered, and what was refused and "
        "why. This works at any time, also after the run.",
        "status results",
        _status_arguments,
        _status,
    ),
}
