"""A run that leaves the finite numbers says when and where, keeps its finite part, and disturbs no
other seed.

The truth comes from the pseudo-code. Without rewards and offsets every algorithm is homogeneous, so
that its run from a start of 1e-250 times the size is the same run in smaller units, which shows how
large a parameter would be beyond the largest double.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import warnings

import numpy as np
import pytest

import fegsam as fg
import pseudocode
from cases import (
    ALGORITHMS,
    KERNELS,
    MATRICES,
    NOISE_DIM,
    Case,
    World,
    assignment,
    case,
    starts,
)
from helpers.bursts import BURST, bursts, quietly
from helpers.small_buffers import shrink_buffers

# NumPy's own words on an overflow are not what is tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered", "ignore:invalid value encountered"
)

ENGINES = ("reference", "cpu")
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES)
LARGEST = (
    1e140  # beyond it a parameter counts as not finite, for sums of its square would overflow next
)
UNIT = 2.0**-830  # about 1e-250
FORMS = {
    "dense": "alg1-linear",
    "row": "alg2",
    "row-off-policy": "alg5",
    "cell": "alg3",
    "cell-max": "alg4",
}
EVERY_FORM = pytest.mark.parametrize("name", FORMS.values(), ids=FORMS.keys())


@functools.cache
def no_rewards(states: int) -> World:
    world = World(states, zeros=0.4 if states < 10 else 1 - 4 / states)
    world.rewards = np.zeros_like(world.rewards)
    return world


def homogeneous(name: str, num_agents: int, states: int = 6) -> Case:
    """The problems of the agreement tests without rewards and offsets; their fixed point is
    zero."""
    if name != "alg1-linear":
        return case(name, n=2, num_agents=num_agents, world=no_rewards(states))
    noise = fg.MarkovNoise(KERNELS, num_agents=num_agents, assignment=assignment(num_agents))
    offsets = np.zeros(MATRICES.shape[:3])

    def oracle(states, _, **settings):
        return pseudocode.algorithm_1_linear(states, MATRICES, offsets, **settings)

    return Case(noise, fg.LinearSA(MATRICES, offsets), 0, starts(NOISE_DIM), oracle)


@dataclasses.dataclass(frozen=True)
class Truth:
    alpha: float
    time: int
    """when a parameter is first beyond the finite numbers"""
    kind: int
    """of which kind is the first agent that has one"""
    average: np.ndarray
    """(time, d): the averages before"""


def truth(some: Case, seed: int, *, alpha: float, K: int, T: int) -> Truth:
    """The run at a step size of about `alpha`, the first at which the leap out of the finite
    numbers is a wide one.

    Otherwise the last digit could decide when it happens, and the sum of the agents could overflow
    before they do.
    """
    paths, kinds = some.paths(seed, T), some.problem.assignment
    for step_size in alpha * 3.0 ** np.arange(20):
        with np.errstate(over="ignore", invalid="ignore"):
            params = some.oracle(
                *paths, alpha=step_size, K=K, T=T, start=some.start * UNIT, kinds=kinds
            ).params
            time = int(np.argmax(np.abs(params).max(axis=(1, 2)) > UNIT * LARGEST))
            # Each agent's own parameters at that time, before a synchronisation: its round once
            # more, without one.
            begun = max(time - 1, 0) // K * K
            rest = [[path[begun:] for path in part] for part in paths]
            settings = {
                "alpha": step_size,
                "K": T + 1,
                "T": time - begun,
                "start": params[begun, 0],
                "kinds": kinds,
            }
            own = some.oracle(*rest, **settings).params
        before, beyond = (np.abs(own[t]).max(axis=1) / (UNIT * LARGEST) for t in (-2, -1))
        if time > 0 and before.max() < 1e-4 and not ((beyond > 0.1) & (beyond < 10)).any():
            kind = int(kinds[np.argmax(beyond > 1)])
            return Truth(float(step_size), time, kind, params[:time].mean(axis=1) / UNIT)
    raise AssertionError("no step size has a wide leap")


def diverging_run(some: Case, **settings) -> tuple[fg.History, str]:
    """A run that must warn, once; the history and the warning's text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", fg.DivergenceWarning)
        history = some.run(**settings)
    caught = [warning for warning in caught if warning.category is fg.DivergenceWarning]
    assert len(caught) == 1
    return history, str(caught[0].message)


