"""A whole federation on this machine: server and nodes are processes on the loopback address.

The gate, TLS, keys, SuperLink and SuperNodes are those of several machines. Run again in its
directory, a federation resumes where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fegsam.errors import ProblemError
from fegsam.federation.errors import FederationError
from fegsam.federation.flower.deployment import (
    SERVER_FILE,
    Entrance,
    NodeSide,
    init,
    load_node,
    load_server,
)
from fegsam.federation.flower.server import HISTORY_FILE
from fegsam.federation.flower.superlink import HOST
from fegsam.federation.flower.supervisor import Supervisor
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.ledger import Event
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.share import load_terms
from fegsam.history import load_history
from fegsam.history.settings import Settings

DEPLOYMENT = "deployment"
_DECIDING = (
    "fingerprint",
    "seeds",
    "step_size",
    "sync_period",
    "periods",
    "num_steps",
    "method",
    "schedule",
)
"""Settings that identify the experiment of a history."""


def run_locally(
    spec: Path,
    output: Path,
    *,
    seed: int | None = None,
    num_nodes: int | None = None,
    rules: Mapping[str, Any] | None = None,
    insecure: bool = False,
    trust: bool | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Path:
    """Run the first cell of a study as a federation of processes; return the file of its history.

    Parameters
    ----------
    spec, seed, num_nodes, rules, insecure, trust : as for `deployment.init`
    output : Path
        A new directory, or that of a run of the same study, which resumes.
    on_event : callable
        It is called with every event of the log as it occurs.
    """
    deployment = output / DEPLOYMENT
    if not (deployment / "server" / SERVER_FILE).exists():
        # Port 0: the gate takes a free one at each start.
        init(
            deployment,
            spec,
            Entrance([HOST], port=0, insecure=insecure),
            seed=seed,
            num_nodes=num_nodes,
            rules=rules,
            trust=trust,
        )
    side = load_server(deployment / "server")
    nodes = [load_node(path) for path in sorted((deployment / "nodes").iterdir())]
    stored, given = load_terms(side.terms), Experiment.from_spec(spec, seed, trust=trust)
    for what, kept, wanted in (
        (f"a run under seed {stored.seed}", stored.seed, given.seed),
        ("another study", stored.fingerprint, given.fingerprint),
        (
            f"a run on {len(nodes)} nodes",
            len(nodes),
            given.num_agents if num_nodes is None else num_nodes,
        ),
        ("a run under other rules", side.rules, Rules(**rules or {})),
        ("a run with keys" if side.tls else "a run without keys", side.tls is None, insecure),
    ):
        if kept != wanted:
            raise FederationError(
                f"{output} holds {what}: choose another directory, or give the arguments of that "
                "run."
            )
    if not (output / HISTORY_FILE).exists():
        Supervisor(
            side, output, [with_study(node, spec) for node in nodes], fresh=True, on_event=on_event
        ).run()
    return finished(output, stored.settings)


def with_study(node: NodeSide, spec: Path) -> NodeSide:
    """The node with the study that was given instead of the copy in the results.

    The given study has been checked. A node with a share is unchanged.
    """
    return (
        replace(node, experiment=spec.absolute(), trust=True)
        if node.experiment.suffix == ".toml"
        else node
    )


def finished(output: Path, settings: Settings) -> Path:
    """The file of a federation's history, checked to be undamaged and to have these settings."""
    path = output / HISTORY_FILE
    try:
        history = load_history(path)
    except ProblemError as error:
        raise FederationError(
            f"{path} is damaged or not a history: remove it and run the same command again, which "
            "makes it from the records."
        ) from error
    if any(getattr(history.settings, name) != getattr(settings, name) for name in _DECIDING):
        raise FederationError(
            f"{path} is the history of another experiment: remove it, then run the command again."
        )
    return path
