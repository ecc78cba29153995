"""The `cuda` engine computes what the others do: the same paths, the same parameters up to
rounding, and the same bits when it runs again.

A process with a GPU checks all cases, a process with NUMBA_ENABLE_CUDASIM=1 the quick ones, and as
slow tests all methods. Any other process starts one of the latter kind.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from agreement.gpu_cases import (
    cases,
    check,
    method_cases,
    quick_cases,
    runnable_cases,
    simulated,
    small_method_cases,
)
from helpers.processes import python_environment

RUNNABLE = runnable_cases()
SLOW = list(small_method_cases()) if simulated() else []


@pytest.mark.parametrize("case", RUNNABLE, ids=str)
def test_cuda_agrees_with_the_others(case) -> None:
    assert check(case).disagreements == []


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=str)
def test_cuda_agrees_with_the_others_for_every_method(case) -> None:
    assert check(case).disagreements == []


def in_the_simulator(test: str, *options: str) -> str:
    """What pytest prints for one of these tests in a process with the simulator."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(*options, f"{__file__}::{test}"),
        ],
        env=python_environment() | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(bool(RUNNABLE), reason="this process checks the cases itself")
def test_cuda_agrees_with_the_others_in_the_simulator() -> None:
    said = in_the_simulator(test_cuda_agrees_with_the_others.__name__)
    assert f"{len(list(quick_cases()))} passed" in said


@pytest.mark.slow
@pytest.mark.skipif(bool(RUNNABLE), reason="this process checks the cases itself")
def test_cuda_agrees_with_the_others_for_every_method_in_the_simulator() -> None:
    name = test_cuda_agrees_with_the_others_for_every_method.__name__
    said = in_the_simulator(name, "-m", "slow")
    assert f"{len(list(small_method_cases()))} passed" in said


def test_every_case_is_named_once() -> None:
    for some in (list(cases()), list(method_cases()), list(quick_cases())):
        assert len({str(case) for case in some}) == len(some)
    assert len(list(cases())) == 229
    assert len(list(method_cases())) == 166
