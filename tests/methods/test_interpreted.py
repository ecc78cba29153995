"""The loops of `cpu` for every method, run as plain Python: the same code, without compiling it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def test_loops_of_every_method_agree_with_the_papers_when_interpreted() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    files = [str(HERE / name) for name in ("test_agreement_methods.py", "test_invariants.py")]
    done = subprocess.run(
        [*command, "-m", "method_loops", *files],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stdout[-3000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    assert int(found[1]) > 200