def assert_broken_off(data, row: int, expected: Truth) -> None:
    """Finite and right before the time of divergence, NaN from there on, wherever a time was
    recorded."""
    assert int(data.diverged_at[row]) == expected.time
    times = data.time.values
    before = times < expected.time
    for time, average in zip(times[before], data.average_params[row].values[before], strict=True):
        scale = max(1.0, np.abs(expected.average[time]).max())
        np.testing.assert_allclose(
            average / scale, expected.average[time] / scale, rtol=0, atol=1e-11, err_msg=f"{time}"
        )
    by_time = [name for name in data.data_vars if "time" in data[name].dims]
    for name in by_time:
        assert np.isnan(data[name][row].values[~before]).all(), name
    assert np.isnan(data.final_params[row]).all()
    output = int(data.output_time[row])
    if output >= expected.time:
        assert np.isnan(data.output_params[row]).all()
        assert np.isnan(data.output_squared_error[row])
    else:
        scale = max(1.0, np.abs(expected.average[output]).max())
        np.testing.assert_allclose(
            data.output_params[row] / scale, expected.average[output] / scale, rtol=0, atol=1e-11
        )


# --- A step size that is far too large ------------------------------------------------------------

SEED = 2**63 + 5


@EACH_ENGINE
@pytest.mark.parametrize(("num_agents", "K"), [(1, 1), (1, 4), (5, 1), (5, 4), (5, 500)])
@EVERY_FORM
def test_divergence_is_told_with_its_time_and_kind_and_the_finite_part_is_kept(
    name, num_agents, K, engine
) -> None:
    some, T = homogeneous(name, num_agents), 150
    expected = truth(some, SEED, alpha=1e11, K=K, T=T)
    settings = {
        "alpha": expected.alpha,
        "K": K,
        "T": T,
        "seeds": [SEED],
        "engine": engine,
        "output_decay": 0.95,
    }
    history, message = diverging_run(some, **settings)
    assert_broken_off(history.data, 0, expected)
    assert f"Seed {SEED} " in message
    assert f"time {expected.time}, at an agent of kind {expected.kind};" in message
    assert f"step_size below {expected.alpha:g}" in message
    assert "\n" not in message


@pytest.mark.parametrize("record", [1, [0, 149], [0, 3, 7, 149], 10], ids=repr)
@pytest.mark.parametrize(("num_agents", "K"), [(1, 4), (5, 1), (5, 40), (67, 7), (130, 40)])
@pytest.mark.parametrize("name", ["alg3", "alg4"])
def test_divergence_on_a_large_table_does_not_depend_on_what_is_recorded(
    name, num_agents, K, record
) -> None:
    """Rounds that touch few cells of the table keep a log; an output inside such a round gets a run
    of its own."""
    some, T = homogeneous(name, num_agents, states=300), 149
    expected = truth(some, 2, alpha=1e55, K=K, T=T)
    settings = {"alpha": expected.alpha, "K": K, "T": T, "seeds": [2], "record": record}
    for decay in (0.9, 0.97):
        history, message = diverging_run(some, **settings, output_decay=decay)
        assert_broken_off(history.data, 0, expected)
        assert f"kind {expected.kind};" in message


@pytest.mark.parametrize("K", [3, 50])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_diverging_run_has_the_same_bits_for_one_thread_and_two(
    name, K, assert_same_bits
) -> None:
    some = case(name, num_agents=1000) if name == "alg1-general" else homogeneous(name, 1000)
    settings = {"alpha": 1e40, "K": K, "T": 120, "seeds": [3], "record": 7}
    one, two = (
        quietly(lambda t=t: some.run(**settings, engine=fg.engines.Cpu(threads=t))) for t in (1, 2)
    )
    assert one.data.diverged_at[0] > 0
    assert_same_bits(one, two)


@EVERY_FORM
def test_reference_and_cpu_agree_on_when_many_seeds_diverge(name) -> None:
    some = homogeneous(name, 4)
    settings = {"alpha": 1e40, "K": 3, "T": 60, "seeds": range(30), "record": 7}
    times = [
        quietly(lambda e=e: some.run(**settings, engine=e)).data.diverged_at.values for e in ENGINES
    ]
    assert times[0].min() > 0
    np.testing.assert_array_equal(*times)


