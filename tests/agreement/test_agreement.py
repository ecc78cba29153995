"""Every engine computes what the paper's pseudo-code says, at every time; how a run is laid out
changes no bit.

The tests named `tiny` are small enough to run with the compiled code interpreted
(NUMBA_DISABLE_JIT=1, -k tiny).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fegsam as fg
import pseudocode
from cases import ALGORITHMS, DISCOUNT, SMALL, WITH_WINDOW, case, large
from helpers.agreement import ALPHA, SEEDS, assert_agrees
from helpers.small_buffers import share_every_round, shrink, shrink_buffers

ENGINES = ("reference", "cpu")
T = 25
WINDOWED = [pytest.param(name, n, id=f"{name}-n{n}") for name in WITH_WINDOW for n in (1, 2, 5)]
ONE_STEP = [pytest.param(name, 1, id=name) for name in ALGORITHMS if name not in WITH_WINDOW]
EVERY = pytest.mark.parametrize("name", ALGORITHMS)
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)


# --- The engines against the pseudo-code ----------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("K", [1, 3, 10])
@pytest.mark.parametrize(("name", "n"), WINDOWED + ONE_STEP)
def test_engine_agrees_with_the_pseudocode_at_every_time(name, n, K, engine) -> None:
    assert_agrees(case(name, n), engine=engine, K=K, T=T)


@EACH_ENGINE
@pytest.mark.parametrize("differ", ["mdps", "both"])
@pytest.mark.parametrize("name", ["alg2", "alg3", "alg4", "alg5", "alg5-preconditioned", "tdc"])
def test_engine_agrees_with_the_pseudocode_where_environments_differ(name, differ, engine) -> None:
    assert_agrees(case(name, n=2, differ=differ), engine=engine, K=3, T=T)


@EACH_ENGINE
@EVERY
@pytest.mark.parametrize("num_agents", [64, 67, 130])
def test_engine_agrees_with_the_pseudocode_for_more_agents_than_a_block_holds(
    name, num_agents, engine
) -> None:
    assert_agrees(case(name, n=2, num_agents=num_agents), engine=engine, K=3, T=T, seeds=SEEDS[:1])


@pytest.mark.parametrize("K", [1, 7, 200])
@EVERY
def test_cpu_agrees_with_the_pseudocode_over_many_rounds_and_long_ones(name, K) -> None:
    assert_agrees(case(name, n=2, num_agents=3), engine="cpu", K=K, T=333, seeds=SEEDS[:1])


# From rounds that touch a few cells of the table to rounds that touch each of them often.
SPARSITY = pytest.mark.parametrize(
    ("num_agents", "K", "T"),
    [(5, 3, 25), (130, 3, 25), (130, 10, 25), (67, 20, 45), (3, 60, 130), (3, 200, 250)],
)


@SPARSITY
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_cpu_agrees_with_the_pseudocode_on_a_large_table(name, num_agents, K, T) -> None:
    assert_agrees(
        case(name, n=2, num_agents=num_agents, world=large()),
        engine="cpu",
        K=K,
        T=T,
        seeds=SEEDS[:1],
    )


@EACH_ENGINE
@pytest.mark.parametrize(("name", "n"), WINDOWED + ONE_STEP)
def test_engine_agrees_with_the_pseudocode_on_iid_windows(name, n, engine) -> None:
    assert_agrees(case(name, n), engine=engine, K=3, T=T, sampling="iid")


@EACH_ENGINE
@EVERY
def test_tiny_engine_agrees_with_the_pseudocode(name, engine) -> None:
    assert_agrees(case(name, n=2, num_agents=3), engine=engine, K=3, T=7)
    assert_agrees(case(name, n=2, num_agents=3), engine=engine, K=3, T=4, sampling="iid")


@EACH_ENGINE
@pytest.mark.parametrize("name", ["alg1-linear", "alg2", "alg4"])
def test_tiny_engine_agrees_with_the_pseudocode_for_more_agents_than_a_block_holds(
    name, engine
) -> None:
    assert_agrees(case(name, n=2, num_agents=67), engine=engine, K=2, T=3, seeds=SEEDS[:1])


@pytest.mark.parametrize(("num_agents", "K"), [(3, 2), (67, 2), (67, 4)])
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_tiny_cpu_agrees_with_the_pseudocode_on_a_large_table(name, num_agents, K) -> None:
    assert_agrees(
        case(name, num_agents=num_agents, world=large(150)),
        engine="cpu",
        K=K,
        T=K + 1,
        seeds=SEEDS[:1],
    )


@pytest.mark.parametrize("K", [1, 3, 7, 100])
@EVERY
def test_tiny_cpu_agrees_with_the_pseudocode_when_memory_is_short(name, K, monkeypatch) -> None:
    """Paths are drawn in pieces, rounds run again for the record points that do not fit, and calls
    end early."""
    shrink_buffers(monkeypatch)
    for num_agents in (1, 3):
        for sampling in ("markov", "iid"):
            assert_agrees(
                case(name, n=2, num_agents=num_agents),
                engine="cpu",
                K=K,
                T=11,
                seeds=SEEDS,
                sampling=sampling,
            )


@EACH_ENGINE
def test_parameters_start_at_zero_unless_said_otherwise(engine) -> None:
    from_zero = dataclasses.replace(case("alg5", n=2), start=np.zeros(SMALL.features.shape[1]))
    history = from_zero.run(alpha=ALPHA, K=3, T=T, initial_params=None, engine=engine)
    np.testing.assert_allclose(
        history.data.average_params[0],
        from_zero.trace(0, alpha=ALPHA, K=3, T=T).average,
        rtol=0,
        atol=1e-12,
    )


@EVERY
def test_tiny_reference_and_cpu_draw_the_same_output_times(name) -> None:
    small = case(name, n=2, num_agents=2)
    histories = [
        small.run(alpha=ALPHA, K=3, T=9, seeds=range(5), output_decay=0.9, engine=engine)
        for engine in ENGINES
    ]
    one, other = (history.data for history in histories)
    np.testing.assert_array_equal(one.output_time, other.output_time)
    np.testing.assert_allclose(one.output_params, other.output_params, rtol=0, atol=1e-12)


# --- What is recorded -----------------------------------------------------------------------------


@EACH_ENGINE
@EVERY
def test_tiny_any_subset_of_times_records_the_rows_of_the_full_record(name, engine) -> None:
    small = case(name, n=2, num_agents=3)
    full = small.run(alpha=ALPHA, K=4, T=11, seeds=SEEDS, engine=engine).data
    for record in ([0, 11], [5], [1, 2, 4, 7, 8, 11], 3):
        data = small.run(alpha=ALPHA, K=4, T=11, seeds=SEEDS, engine=engine, record=record).data
        if not isinstance(record, int):
            np.testing.assert_array_equal(data.time, record)
        rows = full.sel(time=data.time)
        for variable in ("average_params", "sync_error", "squared_error", "squared_error_2"):
            np.testing.assert_allclose(
                data[variable], rows[variable], rtol=0, atol=1e-12, err_msg=variable
            )
        np.testing.assert_allclose(data.final_params, full.final_params, rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.output_params, full.output_params, rtol=0, atol=1e-12)


@EVERY
def test_tiny_default_record_has_the_first_and_the_last_time(name) -> None:
    times = case(name, num_agents=2).run(alpha=ALPHA, K=2, T=5, record=None).data.time.values
    assert times[0] == 0
    assert times[-1] == 5


@EACH_ENGINE
@EVERY
def test_errors_are_those_of_the_recorded_averages(name, engine) -> None:
    small = case(name, n=2)
    data = small.run(alpha=ALPHA, K=3, T=T, seeds=SEEDS, engine=engine).data
    truth = fg.fixed_point(small.problem, small.algorithm)
    gap = np.abs(data.average_params.values - truth)
    squared_2 = (gap**2).sum(axis=2)
    squared = (gap**2).max(axis=2) if name in ("alg3", "alg4") else squared_2
    np.testing.assert_allclose(data.squared_error_2, squared_2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(data.squared_error, squared, rtol=1e-9, atol=1e-12)
    for row in range(len(SEEDS)):
        at = int(data.output_time[row])
        np.testing.assert_array_equal(
            data.output_params[row], data.average_params[row].sel(time=at)
        )
        np.testing.assert_allclose(
            data.output_squared_error[row], data.squared_error[row].sel(time=at), rtol=1e-9
        )


@EACH_ENGINE
@pytest.mark.parametrize("name", [*WITH_WINDOW, "tdc"])
def test_value_error_is_weighted_by_the_mixture_of_stationary_laws(name, engine) -> None:
    small = case(name, n=2)
    data = small.run(alpha=ALPHA, K=3, T=T, engine=engine).data
    followed = [
        SMALL.target if name == "alg2" else SMALL.behavior[k] for k in small.problem.assignment
    ]
    law = np.mean(
        [pseudocode.stationary_law(SMALL.transitions[0], policy) for policy in followed], axis=0
    )
    chain = np.einsum("sa,sat->st", SMALL.target, SMALL.transitions[0])
    value = np.linalg.solve(
        np.eye(len(chain)) - DISCOUNT * chain, (SMALL.target * SMALL.rewards[0]).sum(axis=1)
    )
    phi = np.eye(len(chain)) if name == "alg3" else SMALL.features
    learned = data.average_params[0].values[:, : phi.shape[1]] @ phi.T
    np.testing.assert_allclose(
        data.value_error[0], ((learned - value) ** 2) @ law, rtol=1e-9, atol=1e-12
    )


# --- The layout of a run changes no bit -----------------------------------------------------------


@EVERY
@pytest.mark.parametrize("seeds", [(5,), (5, 6, 7)], ids=["one-seed", "three-seeds"])
def test_one_thread_and_two_give_the_same_bits(name, seeds, assert_same_bits) -> None:
    large = case(name, n=2, num_agents=1000)
    settings = {
        "alpha": ALPHA,
        "K": 50,
        "T": 120,
        "seeds": seeds,
        "record": [0, 1, 49, 50, 51, 75, 100, 120],
    }
    one, two = (large.run(**settings, engine=fg.engines.Cpu(threads=threads)) for threads in (1, 2))
    assert_same_bits(one, two)


@pytest.mark.parametrize("K", [9, 20])
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_one_thread_and_two_give_the_same_bits_on_a_large_table(name, K, assert_same_bits) -> None:
    some = case(name, n=2, num_agents=1000, world=large())
    settings = {"alpha": ALPHA, "K": K, "T": 50, "record": [0, 1, 8, 9, 20, 21, 33, 50]}
    one, two = (some.run(**settings, engine=fg.engines.Cpu(threads=threads)) for threads in (1, 2))
    assert_same_bits(one, two)


def test_one_thread_and_two_give_the_same_bits_where_rounds_are_run_again_for_their_records(
    assert_same_bits, monkeypatch
) -> None:
    """The number of record points that one call holds must not depend on the number of threads."""
    some = case("alg4", n=2, num_agents=300, world=large())
    dim = 4 * some.problem.num_states * some.problem.num_actions
    shrink(monkeypatch, SLOT_BYTES=64 * dim)
    share_every_round(monkeypatch)
    one, two = (
        some.run(alpha=ALPHA, K=40, T=80, record=1, engine=fg.engines.Cpu(threads=threads))
        for threads in (1, 2)
    )
    assert_same_bits(one, two)


def test_one_thread_and_two_give_the_same_bits_on_a_table_with_more_cells_than_a_round_has_steps(
    assert_same_bits,
) -> None:
    mdp = fg.examples.garnet(4000, 3, 3, DISCOUNT, seed=0)
    problem = fg.Federation(mdp, fg.policies.random(4000, 3, count=3, seed=1), num_agents=1000)
    settings = {
        "step_size": ALPHA,
        "sync_period": 10,
        "num_steps": 45,
        "record": [0, 1, 10, 33, 45],
    }
    one, two = (
        fg.run(
            problem,
            fg.QLearning(),
            **settings,
            record_params=True,
            engine=fg.engines.Cpu(threads=threads),
        )
        for threads in (1, 2)
    )
    assert_same_bits(one, two)


@EVERY
def test_tiny_one_thread_and_two_give_the_same_bits(name, assert_same_bits) -> None:
    small = case(name, n=2, num_agents=67)
    one, two = (
        small.run(alpha=ALPHA, K=2, T=3, engine=fg.engines.Cpu(threads=threads))
        for threads in (1, 2)
    )
    assert_same_bits(one, two)


@EACH_ENGINE
@EVERY
def test_a_seed_run_alone_has_the_bits_it_has_among_others(name, engine) -> None:
    small = case(name, n=2)
    together = small.run(alpha=ALPHA, K=3, T=T, seeds=SEEDS, engine=engine).data
    for row, seed in enumerate(SEEDS):
        alone = small.run(alpha=ALPHA, K=3, T=T, seeds=[seed], engine=engine).data
        for variable in (
            "average_params",
            "sync_error",
            "final_params",
            "output_time",
            "output_params",
        ):
            np.testing.assert_array_equal(
                alone[variable][0], together[variable][row], err_msg=variable
            )


@EACH_ENGINE
@EVERY
def test_tiny_single_agent_has_the_same_bits_for_every_sync_period(name, engine) -> None:
    alone = case(name, n=2, num_agents=1)
    never = alone.run(alpha=ALPHA, K=1000, T=11, engine=engine).data
    for K in (1, 2, 3, 10, 11):
        data = alone.run(alpha=ALPHA, K=K, T=11, engine=engine).data
        for variable in ("average_params", "final_params", "squared_error", "sync_error"):
            np.testing.assert_array_equal(data[variable], never[variable], err_msg=variable)
    assert np.all(never.sync_error == 0)
    trace = alone.trace(0, alpha=ALPHA, K=1, T=11)
    np.testing.assert_allclose(never.average_params[0], trace.params[:, 0], rtol=0, atol=1e-12)


# --- When the agents average ----------------------------------------------------------------------


@EACH_ENGINE
@EVERY
def test_tiny_longer_period_than_the_run_never_synchronises(name, engine) -> None:
    small = case(name, n=2, num_agents=3)
    history = small.run(alpha=ALPHA, K=10, T=9, engine=engine)
    assert history.settings.communications == 0
    assert np.all(history.data.sync_error[0, 1:] > 0)
    longer = small.run(alpha=ALPHA, K=500, T=9, engine=engine)
    np.testing.assert_array_equal(history.data.average_params, longer.data.average_params)
    assert_agrees(small, engine=engine, K=10, T=9)


@EACH_ENGINE
@EVERY
def test_tiny_agents_agree_after_each_sync_and_part_right_after_it(name, engine) -> None:
    history = case(name, n=2, num_agents=3).run(alpha=ALPHA, K=3, T=11, engine=engine)
    assert history.settings.communications == 3
    errors = history.data.sync_error[0].values
    assert np.all(errors[[0, 3, 6, 9]] <= 1e-15)
    assert np.all(errors[[1, 4, 7, 10]] > 1e-9)


# --- Paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), WINDOWED + ONE_STEP)
def test_path_is_as_long_as_the_steps_look(name, n) -> None:
    some = case(name, n)
    path = fg.sample_path(some.problem, some.algorithm, seed=1, agent=2, num_steps=T)
    assert np.issubdtype(path.states.dtype, np.integer)
    assert np.issubdtype(path.actions.dtype, np.integer)
    if some.window == 0:
        assert len(path.states) >= T
        return
    assert len(path.states) == T + some.window
    assert len(path.actions) == T + some.window - 1
    windows = fg.sample_path(
        some.problem, some.algorithm, seed=1, agent=2, num_steps=T, sampling="iid"
    )
    assert windows.states.shape == (T, some.window + 1)
    assert windows.actions.shape == (T, some.window)


@pytest.mark.parametrize("sampling", ["markov", "iid"])
@pytest.mark.parametrize(("name", "n"), WINDOWED + ONE_STEP)
def test_path_of_an_agent_does_not_depend_on_how_many_agents_there_are(name, n, sampling) -> None:
    few, many = case(name, n, num_agents=5), case(name, n, num_agents=130)
    for agent in range(5):
        one, other = (
            fg.sample_path(
                c.problem, c.algorithm, seed=9, agent=agent, num_steps=T, sampling=sampling
            )
            for c in (few, many)
        )
        np.testing.assert_array_equal(one.states, other.states)
        np.testing.assert_array_equal(one.actions, other.actions)


def test_path_depends_neither_on_the_window_nor_on_the_algorithm_nor_on_the_length_of_the_run() -> (
    None
):
    learners = [
        case("alg3", 1),
        case("alg3", 5),
        case("alg4"),
        case("alg5", 2),
        case("alg5-preconditioned", 3),
    ]
    for agent in range(5):
        longest = fg.sample_path(
            learners[0].problem, learners[0].algorithm, seed=4, agent=agent, num_steps=500
        )
        for some in learners:
            path = fg.sample_path(some.problem, some.algorithm, seed=4, agent=agent, num_steps=T)
            np.testing.assert_array_equal(path.states, longest.states[: len(path.states)])
            np.testing.assert_array_equal(path.actions, longest.actions[: len(path.actions)])


@EVERY
def test_one_path_explains_runs_at_every_step_size_and_sync_period(name) -> None:
    some = case(name, n=2)
    paths = some.paths(seed=6, T=T)
    for alpha, K in ((0.01, 1), (0.2, 4), (0.05, 100)):
        trace = some.oracle(
            *paths, alpha=alpha, K=K, T=T, start=some.start, kinds=some.problem.assignment
        )
        data = some.run(alpha=alpha, K=K, T=T, seeds=[6]).data
        np.testing.assert_allclose(data.average_params[0], trace.average, rtol=0, atol=1e-12)


def test_paths_differ_between_agents_and_between_seeds() -> None:
    some = case("alg4", num_agents=12)
    paths = [
        fg.sample_path(some.problem, some.algorithm, seed=seed, agent=agent, num_steps=40)
        for seed in (0, 1, 2, 2**32, 2**64 - 1)
        for agent in range(12)
    ]
    assert len({(tuple(path.states), tuple(path.actions)) for path in paths}) == len(paths)


def test_path_takes_only_possible_steps() -> None:
    some = case("alg4", differ="both")
    for agent, kind in enumerate(some.problem.assignment):
        path = fg.sample_path(some.problem, some.algorithm, seed=0, agent=agent, num_steps=2000)
        assert SMALL.first[path.states[0]] > 0
        assert np.all(SMALL.transitions[kind][path.states[:-1], path.actions, path.states[1:]] > 0)
