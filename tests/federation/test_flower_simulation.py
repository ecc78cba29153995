"""The same apps on Flower's simulation engine."""

from __future__ import annotations

import pytest

import fegsam as fg
from helpers import processes

pytest.importorskip("flwr")
pytest.importorskip("ray")

from fegsam.federation.flower.processes import OFFLINE
from fegsam.federation.flower.server import FLOWER_FOLDER, OUTPUT, SERVER
from fegsam.federation.founding import Entrance, init
from helpers.deployed import assert_equal, simulated, write_study

AGENTS = 32

SIMULATE = f"""
import os, pathlib
from flwr.simulation import run_simulation
from fegsam.federation.deployment import load_node
from fegsam.federation.flower import client as flower_client, server as flower_server

server = pathlib.Path(os.environ["{SERVER}"])

def settings(context):
    agent = int(context.node_config["partition-id"])
    return load_node(server.parent / "nodes" / f"node-{{agent}}")

resources = {{"client_resources": {{"num_cpus": 1.0}}, "init_args": {{"num_cpus": 2}}}}
client = flower_client.client_app(settings)
run_simulation(flower_server.app, client, {AGENTS}, backend_config=resources)
"""


@pytest.mark.slow
def test_32_agents_in_flowers_simulation_equal_the_simulator(tmp_path) -> None:
    study, output = (
        write_study(tmp_path, sync_period=50, rounds=3, num_agents=AGENTS),
        tmp_path / "out",
    )
    init(tmp_path / "d", study, Entrance(["localhost"], port=0, insecure=True, transport="flower"))
    (output / FLOWER_FOLDER).mkdir(parents=True)
    environment = OFFLINE | {
        SERVER: str(tmp_path / "d" / "server"),
        OUTPUT: str(output),
        "FLWR_HOME": str(tmp_path / "home"),
    }
    with processes.started(SIMULATE, RAY_USAGE_STATS_ENABLED="0", **environment) as process:
        processes.finish(process, timeout=500.0)
    assert_equal(fg.load_history(output / "history.nc"), simulated(study))
    assert len(list((tmp_path / "d" / "nodes").rglob("agents-0.state"))) == AGENTS