def test_divergence_is_told_when_memory_is_short(monkeypatch) -> None:
    """Rounds then run in pieces, and again for the record points that do not fit."""
    shrink_buffers(monkeypatch)
    for name in FORMS.values():
        for num_agents in (1, 3):
            some = homogeneous(name, num_agents)
            expected = truth(some, 1, alpha=1e11, K=7, T=150)
            history, _ = diverging_run(some, alpha=expected.alpha, K=7, T=150, seeds=[1])
            assert_broken_off(history.data, 0, expected)


@EACH_ENGINE
def test_the_warning_points_at_the_call_that_diverged(engine) -> None:
    some = doubling(1)
    with pytest.warns(fg.DivergenceWarning) as caught:
        fg.run(
            some.problem,
            some.algorithm,
            step_size=1e100,
            sync_period=1,
            num_steps=5,
            engine=engine,
            fixed_point=[0.0],
            initial_params=[1.0],
        )
    assert caught[0].filename == __file__


# --- A chain that explodes now and then -----------------------------------------------------------


def bursts_at(some: Case, seed: int, T: int) -> np.ndarray:
    return np.flatnonzero(some.paths(seed, T)[0][0][:T] == 1)


@EACH_ENGINE
def test_one_agent_diverges_at_its_second_burst_and_seeds_without_one_go_on(engine) -> None:
    some, T, seeds = bursts(), 25, range(40)
    history, message = diverging_run(
        some, alpha=1.0, K=4, T=T, seeds=seeds, fixed_point=[0.0], engine=engine
    )
    expected = []
    for row, seed in enumerate(seeds):
        at = bursts_at(some, seed, T)
        expected.append(at[1] + 1 if len(at) > 1 else -1)
        value, size = [1.0], 1.0
        for t in range(T if len(at) < 2 else at[1]):
            size *= BURST if t in at else 0.5
            value.append(size)
        kept = history.data.average_params[row, :, 0].values
        np.testing.assert_allclose(kept[: len(value)], value, rtol=1e-13)
        assert np.isnan(kept[len(value) :]).all()
    np.testing.assert_array_equal(history.data.diverged_at, expected)
    gone = [time for time in expected if time > 0]
    assert 3 < len(gone) < 37
    assert f"Seed {expected.index(min(gone))} diverged at time {min(gone)}" in message
    assert f"({len(gone)} of 40 seeds diverged)" in message


@EACH_ENGINE
@pytest.mark.parametrize("num_agents", [1, 3])
def test_seeds_that_stay_finite_have_the_bits_they_have_alone(
    num_agents, engine, assert_same_bits
) -> None:
    some = bursts(num_agents, chance=0.02)
    settings = {"alpha": 1.0, "K": 4, "T": 25, "fixed_point": [0.0], "engine": engine}
    together = quietly(lambda: some.run(**settings, seeds=range(20)))
    finite = np.flatnonzero(together.data.diverged_at.values < 0)
    assert 3 < len(finite) < 17
    alone = some.run(**settings, seeds=finite)  # without a warning
    for name in alone.data.data_vars:
        np.testing.assert_array_equal(
            alone.data[name].values, together.data[name].values[finite], err_msg=str(name)
        )
    np.testing.assert_array_equal(alone.checkpoint.params, together.checkpoint.params[finite])


# --- The edge of the finite numbers ---------------------------------------------------------------


def doubling(num_agents: int) -> Case:
    """x_t = 2^t for every agent, which is beyond 1e140 from time 466 on."""
    noise = fg.MarkovNoise([[1.0]], num_agents=num_agents)
    return Case(
        noise, fg.LinearSA([[[1.0]]], [[0.0]]), 0, np.ones(1), lambda *_, **__: pseudocode.Trace()
    )


@EACH_ENGINE
def test_one_agent_that_doubles_diverges_at_time_466(engine) -> None:
    settings = {"alpha": 1.0, "K": 3, "T": 1100, "fixed_point": [0.0], "engine": engine}
    for record in (1, [0, 1100], [465], [466]):
        data = diverging_run(doubling(1), **settings, record=record)[0].data
        assert int(data.diverged_at[0]) == 466
        before = data.time.values < 466
        np.testing.assert_array_equal(
            data.average_params[0, before, 0], 2.0 ** data.time.values[before]
        )


