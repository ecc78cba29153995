"""Methods on a GPU, as far as a machine without one can tell: where a run lies, what is refused,
and that sums are exact."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

import fegsam as fg
from cases import case
from fegsam.engines.cuda.layout import Device
from fegsam.engines.cuda.methods.layout import make_method_layout, make_method_shape
from fegsam.prepare import prepare
from helpers.method_cases import EVERY_METHOD
from helpers.processes import python_environment

H200 = Device("an H200", 132, 232448, 233472, 140 * 10**9, 2048, 65536, reserved=1024)
EXACT = """
import math
import numpy as np
from fegsam.engines.cuda.methods.exact import add, num_digits, take_value
rng, pitch = np.random.default_rng(0), 3
for count in (1, 60):
    for spread in (1, 50, 150):
        values = rng.normal(size=count) * 2.0 ** rng.integers(-spread, 3 * spread, count)
        values = np.concatenate([values, -values[: count // 2], np.zeros(1)])
        results = []
        for order in (np.arange(len(values)), rng.permutation(len(values))):
            digits = np.zeros(pitch * num_digits(0), np.uint64)
            for value in values[order]:
                add(digits, np.uint64(1), np.uint64(pitch), value, 0)
            results.append(take_value(digits, np.uint64(1), np.uint64(pitch), num_digits(0)))
            assert not digits.any()
        exact = math.fsum(values)
        assert results[0] == results[1]
        assert abs(results[0] - exact) <= 4e-16 * abs(exact) + 2.0**-180, (results[0], exact)
print("exact")
"""


def shape_of(name: str, method: str, **changes):
    some = case(name, n=2, num_agents=5)
    settings = {"step_size": 0.1, "sync_period": 4, "num_steps": 15, "method": EVERY_METHOD[method]}
    run = make_method_shape(prepare(some.problem, some.algorithm, **settings), 8, 3)
    return dataclasses.replace(run, shape=dataclasses.replace(run.shape, **changes))


@pytest.mark.parametrize("name", ["alg5", "alg1-linear"])
@pytest.mark.parametrize("method", ["last round by agent", "first step by agent"])
def test_variates_of_each_agent_are_for_tables(name, method) -> None:
    with pytest.raises(
        fg.ProblemError, match=r"for tables alone .* use ControlVariates\(of='kind'\), or engine="
    ):
        shape_of(name, method)


def test_every_agent_has_a_thread_and_blocks_fit() -> None:
    for agents in (1, 2, 33, 4096, 10**6):
        for seeds in (1, 7, 1000):
            for layout in ("shared", "table", None):
                run = shape_of("alg4", "by visits", num_agents=agents, num_seeds=seeds)
                found = make_method_layout(run, H200, layout, 0)
                assert found.shared_bytes <= H200.shared_bytes
                assert 1 <= found.seeds <= seeds
                held = 132 * 65536 // found.registers
                assert found.blocks * found.threads >= min(agents, held)
                # Blocks that wait for each other must all run at once.
                assert not found.together or found.grid * found.threads <= held


def test_variates_of_a_million_agents_fit_and_more_are_refused_with_a_cure() -> None:
    run = shape_of("alg4", "last round by agent", num_agents=10**6, sync_period=10)
    assert make_method_layout(run, H200, None, 0).seeds == 1
    many = shape_of("alg4", "last round by agent", num_agents=10**10)
    with pytest.raises(
        fg.ProblemError,
        match=r"10000000000 agents .* GPU memory .* use ControlVariates\(of='kind'\)",
    ):
        make_method_layout(many, H200, None, 0)
    fewer = shape_of("alg4", "momentum", num_agents=10**10)
    with pytest.raises(fg.ProblemError, match=r"use fewer agents, or engine='cpu'"):
        make_method_layout(fewer, H200, None, 0)


def test_sums_are_those_of_infinite_precision_in_any_order() -> None:
    """In Numba's simulator, since these functions run only on a GPU otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", EXACT],
        env=python_environment() | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "exact\n", done.stdout + done.stderr
