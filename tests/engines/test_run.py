"""What `run` takes and returns: times, parameters, outputs, seeds, engines, threads, terminals,
Ctrl-C."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import signal
import time
import warnings

import numpy as np
import pytest

import fegsam as fg
from cases import KERNELS, NOISE_DIM, case, tanh_rule
from helpers import golden, processes

EACH_ENGINE = pytest.mark.parametrize("engine", ["reference", "cpu"])
ALPHA, X0 = 0.1, 5.0


def pulled(num_agents: int = 2, **settings):
    """Half the agents are pulled to 3, half to 1, without noise: every number of the run is known.

    With equal numbers of both, the average's distance from 2 shrinks by 1 - alpha a step whatever K
    is, and t steps after a sync each agent is 1 - (1 - alpha)^t away from the average.
    """
    noise = fg.MarkovNoise(np.ones((2, 1, 1)), num_agents=num_agents)
    algorithm = fg.LinearSA(-np.ones((2, 1, 1, 1)), [[[3.0]], [[1.0]]])
    options = {
        "step_size": ALPHA,
        "sync_period": 4,
        "num_steps": 10,
        "record_params": True,
        "initial_params": [X0],
    }
    return fg.run(noise, algorithm, **(options | settings))


def average_at(times) -> np.ndarray:
    return 2 + (X0 - 2) * (1 - ALPHA) ** np.asarray(times)


# --- Recorded times -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "times"),
    [
        (1, range(11)),
        (4, [0, 4, 8, 10]),
        (5, [0, 5, 10]),
        (10, [0, 10]),
        (99, [0, 10]),
        (np.int64(4), [0, 4, 8, 10]),
        ([3], [3]),
        ([0], [0]),
        ([10], [10]),
        ([7, 2, 7, 0, 2], [0, 2, 7]),
        (range(2, 9, 3), [2, 5, 8]),
        (np.array([9, 1], np.uint8), [1, 9]),
        (None, range(11)),
    ],
)
@EACH_ENGINE
def test_record_is_a_period_or_a_set_of_times(record, times, engine) -> None:
    history = pulled(record=record, engine=engine)
    assert history.data.time.values.tolist() == list(times)
    assert history.settings.record.tolist() == list(times)
    np.testing.assert_allclose(history.data.average_params[0, :, 0], average_at(times), rtol=1e-13)
    np.testing.assert_allclose(history.data.final_params[0], average_at([10]), rtol=1e-13)


@pytest.mark.parametrize("num_steps", [201, 1000, 12_345])
def test_default_record_is_some_200_times_evenly_spread_from_the_first_to_the_last(
    num_steps,
) -> None:
    times = pulled(num_steps=num_steps).data.time.values
    assert times[0] == 0
    assert times[-1] == num_steps
    assert 150 <= len(times) <= 250
    assert np.ptp(np.diff(times)) <= 1


@EACH_ENGINE
def test_averages_are_kept_only_when_asked_for(engine) -> None:
    data = pulled(record=5, record_params=False, engine=engine).data
    assert "average_params" not in data
    np.testing.assert_allclose(data.squared_error[0], (average_at([0, 5, 10]) - 2) ** 2, rtol=1e-12)
    assert pulled(record=5, engine=engine).data.average_params.dims == ("seed", "time", "param")


@EACH_ENGINE
def test_the_first_row_is_the_initial_parameters_and_the_last_the_final_ones(engine) -> None:
    some = case("alg3")
    data = some.run(alpha=ALPHA, K=3, T=7, seeds=(4, 5), engine=engine).data
    for seed in range(2):
        np.testing.assert_array_equal(data.average_params[seed, 0], some.start)
        np.testing.assert_array_equal(data.average_params[seed, -1], data.final_params[seed])
    assert np.all(data.sync_error[:, 0] == 0)


# --- What is measured -----------------------------------------------------------------------------


@pytest.mark.parametrize("num_agents", [2, 10, 130])
@pytest.mark.parametrize("K", [1, 4, 7, 100])
@EACH_ENGINE
def test_sync_error_is_nothing_at_a_sync_and_has_its_closed_form_between(
    num_agents, K, engine
) -> None:
    data = pulled(num_agents, sync_period=K, num_steps=15, record=1, engine=engine).data
    apart = 1 - (1 - ALPHA) ** (np.arange(16) % K)
    np.testing.assert_allclose(data.sync_error[0], apart**2, rtol=1e-12, atol=1e-15)
    assert np.all(data.sync_error[0, ::K] == 0)
    np.testing.assert_allclose(data.average_params[0, :, 0], average_at(range(16)), rtol=1e-12)


@EACH_ENGINE
def test_errors_are_measured_against_the_fixed_point_that_is_given(engine) -> None:
    data = pulled(record=1, fixed_point=[-7.0], engine=engine, output_decay=0.9).data
    np.testing.assert_allclose(data.squared_error[0], (average_at(range(11)) + 7) ** 2, rtol=1e-12)
    np.testing.assert_allclose(
        data.output_squared_error, (average_at(data.output_time) + 7) ** 2, rtol=1e-12
    )


@pytest.mark.parametrize("norm", [2, np.inf])
@EACH_ENGINE
def test_own_rules_are_measured_in_their_own_norm_and_always_in_the_2_norm(norm, engine) -> None:
    noise = fg.MarkovNoise(KERNELS, num_agents=5)
    algorithm = fg.StochasticApproximation(tanh_rule, NOISE_DIM, norm=norm)
    point = np.array([1.0, -2.0, 0.5])
    settings = {
        "step_size": ALPHA,
        "sync_period": 3,
        "num_steps": 10,
        "record": 1,
        "record_params": True,
    }
    data = fg.run(noise, algorithm, **settings, fixed_point=point, engine=engine).data
    gap = data.average_params.values - point
    np.testing.assert_allclose(data.squared_error_2, (gap**2).sum(axis=2), rtol=1e-12)
    np.testing.assert_allclose(
        data.squared_error, np.linalg.norm(gap, ord=norm, axis=2) ** 2, rtol=1e-12
    )
    output = data.output_params.values - point
    np.testing.assert_allclose(
        data.output_squared_error, np.linalg.norm(output, ord=norm, axis=1) ** 2, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("algorithm", "law"),
    [
        (fg.OnPolicyTD(), golden.STATIONARY_TARGET),
        (fg.OffPolicyTabularTD(2), (2 * golden.STATIONARY_B1 + golden.STATIONARY_B2) / 3),
        (fg.OffPolicyLinearTD(2), (2 * golden.STATIONARY_B1 + golden.STATIONARY_B2) / 3),
        (
            fg.OffPolicyLinearTD(preconditioned=True),
            (2 * golden.STATIONARY_B1 + golden.STATIONARY_B2) / 3,
        ),
    ],
    ids=repr,
)
@EACH_ENGINE
def test_value_error_is_the_distance_from_the_golden_value_under_the_golden_laws(
    algorithm, law, engine
) -> None:
    problem = golden.federation(num_agents=3)  # of the first policy two agents
    settings = {
        "step_size": 0.1,
        "sync_period": 2,
        "num_steps": 12,
        "record": 1,
        "record_params": True,
    }
    data = fg.run(problem, algorithm, **settings, engine=engine).data
    phi = np.eye(2) if isinstance(algorithm, fg.OffPolicyTabularTD) else golden.FEATURES
    learned = data.average_params[0].values @ phi.T
    np.testing.assert_allclose(data.value_error[0], (learned - golden.VALUE) ** 2 @ law, rtol=1e-12)


def test_value_error_is_there_where_one_policy_is_evaluated_in_one_environment() -> None:
    for name, differ, there in [
        ("alg1-linear", "policies", False),
        ("alg2", "policies", True),
        ("alg2", "mdps", False),
        ("alg3", "policies", True),
        ("alg3", "both", False),
        ("alg4", "policies", False),
        ("alg5", "policies", True),
        ("alg5", "mdps", False),
    ]:
        data = case(name, differ=differ).run(alpha=ALPHA, K=2, T=3, engine="reference").data
        assert ("value_error" in data) == there, (name, differ)


@EACH_ENGINE
def test_small_errors_keep_their_digits(engine) -> None:
    """Next to the fixed point an error of 1e-16 must not drown in the rounding of the value
    function."""
    problem = golden.federation(num_agents=2)
    truth = fg.fixed_point(problem, fg.OffPolicyTabularTD())
    step = np.array([1e-8, -2e-8])
    settings = {
        "step_size": 0.1,
        "sync_period": 2,
        "num_steps": 1,
        "record": [0],
        "initial_params": truth + step,
    }
    data = fg.run(problem, fg.OffPolicyTabularTD(), **settings, engine=engine).data
    law = (golden.STATIONARY_B1 + golden.STATIONARY_B2) / 2
    np.testing.assert_allclose(data.squared_error_2, 5e-16, rtol=1e-6)
    np.testing.assert_allclose(data.squared_error, 4e-16, rtol=1e-6)
    np.testing.assert_allclose(data.value_error, law @ step**2, rtol=1e-6)


# --- The output time ------------------------------------------------------------------------------


def test_default_output_decay_is_the_theorems_and_kept_in_the_settings() -> None:
    """One state for ever: the contraction is 3/4, the drift 1/4 and c = 1 - alpha / 8."""
    problem = fg.Federation(fg.MDP([[[1.0]]], [[1.0]], 0.75), num_agents=2, target_policy=[[1.0]])
    settings = {"step_size": 0.5, "sync_period": 1, "num_steps": 10, "engine": "reference"}
    assert fg.run(problem, fg.OffPolicyTabularTD(), **settings).settings.output_decay == 0.9375
    chosen = fg.run(problem, fg.OffPolicyTabularTD(), **settings, output_decay=0.25)
    assert chosen.settings.output_decay == 0.25


def test_where_no_norm_is_found_the_output_decay_is_one_less_a_step() -> None:
    noise = fg.MarkovNoise([[1.0]], num_agents=1)
    settings = {
        "step_size": 0.5,
        "sync_period": 1,
        "num_steps": 10,
        "engine": "reference",
        "fixed_point": [0.0],
    }
    assert fg.run(noise, fg.LinearSA([[[0.0]]], [[0.0]]), **settings).settings.output_decay == 0.9


@EACH_ENGINE
def test_output_time_depends_on_seed_decay_and_length_alone(engine) -> None:
    settings = {"seeds": range(40), "output_decay": 0.9, "engine": engine, "num_steps": 20}
    times = pulled(**settings).data.output_time.values
    assert 0 <= times.min() < 10 < times.max() <= 19
    for change in (
        {"sync_period": 1},
        {"step_size": 0.3},
        {"num_agents": 6},
        {"sampling": "iid"},
        {"record": [3]},
    ):
        np.testing.assert_array_equal(pulled(**(settings | change)).data.output_time, times)
    assert (pulled(**(settings | {"seeds": range(40, 80)})).data.output_time.values != times).any()
    np.testing.assert_array_equal(
        pulled(**(settings | {"output_decay": 1e-12})).data.output_time, 19
    )


@pytest.mark.parametrize("K", [1, 4, 30])
@EACH_ENGINE
def test_stopping_at_the_output_ends_each_seed_there(K, engine) -> None:
    settings = {
        "alpha": ALPHA,
        "K": K,
        "T": 12,
        "seeds": range(30),
        "output_decay": 0.93,
        "engine": engine,
    }
    some = case("alg3", n=2)
    whole = some.run(**settings).data
    history = some.run(**settings, stop_at_output=True)
    stopped, ends = history.data, whole.output_time.values
    assert ends.min() == 0  # a seed that ends before it begins
    assert 6 < ends.max() < 12
    np.testing.assert_array_equal(stopped.output_time, ends)
    np.testing.assert_array_equal(stopped.final_params, whole.output_params)
    np.testing.assert_array_equal(stopped.output_params, whole.output_params)
    after = stopped.time.values > ends[:, None]
    for name in ("average_params", "squared_error", "squared_error_2", "value_error", "sync_error"):
        np.testing.assert_allclose(
            stopped[name].values[~after], whole[name].values[~after], rtol=1e-12, atol=1e-13
        )
        assert np.isnan(stopped[name].values[after]).all()
    assert np.all(stopped.diverged_at == -1)
    assert history.checkpoint is None
    assert history.settings.stop_at_output


# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("K", "T", "times"), [(1, 10, 10), (3, 10, 3), (5, 10, 2), (10, 10, 1), (11, 10, 0)]
)
def test_communications_are_the_whole_periods_of_the_run(K, T, times) -> None:
    assert pulled(sync_period=K, num_steps=T).settings.communications == times


def test_agents_that_never_synchronise_are_warned_of_and_one_agent_is_not() -> None:
    settings = {"step_size": 0.1, "num_steps": 10, "engine": "reference"}
    with pytest.warns(UserWarning, match="sync_period is 11 and num_steps is 10.*at most 10"):
        fg.run(golden.federation(), fg.QLearning(), sync_period=11, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.run(golden.federation(), fg.QLearning(), sync_period=10, **settings)
        fg.run(golden.federation([golden.B1]), fg.QLearning(), sync_period=11, **settings)


def test_settings_say_what_was_asked_for_and_are_frozen() -> None:
    problem = golden.federation(num_agents=7)
    history = fg.run(
        problem,
        fg.OffPolicyLinearTD(horizon=3, preconditioned=True),
        step_size=0.25,
        sync_period=6,
        num_steps=20,
        seeds=iter([2**64 - 1, 4]),
        record=10,
        engine=fg.engines.Cpu(threads=1),
        sampling="iid",
        output_decay=0.5,
    )
    settings = history.settings
    assert settings.algorithm == "OffPolicyLinearTD(horizon=3, preconditioned=True)"
    assert (settings.num_agents, settings.step_size, settings.sync_period, settings.num_steps) == (
        7,
        0.25,
        6,
        20,
    )
    assert settings.seeds == (2**64 - 1, 4)
    assert (settings.engine, settings.sampling, settings.output_decay) == ("cpu", "iid", 0.5)
    assert not settings.record_params
    assert not settings.stop_at_output
    assert settings.version == importlib.metadata.version("fegsam")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.step_size = 1.0


def test_independent_windows_have_the_law_of_independent_noise(assert_mean) -> None:
    """A chain that changes its state every 40 steps on average; drawn independently at each step,
    its +-2 is a fair coin."""
    sticky = fg.MarkovNoise([[0.975, 0.025], [0.025, 0.975]], num_agents=3)
    coin = fg.LinearSA(-np.ones((2, 1, 1)), [[2.0], [-2.0]])
    times = np.array([1, 5, 30])
    settings = {
        "step_size": 0.1,
        "sync_period": 5,
        "num_steps": 30,
        "record": times,
        "seeds": range(4000),
    }
    history = fg.run(sticky, coin, **settings, sampling="iid", initial_params=[1.0])
    floor = 0.1 * 4 / (2 - 0.1) / 3
    assert_mean(history.data.squared_error, (1 - floor) * 0.9 ** (2 * times) + floor)


# --- Engines of one's own -------------------------------------------------------------------------


def test_an_engine_of_ones_own_gets_plan_and_settings_and_its_history_is_the_result() -> None:
    seen = []

    def mine(job):
        seen.append(job)
        return fg.engines.Reference()(job)

    history = pulled(engine=mine, record=1, num_agents=4)
    (job,) = seen
    settings = job.settings
    assert history.settings is settings
    assert settings.engine == "mine"
    assert (job.form, job.dimension, job.num_agents, job.window) == ("dense", 1, 4, 0)
    np.testing.assert_allclose(
        history.data.average_params[0, :, 0], average_at(range(11)), rtol=1e-13
    )


def test_an_engine_of_the_former_form_still_runs_and_is_told_the_new_one() -> None:
    def mine(plan, settings):
        with pytest.warns(DeprecationWarning, match=r"call engine\(job\)"):
            return fg.engines.Reference()(plan, settings)

    with pytest.warns(DeprecationWarning, match=r"define it as engine\(job\)"):
        history = pulled(engine=mine)
    assert history.settings.engine == "mine"
    np.testing.assert_array_equal(
        history.data.final_params, pulled(engine="reference").data.final_params
    )


def test_an_engine_object_is_called_by_its_name() -> None:
    class Mine:
        name = "my machine"

        def __call__(self, job):
            return fg.engines.Reference()(job)

    assert pulled(engine=Mine()).settings.engine == "my machine"


@dataclasses.dataclass(frozen=True)
class MeanReward:
    """An algorithm that the library does not know: the mean reward of each state."""

    form, norm, window = "cell", "2", 1

    @staticmethod
    def rule(params, path, t, tables):
        s = path.states[t]
        return s, tables.rewards[path.mdp, s * tables.num_actions + path.actions[t]] - params[s]

    def check(self, problem) -> None:
        """Any federation will do."""

    def dimension(self, problem) -> int:
        return problem.num_states

    def policies(self, problem):
        return problem.behavior_policies

    def tables(self, problem):
        return fg.QLearning().tables(problem)


def test_an_algorithm_of_ones_own_runs_where_its_fixed_point_is_given(assert_mean) -> None:
    problem = golden.federation([golden.B1], num_agents=2)
    settings = {
        "step_size": 0.1,
        "sync_period": 5,
        "num_steps": 200,
        "seeds": range(20),
        "engine": "reference",
    }
    rewards = (golden.B1 * golden.REWARDS).sum(axis=1)
    data = fg.run(problem, MeanReward(), **settings, fixed_point=rewards).data
    assert_mean(data.final_params, rewards, allowance=1e-6)


# --- Seeds ----------------------------------------------------------------------------------------


@EACH_ENGINE
def test_seeds_keep_their_order_and_their_runs_whatever_stands_beside_them(engine) -> None:
    some = case("alg5", n=2)
    seeds = (7, 2**64 - 1, 0, 2**63, 3)
    settings = {"alpha": ALPHA, "K": 3, "T": 10, "engine": engine}
    data = some.run(**settings, seeds=seeds).data
    assert data.seed.dtype == np.uint64
    assert [int(seed) for seed in data.seed.values] == list(seeds)
    other = some.run(**settings, seeds=seeds[::-1]).data
    for name in data.data_vars:
        np.testing.assert_array_equal(
            other[name].values[::-1], data[name].values, err_msg=str(name)
        )
    for row, seed in enumerate(seeds):
        alone = some.run(**settings, seeds=[seed]).data
        for name in data.data_vars:
            np.testing.assert_array_equal(
                alone[name].values[0], data[name].values[row], err_msg=str(name)
            )
    assert len({tuple(row) for row in data.final_params.values}) == len(seeds)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_thousands_of_seeds_go_through_few_threads(threads) -> None:
    some = case("alg4", num_agents=2)
    seeds = range(10**6, 10**6 + 3000)
    data = some.run(alpha=ALPHA, K=2, T=6, seeds=seeds, engine=fg.engines.Cpu(threads=threads)).data
    np.testing.assert_array_equal(data.seed, np.array(seeds, np.uint64))
    for row in (0, 1, 1499, 2999):
        trace = some.trace(seeds[row], alpha=ALPHA, K=2, T=6)
        np.testing.assert_allclose(data.average_params[row], trace.average, rtol=0, atol=1e-12)


def test_one_step_is_a_run() -> None:
    data = pulled(num_steps=1, sync_period=1, record=1, seeds=range(5)).data
    np.testing.assert_allclose(
        data.average_params[:, :, 0], np.tile(average_at([0, 1]), (5, 1)), rtol=1e-14
    )
    np.testing.assert_array_equal(data.output_time, 0)


# --- Threads, terminals and Ctrl-C ----------------------------------------------------------------

COUNT_THREADS = """
import threading
import fegsam as fg
from helpers import golden

