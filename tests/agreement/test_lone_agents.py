"""Agents that each live alone and meet only to average compute what the paper's pseudo-code says.

The tests named `tiny` are small enough to run with the compiled code interpreted
(NUMBA_DISABLE_JIT=1, -k tiny).
"""

from __future__ import annotations

import numpy as np
import pytest

from cases import ALGORITHMS, case
from fegsam.engines.cpu.local import SimulatedAgent

ALPHA, SEED = 0.1, 2**63 + 11


def assert_agrees(
    name: str, *, K: int, T: int, sampling: str, n: int = 2, num_agents: int = 3
) -> None:
    small = case(name, n=n, num_agents=num_agents, differ="both")
    agents = [
        SimulatedAgent(
            small.problem, small.algorithm, step_size=ALPHA, seed=SEED, agent=i, sampling=sampling
        )
        for i in range(num_agents)
    ]
    trace = small.trace(SEED, alpha=ALPHA, K=K, T=T, sampling=sampling)
    size = max(1.0, np.abs(trace.params).max())
    average = small.start
    for begin in range(0, T, K):
        end = min(begin + K, T)
        average = np.mean([agent.local_steps(average, end - begin) for agent in agents], axis=0)
        np.testing.assert_allclose(average, trace.average[end], rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_tiny_lone_agents_agree_with_the_pseudocode(name, sampling, monkeypatch) -> None:
    """Paths are drawn in pieces too."""
    assert_agrees(name, K=3, T=7, sampling=sampling)
    monkeypatch.setattr("fegsam.engines.cpu.local.STEPS_AT_ONCE", 2)
    assert_agrees(name, K=5, T=8, sampling=sampling)


@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_tiny_agent_that_leaves_the_finite_numbers_still_goes_to_the_end_of_its_path(name) -> None:
    small = case(name, n=2, num_agents=2)
    wild, calm = (
        SimulatedAgent(small.problem, small.algorithm, step_size=size, seed=SEED, agent=1)
        for size in (1e90, 0.1)
    )
    assert not (np.abs(wild.local_steps(np.full_like(small.start, 1e200), 30)) <= 1e140).all()
    calm.local_steps(small.start, 30)
    assert wild.time == calm.time == 30
    for position in ("states", "actions"):
        np.testing.assert_array_equal(wild.save()[position], calm.save()[position])
