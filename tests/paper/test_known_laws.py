"""Runs against laws that are known exactly: closed forms and the golden expectations of
`golden.py`.

Seeds are fixed, so each test is deterministic; means over them may be off by 4 standard errors.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fegsam as fg
from helpers import golden

SEEDS = range(10_000)
ONE_THREAD = fg.engines.Cpu(
    threads=1
)  # a run of a few steps is all overhead: threads would wait for each other
ALPHA = 0.1
X0 = 3.0
COIN = 2.0  # the noise is +2 or -2
COIN_TIMES = [0, 1, 2, 10]
COIN_SQUARES = {
    1: [9.0, 7.33, 5.9773, 1.2791211219276353],
    5: [9.0, 7.298, 5.91938, 1.131176137437626],
}
FLIP_SQUARES = {1: 0.5550239234449761, 5: 0.1110047846889952}


def averaging(values) -> fg.LinearSA:
    """x += alpha * (X - x), where the noise state y means X = values[y]."""
    return fg.LinearSA(np.full((1, len(values), 1, 1), -1.0), np.reshape(values, (1, -1, 1)))


# --- Scalar laws ----------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 4])
@pytest.mark.parametrize("num_agents", [1, 5])
def test_average_of_iid_noise_has_its_closed_form_for_every_sync_period(
    num_agents, K, assert_mean
) -> None:
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=num_agents)
    settings = {
        "step_size": ALPHA,
        "sync_period": K,
        "num_steps": 10,
        "seeds": SEEDS,
        "record": COIN_TIMES,
    }
    history = fg.run(
        noise, averaging([COIN, -COIN]), **settings, initial_params=[X0], engine=ONE_THREAD
    )
    assert_mean(history.data.squared_error, COIN_SQUARES[num_agents])


def test_the_lower_bound_example_of_the_paper_at_ten_times(assert_mean) -> None:
    law, values = np.array([0.5, 0.3, 0.2]), np.array([-2.0, 1.0, 3.5])
    assert law @ values == pytest.approx(0)
    variance = law @ values**2
    noise = fg.MarkovNoise(np.tile(law, (3, 1)), num_agents=1, initial_distribution=law)
    times = np.array([1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
    settings = {
        "step_size": ALPHA,
        "sync_period": 1,
        "num_steps": 89,
        "seeds": SEEDS,
        "record": times,
    }
    history = fg.run(noise, averaging(values), **settings, initial_params=[X0], engine=ONE_THREAD)
    floor = ALPHA * variance / (2 - ALPHA)
    assert_mean(history.data.squared_error, (X0**2 - floor) * (1 - ALPHA) ** (2 * times) + floor)


@pytest.mark.parametrize(("num_agents", "K"), [(1, 1), (5, 1), (5, 7)])
def test_additive_markov_noise_reaches_its_stationary_error(num_agents, K, assert_mean) -> None:
    """The noise is never drawn afresh nor restarted: i.i.d. noise would give 0.21 where 0.56 is
    right."""
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=num_agents)
    settings = {
        "step_size": ALPHA,
        "sync_period": K,
        "num_steps": 200,
        "seeds": SEEDS,
        "record": [150, 200],
    }
    history = fg.run(noise, averaging([COIN, -COIN]), **settings)
    assert_mean(history.data.squared_error, FLIP_SQUARES[num_agents])


def test_error_halves_when_agents_double(assert_mean) -> None:
    errors = {}
    for num_agents in (4, 8):
        noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=num_agents)
        settings = {
            "step_size": ALPHA,
            "sync_period": 10,
            "num_steps": 150,
            "seeds": SEEDS,
            "record": [150],
        }
        errors[num_agents] = fg.run(
            noise, averaging([COIN, -COIN]), **settings
        ).data.squared_error.values
    assert_mean(errors[4] - 2 * errors[8], 0.0)
    assert_mean(errors[8], FLIP_SQUARES[1] / 8)


# --- The golden problem ---------------------------------------------------------------------------


def golden_run(algorithm, T: int, problem=None, seeds=SEEDS, **options):
    """Step size 1/2, sync period 2, every time recorded."""
    problem = golden.federation() if problem is None else problem
    settings = {
        "step_size": 0.5,
        "sync_period": 2,
        "num_steps": T,
        "record": 1,
        "record_params": True,
    }
    return fg.run(problem, algorithm, **settings, seeds=seeds, engine=ONE_THREAD, **options).data


def test_linear_td_has_its_golden_law(assert_mean) -> None:
    data = golden_run(fg.OffPolicyLinearTD(), T=4)
    average = data.average_params[:, 1:, 0].values
    assert_mean(average, golden.ALG5_N1_MEAN)
    assert_mean(average**2, golden.ALG5_N1_SQUARE)
    assert_mean(data.sync_error[:, 1:], golden.ALG5_N1_SYNC_ERROR)


def test_linear_td_with_two_step_windows_has_its_golden_law(assert_mean) -> None:
    average = golden_run(fg.OffPolicyLinearTD(horizon=2), T=3).average_params[:, 1:, 0].values
    assert_mean(average, golden.ALG5_N2_MEAN)
    assert_mean(average**2, golden.ALG5_N2_SQUARE)


@pytest.mark.parametrize(("horizon", "law"), [(1, golden.ALG5_N1_MEAN), (2, golden.ALG5_N2_MEAN)])
def test_golden_law_does_not_change_when_the_agents_change_places(
    horizon, law, assert_mean
) -> None:
    swapped = golden.federation(assignment=[1, 0])
    data = golden_run(fg.OffPolicyLinearTD(horizon), T=len(law), problem=swapped)
    assert_mean(data.average_params[:, 1:, 0], law)


@pytest.mark.parametrize(
    ("num_agents", "squares"),
    [(1, golden.ONE_AGENT_SQUARE), (2, golden.TWO_LIKE_AGENTS_SQUARE)],
    ids=["one", "two"],
)
def test_like_agents_draw_from_streams_of_their_own(num_agents, squares, assert_mean) -> None:
    """Two agents on one stream would have the squares of one."""
    like = golden.federation([golden.B1], num_agents=num_agents)
    average = golden_run(fg.OffPolicyLinearTD(), T=4, problem=like).average_params[:, 1:, 0].values
    assert_mean(average**2, squares)


@pytest.mark.parametrize(
    ("horizon", "T", "law"), [(1, 3, golden.TABULAR_N1_T3), (2, 2, golden.TABULAR_N2_T2)]
)
def test_tabular_td_has_its_golden_law(horizon, T, law, assert_mean) -> None:
    data = golden_run(fg.OffPolicyTabularTD(horizon), T).isel(time=-1)
    mean, square, square_sup = law
    assert_mean(data.average_params, mean)
    assert_mean(data.squared_error_2, square)
    assert_mean(data.squared_error, square_sup)


def test_q_learning_has_its_golden_law(assert_mean) -> None:
    data = golden_run(fg.QLearning(), T=3)
    assert_mean(data.average_params[:, -1], golden.Q_T3_MEAN)
    for time, (square, square_sup) in ((2, golden.Q_T2_ERRORS), (3, golden.Q_T3_ERRORS)):
        assert_mean(data.squared_error_2.sel(time=time), square)
        assert_mean(data.squared_error.sel(time=time), square_sup)


@pytest.mark.parametrize(("horizon", "limit"), [(1, 232 / 295), (2, 10584 / 13493)])
def test_mean_of_iid_windows_follows_the_mean_field_exactly(horizon, limit, assert_mean) -> None:
    """E v_t = v* (1 - (1 - alpha A)^t) with A = Phi' D (I - gamma^n P^n) Phi, for any number of
    like agents."""
    chain = np.einsum("sa,sat->st", golden.TARGET, golden.TRANSITIONS)
    ahead = np.linalg.matrix_power(golden.DISCOUNT * chain, horizon)
    phi = golden.FEATURES[:, 0]
    slope = phi * golden.STATIONARY_B1 @ (np.eye(2) - ahead) @ phi
    like = golden.federation([golden.B1], num_agents=3)
    data = golden_run(fg.OffPolicyLinearTD(horizon), T=6, problem=like, sampling="iid")
    assert_mean(data.average_params[:, :, 0], limit * (1 - (1 - 0.5 * slope) ** data.time.values))


# --- The random output time -----------------------------------------------------------------------

OUTPUT_LAW = np.array([1, 2, 4, 8]) / 15  # T = 4, c = 1/2


def test_output_times_are_drawn_from_their_law() -> None:
    times = golden_run(fg.OffPolicyLinearTD(), T=4, output_decay=0.5).output_time.values
    counts = np.bincount(times, minlength=4)
    assert len(counts) == 4
    assert stats.chisquare(counts, OUTPUT_LAW * len(SEEDS)).pvalue > 1e-4


def test_output_law_is_the_stated_one() -> None:
    law = fg.theory.output_time_distribution(4, 0.5)
    np.testing.assert_allclose(law.probabilities(), OUTPUT_LAW, rtol=1e-14)


@pytest.mark.parametrize(
    "algorithm",
    [fg.OffPolicyLinearTD(horizon=2), fg.OffPolicyTabularTD(), fg.QLearning()],
    ids=repr,
)
def test_expected_output_is_the_weighted_average_of_the_recorded_means(
    algorithm, assert_mean
) -> None:
    """The output time is independent of the noise."""
    data = golden_run(algorithm, T=4, output_decay=0.5)
    weighted = np.einsum("t,std->sd", OUTPUT_LAW, data.average_params[:, :4].values)
    assert_mean(data.output_params.values - weighted, 0.0)


def test_output_is_the_average_before_the_update_of_its_time() -> None:
    data = golden_run(fg.OffPolicyLinearTD(), T=4, output_decay=0.5, seeds=range(200))
    for row in range(200):
        at = int(data.output_time[row])
        assert 0 <= at <= 3
        np.testing.assert_array_equal(
            data.output_params[row], data.average_params[row].sel(time=at)
        )


def test_stopping_at_the_output_time_does_not_change_the_output() -> None:
    full = golden_run(fg.OffPolicyLinearTD(), T=20, output_decay=0.9, seeds=range(200))
    stopped = golden_run(
        fg.OffPolicyLinearTD(), T=20, output_decay=0.9, seeds=range(200), stop_at_output=True
    )
    for variable in ("output_time", "output_params", "output_squared_error"):
        np.testing.assert_array_equal(full[variable], stopped[variable], err_msg=variable)


# --- What time means ------------------------------------------------------------------------------


def test_time_t_is_after_t_updates() -> None:
    """One state, one action, no noise: the value after t updates is known."""
    mdp = fg.MDP([[[1.0]]], [[1.0]], 0.5)
    problem = fg.Federation(mdp, num_agents=2, target_policy=[[1.0]], features=[[1.0]])
    for algorithm in (
        fg.OnPolicyTD(),
        fg.OffPolicyTabularTD(),
        fg.QLearning(),
        fg.OffPolicyLinearTD(),
    ):
        history = fg.run(
            problem,
            algorithm,
            step_size=0.2,
            sync_period=3,
            num_steps=7,
            record=1,
            record_params=True,
            output_decay=0.5,
        )
        data = history.data
        np.testing.assert_array_equal(data.time, np.arange(8))
        value = 2 * (1 - 0.9 ** np.arange(8))
        np.testing.assert_allclose(data.average_params[0, :, 0], value, rtol=0, atol=1e-14)
        np.testing.assert_allclose(data.squared_error[0], (2 - value) ** 2, rtol=1e-12)
        np.testing.assert_allclose(data.final_params[0], value[7:], rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            data.output_params[0, 0], value[int(data.output_time[0])], rtol=0, atol=1e-14
        )
        assert history.settings.communications == 2
