"""The loops of `cpu` for every method, run as plain Python: the same code, without compiling it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


@pytest.mark.parametrize(
    ("file", "least"),
    [
        ("test_agreement_methods.py", 100),
        pytest.param("test_invariants.py", 50, marks=pytest.mark.slow),
    ],
)
def test_loops_of_every_method_agree_with_the_papers_when_interpreted(file, least) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    done = subprocess.run(
        [*command, "-m", "method_loops", str(HERE / file)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    assert int(found[1]) > least
