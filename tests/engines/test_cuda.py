"""The `cuda` engine on a machine without a GPU: what it refuses, and what it copies."""

import os
import types

import numpy as np
import pytest

import fegsam as fg
from fegsam.engines.cuda.paths import pack
from fegsam.prepare import prepare


@pytest.fixture
def run() -> dict[str, object]:
    return {"step_size": 0.1, "sync_period": 5, "num_steps": 20}


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


@pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="needs Numba's own types")
@pytest.mark.parametrize(("states", "copied"), [(100, True), (512, False)])
def test_blocks_copy_what_the_compiler_lets_them(states: int, copied: bool) -> None:
    from fegsam.engines.cuda.rule import copies

    mdp = fg.examples.garnet(states, 2, 1, discount=0.9, seed=0, connected=True)
    fed = fg.Federation(
        mdp,
        fg.policies.uniform(states, 2),
        num_agents=2,
        target_policy=fg.policies.uniform(states, 2),
    )
    job = prepare(fed, fg.OffPolicyTabularTD(), step_size=0.1, sync_period=1, num_steps=1)
    arrays = [
        value
        for value in (*pack(job.chain), *job.tables)
        if isinstance(value, np.ndarray) and value.size
    ]
    found = copies(job)
    assert sum(found.values()) <= 48 * 1024
    assert (len(found) == len(arrays)) == copied
