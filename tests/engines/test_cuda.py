"""The `cuda` engine where there is no GPU: in Numba's simulator, and up to where it would be
needed."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

import fegsam as fg
from fegsam.engines.cuda.layout import Device, Shape, make_layout
from fegsam.engines.cuda.memory import Where
from fegsam.engines.cuda.paths import pack
from fegsam.engines.plan import lower
from fegsam.history.history import Checkpoint

ROOT = pathlib.Path(__file__).resolve().parents[2]
H200 = Device("an H200", 132, 232448, 233472, 140 * 10**9, 2048, 65536, reserved=1024)
SHAPE = Shape(form="cell", dim=500, num_agents=65536, num_seeds=1, sync_period=10, ahead=1, item=4)


@pytest.fixture
def run() -> dict[str, object]:
    return {"step_size": 0.1, "sync_period": 5, "num_steps": 20}


def test_simulated_gpu_agrees_with_cpu() -> None:
    """All algorithms and layouts at small size: same paths, parameters within 1e-10, the same bits
    twice."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(ROOT / "benchmarks" / "cuda_agreement.py"),
        "--small",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "26 of 26 agree" in done.stdout


@pytest.mark.skipif(
    "NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator stands in for a GPU"
)
def test_says_what_to_install_without_a_gpu(run) -> None:
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    with pytest.raises(
        fg.ProblemError, match=r"needs an NVIDIA GPU .* pip install 'fegsam\[cuda\]'"
    ):
        fg.run(fed, fg.QLearning(), engine="cuda", **run)


@pytest.mark.skipif(
    "NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator stands in for a GPU"
)
def test_refuses_a_gpu_that_is_too_old(monkeypatch) -> None:
    from fegsam.engines.cuda import device as cuda_device

    old = types.SimpleNamespace(name=b"an old one", compute_capability=(6, 1))
    monkeypatch.setattr(cuda_device.cuda, "get_current_device", lambda: old)
    with pytest.raises(
        fg.ProblemError,
        match=r"compute capability 7\.0 or later and an old one has 6\.1; use engine='cpu'",
    ):
        cuda_device.describe(0)


def test_refuses_unknown_precision_and_layout() -> None:
    with pytest.raises(fg.ProblemError, match="precision is 'half'; give"):
        fg.engines.Cuda(precision="half")
    with pytest.raises(fg.ProblemError, match="layout is 'registers'; give"):
        fg.engines.Cuda(layout="registers")


@pytest.mark.parametrize(
    ("changed", "layout"),
    [
        ({}, "overlay"),
        ({"sync_period": 100}, "shared"),
        ({"sync_period": 1000}, "shared"),
        ({"item": 8, "num_agents": 256}, "shared"),
        ({"item": 8, "num_agents": 8192}, "overlay"),
        ({"dim": 10**5}, "overlay"),
        ({"dim": 10**5, "num_agents": 2}, "overlay"),
        ({"dim": 10**5, "sync_period": 10**5}, "table"),
        ({"num_agents": 1}, "shared"),
        ({"num_agents": 4096}, "shared"),
        ({"num_agents": 4096, "num_seeds": 64}, "overlay"),
        ({"form": "row", "dim": 10}, "shared"),
        ({"form": "dense", "dim": 10**4}, "table"),
    ],
)
def test_layout_goes_with_the_size(changed, layout) -> None:
    assert make_layout(dataclasses.replace(SHAPE, **changed), H200, None, 1, 0).name == layout