begun, start = [], threading.Thread.start
threading.Thread.start = lambda self: (begun.append(self), start(self))[1]
settings = dict(step_size=0.1, sync_period=100, num_steps=2000)
fg.run(golden.federation(num_agents=1000), fg.QLearning(), **settings, seeds=range({seeds}))
print(len(begun))
"""


@pytest.mark.parametrize("seeds", [1, 12], ids=["agents-shared-out", "seeds-shared-out"])
def test_as_many_threads_work_as_numba_is_told(seeds) -> None:
    code = COUNT_THREADS.format(seeds=seeds)
    one, three = (int(processes.run(code, NUMBA_NUM_THREADS=threads)) for threads in ("1", "3"))
    assert one <= 1
    assert three == one + 2


LONG_RUN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import fegsam as fg
from helpers import golden

problem, algorithm = golden.federation(num_agents={num_agents}), fg.QLearning()
settings = dict(step_size=0.1, seeds=range({seeds}), engine=fg.engines.Cpu(threads={threads}))
fg.run(problem, algorithm, sync_period=5, num_steps=10, **settings)
print("ready", flush=True)
try:
    fg.run(problem, algorithm, sync_period={K}, num_steps=10**10, **settings)
except KeyboardInterrupt:
    short = fg.run(problem, algorithm, sync_period=5, num_steps=10, **settings)
    print("interrupted", short.data.sizes["seed"], flush=True)
"""


