"""``fegsam federate``: run a federation on this machine, or set one up on several."""

from __future__ import annotations

import argparse

from fegsam.completion import add_path
from fegsam.federation import actions
from fegsam.subcommands import Action, add_all

TRUST = (
    "run all code that the study names, including a rule that is stored with results and "
    "module:Env of Gymnasium"
)
"""The help of the option --trust."""


def add_actions(federate: argparse.ArgumentParser) -> None:
    """Add the actions of `fegsam federate`."""
    add_all(federate, "federate", _ACTIONS)


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
    _add_results(parser)
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=8080,
        metavar="PORT",
        help="serve it as a page that refreshes itself; port 8080 by default",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of the page; by default that of this machine alone",
    )
    add_path(
        parser,
        "--timeline",
        metavar="FILE",
        help="write the rounds over time as an SVG picture",
    )


def _renew_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="the directory that init wrote")


def _revoke_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="SERVER", help="the directory `server` that init wrote")
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="name of a node, such as node-0")


def _readmit_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="SERVER", help="the directory `server` that init wrote")
    _add_output(parser)
    parser.add_argument(
        "--agents", nargs="+", type=int, default=[], metavar="I", help="agents to forgive"
    )
    parser.add_argument("--nodes", nargs="+", default=[], metavar="NODE", help="nodes to forgive")


def _add_results(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--aggregate",
        choices=("agent", "node"),
        default="agent",
        help="what a node sends: the parameters of each agent (the default), or their exact sum",
    )
    parser.add_argument("--trust", action="store_true", help=TRUST)
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="no encryption and no keys: anyone who connects takes part",
    )


def federate(given: argparse.Namespace) -> int:
    return _ACTIONS[given.action].run(given)


_ACTIONS: dict[str, Action] = {
    "run": Action(
        "run a whole federation on this machine; a killed run resumes where it stopped",
        "Start a server and one process per agent on this machine, with TLS and keys, show the "
        "rounds as they close, and "
        "end every process. DIR/history.nc equals the history that fegsam.run gives. The same "
        "command again resumes a stopped run.",
        "run study.toml -o results",
        _run_arguments,
        actions.run,
    ),
    "init": Action(
        "write the directories to copy to the server and the nodes",
        "Create a certificate authority, credentials, and a directory for the server and for each "
        "node, and print the commands that start "
        "them. Copy each node's directory to its machine; no other machine needs it.",
        "init fed study.toml --host hub.example.org",
        _init_arguments,
        actions.init,
    ),
    "server": Action(
        "run the server of a directory that init wrote",
        "Run a federation's server until its last round. The same command again resumes a stopped "
        "server at its current round.",
        "server fed/server -o results",
        _server_arguments,
        actions.server,
    ),
    "node": Action(
        "run the node of a directory that init wrote",
        "Run the agents of one node until the federation ends. Their state is kept in the "
        "directory, so a stopped or killed "
        "node resumes where it stopped, and no sample is used twice.",
        "node fed/nodes/node-0",
        _node_arguments,
        actions.node,
    ),
    "check": Action(
        "check the data of a node, without connecting",
        "Read the data that the table [data] of a node's file names, check it against the study, "
        "and say in a line what each agent has. Nothing is sent. A log must have a transition for "
        "each step of the run.",
        "check fed/nodes/node-0",
        _node_arguments,
        actions.check,
    ),
    "status": Action(
        "show the state of the federation in a directory of results",
        "Show the current round of a federation, which agents answered, and what was refused and "
        "why. This works at any time, also after the run.",
        "status results --serve",
        _status_arguments,
        actions.status,
    ),
    "renew": Action(
        "write new certificates for the server and all nodes",
        "Sign new certificates for the keys in a directory that init wrote, with its authority. "
        "Keys stay, so copy the new certificates to their machines at any time before the old ones "
        "expire.",
        "renew fed",
        _renew_arguments,
        actions.renew,
    ),
    "revoke": Action(
        "end the right of a node to take part",
        "Delete the public keys of nodes from the server's directory. A running server ends their "
        "connections, and admits them no more.",
        "revoke fed/server node-1",
        _revoke_arguments,
        actions.revoke,
    ),
    "readmit": Action(
        "let quarantined agents or nodes take part again",
        "Forgive agents or nodes their offences. Stop the server first; when it is started again, "
        "it resumes with them.",
        "readmit fed/server -o results --agents 3",
        _readmit_arguments,
        actions.readmit,
    ),
}