def test_every_agent_has_a_thread_and_blocks_fit() -> None:
    for agents in (2, 31, 256, 257, 4096, 10**6, 10**8):
        for seeds in (1, 7, 1000):
            shape = dataclasses.replace(SHAPE, num_agents=agents, num_seeds=seeds)
            found = make_layout(shape, H200, None, 3, 0)
            assert found.slots * found.lanes <= found.threads <= 1024
            assert found.shared_bytes <= H200.shared_bytes
            assert found.blocks * found.lanes >= agents or found.blocks * found.threads >= 132 * 256
            assert found.agent_blocks == found.blocks * (found.seeds // found.slots)
            assert found.grid == (
                2 * found.agent_blocks if found.where.producers else found.agent_blocks
            )


def test_memory_is_planned_and_refused_with_numbers() -> None:
    shape = dataclasses.replace(SHAPE, dim=10**6, sync_period=10**6, num_agents=10**5)
    roomy = make_layout(shape, H200, "table", 1, 0)
    tight = make_layout(shape, dataclasses.replace(H200, free_bytes=20 * 10**9), "table", 1, 0)
    assert tight.blocks < roomy.blocks
    with pytest.raises(
        fg.ProblemError,
        match=r"100000 agents with 1000000 parameters need .* bytes of GPU memory .* free",
    ):
        make_layout(shape, dataclasses.replace(H200, free_bytes=10**9), "table", 1, 0)
    many = dataclasses.replace(SHAPE, num_seeds=1000, num_agents=10**6)
    assert make_layout(many, H200, None, 1, 0).seeds < 1000


def test_shared_layout_that_does_not_fit_is_refused() -> None:
    with pytest.raises(fg.ProblemError, match=r"layout='shared' needs .* give 'table'"):
        make_layout(dataclasses.replace(SHAPE, dim=10**5), H200, "shared", 1, 0)


def test_overlay_is_for_tables() -> None:
    with pytest.raises(fg.ProblemError, match="layout='overlay' is for several agents with tables"):
        make_layout(dataclasses.replace(SHAPE, form="row"), H200, "overlay", 1, 0)


def test_rounds_that_write_few_cells_are_logged() -> None:
    few = make_layout(dataclasses.replace(SHAPE, sync_period=100), H200, "shared", 1, 0)
    many = make_layout(dataclasses.replace(SHAPE, sync_period=300), H200, "shared", 1, 0)
    assert few.where == Where(sums=True, base=True, own=True, entries=0, logged=True)
    assert not many.where.logged


def test_few_agents_lie_side_by_side_on_many_processors() -> None:
    found = make_layout(dataclasses.replace(SHAPE, num_agents=4096), H200, None, 1, 0)
    assert found.threads * found.blocks >= 4096
    assert 32 < found.threads <= 128
    assert found.blocks <= H200.processors


@pytest.mark.parametrize(
    ("changed", "producers"),
    [
        ({}, True),
        ({"num_agents": 2}, True),
        ({"num_agents": 1}, False),
        ({"num_agents": 65536}, False),
        ({"num_seeds": 64}, False),
        ({"chained": False}, False),
        ({"dim": 10**5, "sync_period": 10**5}, False),
        ({"sync_period": 200}, True),
        ({"sync_period": 10**4}, False),
    ],
)
def test_producers_run_ahead_where_half_of_the_gpu_is_enough(changed, producers) -> None:
    found = make_layout(
        dataclasses.replace(SHAPE, **{"num_agents": 4096, **changed}), H200, None, 1, 0
    )
    assert found.where.producers == producers
    assert found.shared_bytes <= H200.shared_bytes
    assert not producers or found.grid <= H200.processors


def test_few_summands_go_straight_to_the_sums_of_all_blocks() -> None:
    few, many = (
        make_layout(dataclasses.replace(SHAPE, num_agents=agents), H200, None, 1, 0)
        for agents in (256, 4096)
    )
    assert few.where.producers
    assert many.where.producers
    assert (few.where.sums, many.where.sums) == (False, True)
    assert few.where.near_log
    assert not make_layout(
        dataclasses.replace(SHAPE, num_agents=4096, sync_period=200), H200, None, 1, 0
    ).where.near_log


def test_where_blocks_run_in_turn_there_is_one_and_it_fits() -> None:
    simulator = Device(
        "a simulator", 1, 1 << 16, 1 << 17, 1 << 30, 8, 1 << 16, reserved=0, warp=2, in_turn=True
    )
    large = Shape("row", dim=1000, num_agents=5, num_seeds=1, sync_period=3, ahead=1, item=8)
    assert make_layout(large, simulator, None, 1, 0).blocks == 1
    assert (
        make_layout(
            dataclasses.replace(large, num_agents=1, num_seeds=100), simulator, None, 1, 0
        ).agent_blocks
        == 1
    )
    sparse = Shape("cell", dim=5000, num_agents=2, num_seeds=1, sync_period=3, ahead=1, item=8)
    assert make_layout(sparse, simulator, None, 1, 0).name == "overlay"


@pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="needs Numba's own types")
@pytest.mark.parametrize(("states", "copied"), [(100, True), (512, False)])
def test_blocks_copy_what_the_compiler_lets_them(states: int, copied: bool) -> None:
    from fegsam.engines.cuda.rule import copies

    mdp = fg.examples.garnet(states, 2, 1, discount=0.9, seed=0)
    fed = fg.Federation(
        mdp,
        fg.policies.uniform(states, 2),
        num_agents=2,
        target_policy=fg.policies.uniform(states, 2),
    )
    plan = lower(
        fed,
        fg.OffPolicyTabularTD(),
        start=Checkpoint(0, np.zeros((1, states))),
        truth=None,
        output_times=None,
    )
    arrays = [
        value
        for value in (*pack(plan.chain), *plan.tables)
        if isinstance(value, np.ndarray) and value.size
    ]
    found = copies(plan)
    assert sum(found.values()) <= 48 * 1024
    assert (len(found) == len(arrays)) == copied