def long_run(threads: int, *, num_agents: int = 1000, K: int = 100, seeds: int = 1) -> str:
    return LONG_RUN.format(threads=threads, num_agents=num_agents, K=K, seeds=seeds)


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_long_run_and_nothing_was_shown_to_a_pipe(threads) -> None:
    with processes.started(long_run(threads)) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(3.0)  # beyond the time when a person would see a bar
        process.send_signal(signal.SIGINT)
        out, err = processes.finish(process, timeout=20)
    assert out == "interrupted 1\n"
    assert err == ""


def test_ctrl_c_ends_a_run_within_a_round_of_billions_of_steps() -> None:
    """A sync period as long as the run asks for agents that never average."""
    with processes.started(long_run(2, num_agents=3, K=10**10)) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert processes.finish(process, timeout=20)[0] == "interrupted 1\n"


def test_a_bar_is_shown_on_a_terminal_until_ctrl_c() -> None:
    pytest.importorskip("tqdm")
    with processes.on_terminal(long_run(2, seeds=2)) as terminal:
        terminal.wait_for("agent-steps")
        assert "%|" in terminal.shown
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == "ready\ninterrupted 2\n"


SHORT_RUN = """
import fegsam as fg
from helpers import golden

settings = dict(step_size=0.1, sync_period=5, num_steps=10)
fg.run(golden.federation(), fg.QLearning(), **settings)
"""


def test_no_bar_is_shown_for_a_short_run() -> None:
    with processes.on_terminal(SHORT_RUN) as terminal:
        terminal.finish()
    assert "agent-steps" not in terminal.shown
