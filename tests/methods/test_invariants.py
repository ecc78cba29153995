"""What methods have in common with plain averaging, path by path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fegsam as fg
import pseudocode_methods as oracle
from cases import ALGORITHMS, case, large
from helpers.replayed import ALPHA, ENGINES, SEEDS, rules

T = 23
EVERY = pytest.mark.parametrize("name", ALGORITHMS)
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)


@EACH_ENGINE
def test_a_round_may_be_longer_than_the_run(engine) -> None:
    """It takes no memory for the steps that are not made."""
    some = case("alg4", n=2)
    for method in (fg.methods.scafflsa(), fg.methods.importance_averaging()):
        long, exact = (
            some.run(alpha=ALPHA, K=K, T=9, seeds=SEEDS, method=method, engine=engine, tail=0.5)
            for K in (10**12, 10)
        )
        np.testing.assert_array_equal(long.data.average_params, exact.data.average_params)
        np.testing.assert_array_equal(long.data.tail_params, exact.data.tail_params)


OF = pytest.mark.parametrize("of", ["agent", "kind"])
CELL_RULES = pytest.mark.parametrize("name", ["alg3", "alg4"])


def averages(
    some: Any, engine: str, K: Any = 4, alpha: float = ALPHA, steps: int = T, **options: Any
) -> Any:
    """What a run records at every time."""
    return some.run(alpha=alpha, K=K, T=steps, seeds=SEEDS, engine=engine, **options).data


def assert_close(one: Any, other: Any, tolerance: float = 1e-12) -> None:
    for variable in ("average_params", "sync_error", "final_params"):
        np.testing.assert_allclose(
            one[variable], other[variable], rtol=0, atol=tolerance, err_msg=variable
        )


def assert_far(one: Any, other: Any, gap: float = 1e-3) -> None:
    """The two differ, so a test that they agree elsewhere says something."""
    assert np.abs(one.average_params.values - other.average_params.values).max() > gap


# --- Control variates -----------------------------------------------------------------------------


@EACH_ENGINE
@OF
@EVERY
def test_variates_of_the_last_round_do_nothing_where_every_step_is_a_round(
    name, of, engine
) -> None:
    some, method = case(name, n=2), fg.Method(correction=fg.ControlVariates(of))
    assert_close(averages(some, engine, K=1, method=method), averages(some, engine, K=1))
    assert_far(averages(some, engine, K=4, method=method), averages(some, engine, K=4), 1e-4)


@EACH_ENGINE
@EVERY
def test_variates_of_the_first_step_make_two_steps_as_if_synchronised_in_between(
    name, engine
) -> None:
    some = case(name, n=2)
    two = averages(some, engine, K=2, method=fg.methods.fedhsa())
    one = averages(some, engine, K=1)
    np.testing.assert_allclose(two.average_params, one.average_params, rtol=0, atol=1e-12)
    # The cpu engine takes the difference of two squares, which leaves the rounding of either.
    np.testing.assert_allclose(two.sync_error, 0, rtol=0, atol=1e-15)
    assert_far(two, averages(some, engine, K=2), 1e-4)


@EACH_ENGINE
@pytest.mark.parametrize("weights", [None, (0.1, 0.3, 0.2, 0.15, 0.25)], ids=["1/N", "w"])
@pytest.mark.parametrize("source", ["last_round", "first_step"])
@OF
def test_corrections_sum_to_zero(of, source, weights, engine) -> None:
    """Where F_i = b_i(y) - theta, the mean of the agents moves by their mean b and the mean
    correction alone, also within a round."""
    some = shifts()
    method = fg.Method(fg.Mean(weights), fg.ControlVariates(of, source))
    with_variates = averages(some, engine, method=method)
    without = averages(some, engine, method=fg.Method(fg.Mean(weights)))
    np.testing.assert_allclose(
        with_variates.average_params, without.average_params, rtol=0, atol=1e-12
    )
    assert np.abs(with_variates.sync_error - without.sync_error).max() > 1e-4


def shifts() -> Any:
    """Five agents of three kinds with F = b(kind, y) - theta, in three dimensions."""
    template = case("alg1-linear")
    offsets = np.random.default_rng(3).normal(size=(3, 4, 3))
    matrices = np.broadcast_to(-np.eye(3), (3, 4, 3, 3))
    return type(template)(
        template.problem, fg.LinearSA(matrices, offsets), 0, template.start, template.oracle
    )


@EACH_ENGINE
@EVERY
def test_scafflsa_is_option_ii_of_scaffold(name, engine) -> None:
    """The library's run is SCAFFLSA's, whose state is written in another way."""
    some = case(name, n=2)
    data = averages(some, engine, method=fg.methods.scafflsa())
    assert some.field is not None
    for row, seed in enumerate(SEEDS):
        field = some.field(*some.paths(seed, T), kinds=some.problem.assignment)
        made = rules(fg.Method(), some.problem.assignment, len(some.start), seed)
        made.variates = oracle.Scafflsa(made.weights, len(some.start))
        trace = oracle.federate(field, some.start, made, periods=[4], alphas=[ALPHA] * T)
        close = {"rtol": 0, "atol": 1e-12 * trace.largest}
        np.testing.assert_allclose(data.average_params[row], trace.average, **close)


# --- Choices that are plain averaging -------------------------------------------------------------


@EACH_ENGINE
@EVERY
def test_equal_weights_are_plain_averaging(name, engine) -> None:
    some = case(name, n=2)
    plain = averages(some, engine)
    assert_close(averages(some, engine, method=fg.Method(fg.Mean([0.2] * 5))), plain)
    by_kind = fg.Method(fg.Mean((0.4, 0.4, 0.2)))  # two, two and one agent
    assert_close(averages(some, engine, method=by_kind), plain)
    assert_far(averages(some, engine, method=fg.Method(fg.Mean((0.1, 0.8, 0.1)))), plain)


@EACH_ENGINE
@EVERY
def test_a_server_step_of_one_without_momentum_is_plain_to_the_bit(
    name, engine, assert_same_bits
) -> None:
    some, settings = case(name, n=2), {"alpha": ALPHA, "K": 4, "T": T, "seeds": SEEDS}
    plain = some.run(**settings, engine=engine)
    for method in (fg.Method(), fg.Method(server=fg.Server(1.0, 0.0)), fg.methods.fedavgm(0)):
        assert_same_bits(some.run(**settings, engine=engine, method=method), plain)
    ahead = averages(some, engine, method=fg.methods.fedavgm(0, nesterov=True))
    assert_close(ahead, plain.data)


@EACH_ENGINE
@pytest.mark.parametrize("divide_by", ["answered", "all"])
@pytest.mark.parametrize("others", ["wait", "go_on"])
@EVERY
def test_participation_of_everyone_is_plain_averaging(name, others, divide_by, engine) -> None:
    some, plain = case(name, n=2), averages(case(name, n=2), engine)
    everyone = fg.Participation(agents=5, others=others, divide_by=divide_by)
    assert_close(averages(some, engine, method=fg.Method(participation=everyone)), plain)
    most = fg.Participation(agents=4, others=others, divide_by=divide_by)
    assert_far(averages(some, engine, method=fg.Method(participation=most)), plain)


@EACH_ENGINE
@EVERY
def test_equal_local_steps_of_the_whole_round_are_plain_averaging(name, engine) -> None:
    some, plain = case(name, n=2), averages(case(name, n=2), engine)
    assert_close(averages(some, engine, method=fg.methods.fednova((4, 4, 4))), plain)
    assert_far(averages(some, engine, method=fg.methods.fednova((4, 4, 3))), plain, 1e-4)


@EACH_ENGINE
@EVERY
def test_all_cells_are_plain_averaging(name, engine) -> None:
    some, plain = case(name, n=2), averages(case(name, n=2), engine)
    everything = fg.Method(rounding=fg.SomeCells(len(some.start)))
    assert_close(averages(some, engine, method=everything), plain)


@EACH_ENGINE
@EVERY
def test_a_list_of_one_period_is_that_period_to_the_bit(name, engine, assert_same_bits) -> None:
    some, settings = case(name, n=2), {"alpha": ALPHA, "T": T, "seeds": SEEDS, "engine": engine}
    for periods in ((4,), [4, 4], np.array([4])):
        assert_same_bits(some.run(**settings, K=periods), some.run(**settings, K=4))


# --- By visits ------------------------------------------------------------------------------------


@EACH_ENGINE
@CELL_RULES
@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_by_visits_a_cell_is_the_mean_of_its_old_value_and_all_targets(name, alpha, engine) -> None:
    some = case(name, n=2)
    data = averages(some, engine, K=6, alpha=alpha, method=fg.methods.importance_averaging())
    assert some.field is not None
    for row, seed in enumerate(SEEDS):
        field = some.field(*some.paths(seed, T), kinds=some.problem.assignment)
        made = rules(fg.Method(), some.problem.assignment, len(some.start), seed)
        made.combine = oracle.mean_of_targets
        trace = oracle.federate(field, some.start, made, periods=[6], alphas=[alpha] * T)
        np.testing.assert_allclose(data.average_params[row], trace.average, rtol=0, atol=1e-12)


@EACH_ENGINE
@CELL_RULES
def test_by_visits_long_rounds_of_large_steps_neither_overflow_nor_underflow(name, engine) -> None:
    """The weight of 400 visits at step size 0.9 is 1e400; the truth is in rational arithmetic."""
    some, steps, alpha = one_cell(name), 801, 0.9
    method, settings = fg.methods.importance_averaging(), {"initial_params": np.zeros(1)}
    data = averages(some, engine, K=400, alpha=alpha, steps=steps, method=method, **settings)
    plain = averages(some, engine, K=400, alpha=alpha, steps=steps, **settings)
    assert_close(data, plain)
    uneven = case(name, n=2)
    data = averages(uneven, engine, K=400, alpha=alpha, steps=400, method=method)
    assert uneven.field is not None
    for row, seed in enumerate(SEEDS):
        field = uneven.field(*uneven.paths(seed, 400), kinds=uneven.problem.assignment)
        made = rules(fg.Method(), uneven.problem.assignment, len(uneven.start), seed)
        made.combine = oracle.exact_importance_averaging
        trace = oracle.federate(field, uneven.start, made, periods=[400], alphas=[alpha] * 400)
        close = {"rtol": 0, "atol": 1e-11 * trace.largest}
        np.testing.assert_allclose(data.final_params[row], trace.average[-1], **close)


def one_cell(name: str) -> Any:
    """Three agents that always visit the one cell, so that visits weigh alike."""
    template = case(name, num_agents=3)
    mdp = fg.MDP([[[1.0]]], [[0.3]], 0.5)
    policies = {"behavior_policies": [[1.0]], "target_policy": [[1.0]]}
    problem = fg.Federation(mdp, **policies, num_agents=3)
    return type(template)(
        problem, template.algorithm, template.window, np.zeros(1), template.oracle
    )


@EACH_ENGINE
@CELL_RULES
@pytest.mark.parametrize("alpha", [0.1, 0.9])
def test_by_visits_cells_that_nobody_visits_never_change(name, alpha, engine) -> None:
    """To the bit, and also where some agents visit them in other rounds."""
    some = case(name, num_agents=3, world=large(60))
    data = averages(some, engine, alpha=alpha, method=fg.methods.importance_averaging())
    assert some.field is not None
    for row, seed in enumerate(SEEDS):
        field = some.field(*some.paths(seed, T), kinds=some.problem.assignment)
        assert field.cell is not None
        values = data.average_params.values[row]
        for begin in range(0, T - 4, 4):
            visited = {field.cell(i, k) for i in range(3) for k in range(begin, begin + 4)}
            others = [cell for cell in range(len(some.start)) if cell not in visited]
            np.testing.assert_array_equal(values[begin + 4, others], values[begin, others])
            assert (values[begin + 4, list(visited)] != values[begin, list(visited)]).any()


# --- Schedules and tails --------------------------------------------------------------------------


@EACH_ENGINE
@pytest.mark.parametrize("K", [1, 3, 10, 50, (1, 3, 2)], ids=str)
def test_step_sizes_of_one_over_t_make_the_sample_mean_for_every_period(K, engine) -> None:
    """theta += (y - theta) / (t + 1): at every time the average is the mean of all y so far."""
    some = shifts()
    offsets = some.algorithm.offsets
    data = averages(some, engine, K=K, alpha=1.0, schedule=fg.schedules.Polynomial(1))
    for row, seed in enumerate(SEEDS):
        seen = np.array(
            [
                offsets[kind][path[:T]]
                for kind, path in zip(some.problem.assignment, some.paths(seed, T)[0], strict=True)
            ]
        ).mean(axis=0)
        means = np.cumsum(seen, axis=0) / np.arange(1, T + 1)[:, None]
        np.testing.assert_allclose(data.average_params[row, 1:], means, rtol=0, atol=1e-12)


@EACH_ENGINE
@EVERY
def test_tail_average_of_the_whole_run_is_the_mean_of_the_recorded_averages(name, engine) -> None:
    some = case(name, n=2)
    for method in (fg.Method(), fg.methods.fedavgm(0.5, nesterov=True)):
        data = averages(some, engine, method=method, tail=1.0)
        mean = data.average_params.values[:, 1:].mean(axis=1)
        np.testing.assert_allclose(data.tail_params, mean, rtol=0, atol=1e-12)
        half = averages(some, engine, method=method, tail=fg.Tail(0.5, over="syncs"))
        # round(0.5 * 23) = 12, so the tail is after time 11.
        synchronised = data.average_params.values[:, [12, 16, 20]].mean(axis=1)
        np.testing.assert_allclose(half.tail_params, synchronised, rtol=0, atol=1e-12)