@pytest.mark.parametrize("K", [1, 3, 2000])
def test_divergence_has_one_time_whatever_is_recorded_and_no_row_before_it_is_infinite(K) -> None:
    """A sum of agents must not overflow before any of them is found to diverge."""
    times = set()
    for engine in ENGINES:
        for record in (1, [0, 1100], [462, 463, 464, 465], 100):
            settings = {
                "alpha": 1.0,
                "K": K,
                "T": 1100,
                "fixed_point": [0.0],
                "engine": engine,
                "record": record,
            }
            data = diverging_run(doubling(4), **settings)[0].data
            time = int(data.diverged_at[0])
            times.add(time)
            before = data.time.values < time
            assert np.isfinite(data.average_params[0].values[before]).all(), (engine, record)
            assert np.isnan(data.average_params[0].values[~before]).all(), (engine, record)
    assert times == {466}


@EACH_ENGINE
def test_a_nan_in_any_component_is_a_divergence(engine) -> None:
    """x_t = t until the logarithm of a negative number, at a step where the components behind it
    are finite."""

    def rule(params, y, kind, out):
        out[0] = 1.0 + 0.0 * np.log(5.5 - params[0])
        out[1] = -params[1]

    noise = fg.MarkovNoise([[1.0]], num_agents=2)
    own = Case(
        noise,
        fg.StochasticApproximation(rule, dim=2),
        0,
        np.zeros(2),
        lambda *_, **__: pseudocode.Trace(),
    )
    history, message = diverging_run(
        own, alpha=1.0, K=3, T=20, fixed_point=[0.0, 0.0], engine=engine
    )
    assert int(history.data.diverged_at[0]) == 7
    assert "time 7" in message
    np.testing.assert_array_equal(history.data.average_params[0, :7, 0], np.arange(7.0))


@EACH_ENGINE
def test_a_large_but_finite_run_is_no_divergence(engine) -> None:
    data = doubling(1).run(alpha=1.0, K=1, T=465, fixed_point=[0.0], engine=engine).data
    assert int(data.diverged_at[0]) == -1
    assert float(data.final_params[0, 0]) == 2.0**465
    assert float(data.squared_error[0, -1]) == 2.0**930


# --- No infinity in silence -----------------------------------------------------------------------


def assert_finite_or_told(data, caught: list) -> None:
    """Whatever is not finite belongs to a seed that a warning names, from its time of divergence
    on."""
    gone = data.diverged_at.values
    for name in [name for name in data.data_vars if "time" in data[name].dims]:
        values = data[name].values
        for row, time in enumerate(gone):
            before = (data.time.values < time) | (time < 0)
            assert np.isfinite(values[row, before]).all(), name
            assert np.isnan(values[row, ~before]).all(), name
    for name in ("final_params", "output_params", "output_squared_error"):
        assert not np.isinf(data[name].values).any(), name
        assert np.isfinite(data[name].values[gone < 0]).all(), name
    assert bool((gone >= 0).any()) == any(
        warning.category is fg.DivergenceWarning for warning in caught
    )


