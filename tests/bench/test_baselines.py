"""The baselines compute what the engines compute: a fast wrong loop is no baseline."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import fegsam as fg
from fegsam.bench.c_loop import CLoop
from fegsam.bench.jax_scan import JaxScan, import_jax
from fegsam.bench.numpy_loop import numpy_loop
from fegsam.bench.problems import STEP_SIZE, BenchCase, BenchSetting, make_case, make_problem
from fegsam.bench.tables import q_learning_tables
from fegsam.engines.cpu.sampling import first_states
from fegsam.randomness import PATH, words

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def optimal_values(federation: fg.Federation, tolerance: float = 1e-12) -> np.ndarray:
    """Q* by value iteration: nothing in it comes from fegsam's own solvers."""
    mdp = federation.mdps[0]
    q = np.zeros(mdp.rewards.size)
    while True:
        best = q.reshape(mdp.rewards.shape).max(axis=1)
        previous, q = q, mdp.rewards.ravel() + mdp.discount * (mdp.transitions @ best)
        if np.abs(q - previous).max() < tolerance:
            return q


def final_average(case: BenchCase, num_rounds: int) -> np.ndarray:
    return fg.engines.Cpu(threads=1)(case.lasting(num_rounds)).data.final_params.values[0]


@pytest.mark.parametrize(
    ("loop", "num_agents", "step_size", "num_steps"),
    [
        pytest.param("C", 64, 0.1, 60_000, marks=needs_compiler),
        # A round touches few cells, so that the synchronisation goes over a list of them.
        pytest.param("C", 8, 0.01, 600_000, marks=needs_compiler),
        ("NumPy", 64, 0.1, 20_000),
    ],
)
def test_c_and_numpy_keep_pace_with_the_engine(loop, num_agents, step_size, num_steps) -> None:
    setting = BenchSetting(num_agents=num_agents, states=20)
    problem, algorithm = make_problem(setting)
    optimum, tables = optimal_values(problem), q_learning_tables(make_case(setting).job)
    rules = {"step_size": step_size, "sync_period": setting.sync_period}
    if loop == "C":
        average, curve = CLoop(tables, **rules)(num_steps, fixed_point=optimum)
    else:
        average, curve = numpy_loop(tables, **rules, num_steps=num_steps, fixed_point=optimum)
    assert np.isclose(curve[-1], np.abs(average - optimum).max() ** 2)
    known = {"fixed_point": optimum, "output_decay": 0.5}
    history = fg.run(
        problem, algorithm, **rules, num_steps=num_steps, record=setting.sync_period, **known
    )
    expected = history.data.squared_error.values[0, 1:]
    assert len(curve) == len(expected)
    scale = np.abs(optimum).max()
    for time in (len(curve) // 20, len(curve) // 4, -1):
        assert abs(np.sqrt(curve[time]) - np.sqrt(expected[time])) < 0.02 * scale
    assert expected[-1] < 0.1 * expected[0], "long enough to tell a wrong loop by"


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("sync_period", [1, 7])
def test_jax_given_the_engines_words_has_the_engines_parameters(
    precision, tolerance, sync_period
) -> None:
    jax = import_jax()
    setting = BenchSetting(num_agents=12, sync_period=sync_period, states=9, actions=3, branching=4)
    case, num_rounds = make_case(setting), 20
    steps = np.arange(num_rounds * sync_period, dtype=np.uint64)
    drawn = [np.stack(words(np.uint64(0), np.uint64(i), steps, PATH), axis=-1) for i in range(12)]
    all_words = jax.numpy.asarray(np.stack(drawn, axis=1).astype(np.uint32))
    first = np.zeros(12, np.uint32)
    first_states(case.job.chain, np.uint64(0), 0, 12, first)
    loop = JaxScan(
        q_learning_tables(case.job),
        first,
        step_size=STEP_SIZE,
        sync_period=sync_period,
        precision=precision,
        draw=lambda start, count: jax.lax.dynamic_slice_in_dim(all_words, start, count),
    )
    found, expected = loop(num_rounds), final_average(case, num_rounds)
    assert found.dtype == precision
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


def test_jax_with_words_of_its_own_learns_as_fast_as_the_engine() -> None:
    case = make_case(BenchSetting(num_agents=64, states=9, actions=3))
    first = np.zeros(64, np.uint32)
    first_states(case.job.chain, np.uint64(0), 0, 64, first)
    loop = JaxScan(
        q_learning_tables(case.job),
        first,
        step_size=STEP_SIZE,
        sync_period=10,
        precision="float32",
    )
    found, expected = loop(400), final_average(case, 400)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    assert not np.array_equal(found, expected.astype(np.float32)), "other words, other paths"
