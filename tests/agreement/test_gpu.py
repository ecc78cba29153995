"""The `cuda` engine computes what `cpu` does: the same paths, the same parameters up to rounding,
and the same bits when it runs again.

A process with a GPU checks all cases, a process with NUMBA_ENABLE_CUDASIM=1 the quick ones. Any
other process starts one of the latter kind.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from agreement.gpu_cases import cases, check, quick_cases, runnable_cases
from helpers.processes import python_environment

RUNNABLE = runnable_cases()


@pytest.mark.parametrize("case", RUNNABLE, ids=str)
def test_cuda_agrees_with_cpu(case) -> None:
    assert check(case).disagreements == []


@pytest.mark.skipif(bool(RUNNABLE), reason="this process checks the cases itself")
def test_cuda_agrees_with_cpu_in_the_simulator() -> None:
    cases_alone = f"{__file__}::{test_cuda_agrees_with_cpu.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cases_alone],
        env=python_environment() | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(list(quick_cases()))} passed" in done.stdout


def test_every_case_is_named_once() -> None:
    for some in (list(cases()), list(quick_cases())):
        assert len({str(case) for case in some}) == len(some)
    assert len(list(cases())) == 222
