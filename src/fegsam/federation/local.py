"""A whole federation on this machine: server and nodes are processes on the loopback address.

Transport, TLS and keys are those of several machines. Run again in its directory, a federation
resumes where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fegsam.data.charter import Charter
from fegsam.federation.deployment import (
    SERVER_FILE,
    NodeSide,
    ServerSide,
    TransportName,
    load_node,
    load_server,
)
from fegsam.federation.errors import FederationError
from fegsam.federation.founding import Entrance, init
from fegsam.federation.protocol.experiment import Aggregate, Experiment
from fegsam.federation.protocol.ledger import Event
from fegsam.federation.protocol.rules import Rules
from fegsam.federation.protocol.share import load_terms
from fegsam.federation.results import HISTORY_FILE, finished

DEPLOYMENT = "deployment"
HOST = "127.0.0.1"


def run_locally(
    spec: Path,
    output: Path,
    *,
    seed: int | None = None,
    num_nodes: int | None = None,
    rules: Mapping[str, Any] | None = None,
    insecure: bool = False,
    trust: bool | None = None,
    transport: TransportName = "grpc",
    aggregate: Aggregate = "agent",
    on_event: Callable[[Event], None] = lambda event: None,
) -> Path:
    """Run the first cell of a study as a federation of processes; return the file of its history.

    Parameters
    ----------
    spec, seed, num_nodes, rules, insecure, trust, transport, aggregate : as for `founding.init`
    output : Path
        A new directory, or that of a run of the same study, which resumes.
    on_event : callable
        It is called with every event of the log as it occurs.
    """
    deployment = output / DEPLOYMENT
    whole = Experiment.from_spec(spec, seed, trust=trust)
    _refuse_charter(whole)
    if not (deployment / "server" / SERVER_FILE).exists():
        # Port 0: the server takes a free one at each start.
        init(
            deployment,
            spec,
            Entrance([HOST], port=0, insecure=insecure, transport=transport),
            seed=seed,
            # All data are on this machine, and the history has the fingerprint of the simulator's.
            salt="",
            num_nodes=num_nodes,
            rules=rules,
            trust=trust,
            aggregate=aggregate,
        )
    side = load_server(deployment / "server")
    nodes = [load_node(path) for path in sorted((deployment / "nodes").iterdir())]
    stored = load_terms(side.terms)
    given = replace(whole, aggregate=aggregate, salt=stored.salt)
    for what, kept, wanted in (
        (f"a run under seed {stored.seed}", stored.seed, given.seed),
        (f"a run with sums of each {stored.aggregate}", stored.aggregate, aggregate),
        ("another study", stored.fingerprint, given.fingerprint),
        (
            f"a run on {len(nodes)} nodes",
            len(nodes),
            given.num_agents if num_nodes is None else num_nodes,
        ),
        ("a run under other rules", side.rules, Rules(**rules or {})),
        (f"a run over {side.transport}", side.transport, transport),
        ("a run with keys" if side.tls else "a run without keys", side.tls is None, insecure),
    ):
        if kept != wanted:
            raise FederationError(
                f"{output} holds {what}: choose another directory, or give the arguments of that "
                "run."
            )
    if not (output / HISTORY_FILE).exists():
        _run(side, output, [with_study(node, spec) for node in nodes], on_event)
    return finished(output, stored.settings)


def _refuse_charter(experiment: Experiment) -> None:
    if isinstance(experiment.problem, Charter):
        raise FederationError(
            "the study leaves the data to the nodes, and a run on this machine has none: write the "
            "nodes' directories with `fegsam federate init`, and their data into node.toml."
        )


def with_study(node: NodeSide, spec: Path) -> NodeSide:
    """The node with the study that was given instead of the copy in the results.

    The given study has been checked. A node with a share is unchanged.
    """
    return (
        replace(node, experiment=spec.absolute(), trust=True)
        if node.experiment.suffix == ".toml"
        else node
    )


def _run(
    side: ServerSide, output: Path, nodes: list[NodeSide], on_event: Callable[[Event], None]
) -> None:
    if side.transport == "grpc":
        from fegsam.federation.grpc.local import run_here

        run_here(side, output, nodes, on_event=on_event)
    else:
        from fegsam.federation.flower.supervisor import Supervisor

        Supervisor(side, output, nodes, fresh=True, on_event=on_event).run()