@EACH_ENGINE
@pytest.mark.parametrize("num_agents", [1, 3])
@pytest.mark.parametrize("num_steps", [460, 600, 996])
def test_a_squared_error_never_overflows_in_silence(num_steps, num_agents, engine) -> None:
    """At time 600 x is 2^600, a finite number whose square is not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = (
            doubling(num_agents)
            .run(alpha=1.0, K=3, T=num_steps, fixed_point=[0.0], engine=engine, record=20)
            .data
        )
    assert_finite_or_told(data, caught)
    assert int(data.diverged_at[0]) == (466 if num_steps >= 466 else -1)


@EACH_ENGINE
def test_a_value_error_that_overflows_alone_ends_its_seed(engine, assert_same_bits) -> None:
    """With features of 1e90, parameters of 1e90 have finite squares and values of 1e180, whose
    squares overflow."""
    mdp = fg.MDP([[[1.0]]], [[1.0]], 0.5)
    problem = fg.Federation(mdp, num_agents=2, target_policy=[[1.0]], features=[[1e90]])
    settings = {
        "step_size": 1e-90,
        "sync_period": 2,
        "seeds": [4, 5],
        "engine": engine,
        "fixed_point": [2e-90],
        "record": 1,
    }

    def growing(num_steps, **more):
        return fg.run(problem, fg.OnPolicyTD(), num_steps=num_steps, **settings, **more)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = growing(4)
    assert_finite_or_told(history.data, caught)
    assert history.data.diverged_at.values.tolist() == [2, 2]
    message = next(
        str(warning.message) for warning in caught if warning.category is fg.DivergenceWarning
    )
    assert "Seed 4 diverged at time 2, in its errors" in message
    assert np.isnan(history.checkpoint.params).all()
    assert_same_bits(quietly(lambda: growing(4, resume_from=quietly(lambda: growing(2)))), history)


def test_a_fixed_point_whose_square_overflows_is_refused() -> None:
    noise = fg.MarkovNoise([[1.0]], num_agents=1)
    with pytest.raises(fg.ProblemError, match=r"fixed point has an entry of size 1e\+150"):
        fg.run(
            noise, fg.LinearSA([[[-1e-50]]], [[1e100]]), step_size=0.1, sync_period=1, num_steps=5
        )


# --- No fixed point to diverge from ---------------------------------------------------------------


def average_unstable() -> tuple[fg.Federation, fg.OffPolicyLinearTD, dict]:
    arrays = dict(np.load(pathlib.Path(__file__).parents[1] / "fixtures" / "average_unstable.npz"))
    mdp = fg.MDP(arrays["P"], arrays["R"], float(arrays["gamma"]))
    policies = {
        "behavior_policies": arrays["behaviours"],
        "target_policy": arrays["pi"],
        "features": arrays["Phi"],
    }
    return (
        fg.Federation(mdp, num_agents=4, **policies),
        fg.OffPolicyLinearTD(int(arrays["n"])),
        arrays,
    )


@EACH_ENGINE
def test_an_unstable_average_needs_a_fixed_point_and_runs_with_one(engine) -> None:
    problem, algorithm, arrays = average_unstable()
    settings = {
        "step_size": 0.05,
        "sync_period": 3,
        "num_steps": 20,
        "record": 1,
        "record_params": True,
        "engine": engine,
    }
    with pytest.raises(fg.ProblemError, match=r"unstable.*fixed_point="):
        fg.run(problem, algorithm, **settings)
    point = np.arange(1.0, 1 + problem.features.shape[1])
    data = fg.run(problem, algorithm, **settings, fixed_point=point).data
    paths = [fg.sample_path(problem, algorithm, seed=0, agent=i, num_steps=20) for i in range(4)]
    kinds = range(len(arrays["behaviours"]))
    trace = pseudocode.algorithm_5(
        [path.states for path in paths],
        [path.actions for path in paths],
        rewards=[arrays["R"]] * len(kinds),
        gamma=float(arrays["gamma"]),
        features=arrays["Phi"],
        target=arrays["pi"],
        behavior=arrays["behaviours"],
        kinds=problem.assignment,
        n=algorithm.horizon,
        alpha=0.05,
        K=3,
        T=20,
    )
    np.testing.assert_allclose(data.average_params[0], trace.average, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        data.squared_error[0], ((trace.average - point) ** 2).sum(axis=1), rtol=1e-12
    )


def test_linear_sa_that_runs_away_needs_a_fixed_point() -> None:
    with pytest.raises(fg.ProblemError, match=r"unstable.*fixed_point="):
        bursts().run(alpha=1.0, K=4, T=5)


def test_features_that_overflow_are_told_as_a_divergence_of_the_right_seed() -> None:
    """Row rules: the scale may be harmless where its product with the features is not."""
    mdp = fg.MDP([[[1.0]]], [[1.0]], 0.5)
    problem = fg.Federation(mdp, num_agents=2, target_policy=[[1.0]], features=[[1e60]])
    settings = {
        "step_size": 1e15,
        "sync_period": 2,
        "num_steps": 9,
        "record": 1,
        "record_params": True,
    }
    for engine in ENGINES:
        with pytest.warns(fg.DivergenceWarning, match="Seed 8 diverged at time 2"):
            data = fg.run(
                problem, fg.OnPolicyTD(), **settings, seeds=[8], fixed_point=[2e-60], engine=engine
            ).data
        assert int(data.diverged_at[0]) == 2
        assert np.isfinite(data.average_params[0, 1])
