"""A run has the same bits for every number of threads that BLAS may use.

Products, solves and eigenvalues round differently when the library splits them over threads. Each
number of threads needs a process of its own, which reads it from the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import fegsam as fg
from fegsam import blas_threads
from fegsam.blas_threads import one_blas_thread

TEN_PROBLEMS = """
import hashlib
import numpy as np
import fegsam as fg

rng = np.random.default_rng(0)
for i in range(10):
    states, dim, kinds = int(rng.integers(100, 500)), int(rng.integers(20, 60)), i % 3 + 1
    mdp = fg.examples.garnet(states, 3, states if i % 2 else 5, discount=0.9, seed=i)
    uniform = fg.policies.uniform(states, 3)
    behaviors = 0.9 * uniform + 0.1 * fg.policies.random(states, 3, count=kinds, seed=i)
    algorithm = fg.OnPolicyTD(1 + i % 3)
    if i % 2:
        algorithm = fg.OffPolicyLinearTD(4, preconditioned=i % 4 == 3)
    features = rng.normal(size=(states, dim))
    fed = fg.Federation(
        mdp, behaviors, num_agents=3 * kinds, target_policy=uniform, features=features
    )
    point = fg.fixed_point(fed, algorithm)
    settings = dict(step_size=0.001, sync_period=5, num_steps=20, seeds=range(2), record=10)
    history = fg.run(fed, algorithm, **settings)
    digest = hashlib.sha256(point.tobytes() + repr(history.settings.output_decay).encode())
    for values in history.data.data_vars.values():
        digest.update(values.values.tobytes())
    print(type(algorithm).__name__, states, dim, digest.hexdigest())
"""


def bits(threads: int) -> list[str]:
    environment = os.environ | {
        name: str(threads)
        for name in (
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "BLIS_NUM_THREADS",
            "OMP_NUM_THREADS",
        )
    }
    answer = subprocess.run(
        [sys.executable, "-c", TEN_PROBLEMS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()


@pytest.mark.skipif(not blas_threads.libraries(), reason="the threads of this BLAS cannot be set")
def test_ten_linear_problems_have_the_same_bits_for_one_blas_thread_and_two() -> None:
    alone = bits(1)
    assert len(set(alone)) == 10
    assert bits(2) == alone


def threads_now() -> list[int]:
    return [library.threads() for library in blas_threads.libraries()]


def test_the_number_of_threads_is_put_back_after_a_run_and_after_an_error() -> None:
    before = threads_now()
    fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=2)
    seen = []

    def engine(job):
        seen.append(threads_now())
        return fg.engines.Reference()(job)

    fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=1, num_steps=3, engine=engine)
    assert seen == [[1] * len(before)]
    assert threads_now() == before
    with pytest.raises(fg.ProblemError):
        fg.run(fed, fg.QLearning(), step_size=-0.1, sync_period=1, num_steps=3)
    assert threads_now() == before


def test_who_leaves_first_does_not_lift_the_limit_for_the_others() -> None:
    before = threads_now()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    helper = threading.Thread(target=other)
    helper.start()
    assert entered.wait(10)
    with one_blas_thread():
        np.ones((3, 3)) @ np.ones((3, 3))
    assert threads_now() == [1] * len(before)
    leave.set()
    helper.join()
    assert threads_now() == before
