"""Data against exact answers: both meanings of an end, cut episodes, constant rewards."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import fegsam as fg
from helpers.logs import Episode, observation_log, write


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["stop", "restart"])
def test_frozen_lake_live_tends_to_the_exact_values_of_a_policy(ends) -> None:
    """TD of the uniform policy: exact for a table, whatever the step size, but for its bias."""
    go = fg.policies.uniform(16, 4)
    mdp = fg.examples.from_gymnasium("FrozenLake-v1", discount=0.9, ends=ends)
    exact = fg.policy_value(mdp, fg.policies.uniform(mdp.num_states, 4))[:16]
    lake = fg.LiveSource("FrozenLake-v1", go, ends=ends)
    data = fg.DataFederation(lake, discount=0.9, num_agents=4, target_policy=go, held_out=0)
    history = fg.run(
        data,
        fg.OffPolicyTabularTD(2),
        step_size=0.02,
        sync_period=50,
        num_steps=6000,
        seeds=range(8),
        tail=0.5,
    )
    tails = history.data.tail_params.values
    error = tails.std(axis=0, ddof=1) / np.sqrt(len(tails))
    visited = error > 0
    apart = abs(tails.mean(axis=0) - exact)[visited] / (error[visited] + 2e-3)
    assert apart.max() < 4.0
    other = fg.examples.from_gymnasium(
        "FrozenLake-v1", discount=0.9, ends="restart" if ends == "stop" else "stop"
    )
    wrong = fg.policy_value(other, fg.policies.uniform(other.num_states, 4))[:16]
    assert (abs(tails.mean(axis=0) - wrong)[visited] / (error[visited] + 2e-3)).max() > 8.0


def _two_rows(folder, length: int, episodes: int):
    """s1 -> s2 -> s2 ..., reward 0, cut after `length` transitions."""
    log = [
        Episode(e, [0] + [1] * length, [0] * length, [0.0] * length, [1.0] * length, False)
        for e in range(episodes)
    ]
    return fg.LogSource(write(folder / f"{length}.parquet", observation_log(log)))


@pytest.mark.parametrize(("length", "grows"), [(2, True), (4, False)])
def test_cut_episodes_make_linear_td_diverge_below_the_threshold(tmp_path, length, grows) -> None:
    """It is stable iff H > 1 + (2 gamma - 1) / (4 (1 - gamma)), which is 3 for gamma = 0.9."""
    gamma = 0.9
    assert grows == (length < 1 + (2 * gamma - 1) / (4 * (1 - gamma)))
    data = fg.DataFederation(
        _two_rows(tmp_path, length, 600),
        discount=gamma,
        num_states=2,
        num_actions=1,
        features=fg.features.table([[1.0], [2.0]]),
        held_out=0,
    )
    expected = pytest.warns(fg.data.TruncationWarning) if grows else contextlib.nullcontext()
    with expected:
        history = fg.run(
            data,
            fg.OnPolicyTD(),
            step_size=0.01,
            sync_period=1,
            num_steps=length * 600,
            initial_params=[1.0],
            record=length,
            record_params=True,
            fixed_point=[0.0],
            engine="reference",
        )
    ends = abs(history.data.average_params.values[0, :, 0])
    assert (ends[-1] > ends[0]) == grows


def test_a_constant_reward_that_is_only_cut_is_worth_r_over_one_minus_gamma(tmp_path) -> None:
    rng, gamma = np.random.default_rng(0), 0.8
    log = []
    for e in range(400):
        length = int(rng.integers(1, 6))
        seen = rng.integers(0, 3, length + 1).tolist()
        log.append(Episode(e, seen, [0] * length, [2.0] * length, [1.0] * length, False))
    source = fg.LogSource(write(tmp_path / "log.parquet", observation_log(log)), passes=8)
    data = fg.DataFederation(
        source,
        discount=gamma,
        num_states=3,
        num_actions=1,
        target_policy=[[1.0]] * 3,
        held_out=0,
    )
    history = fg.run(data, fg.OffPolicyTabularTD(3), step_size=0.1, sync_period=1, num_steps=8000)
    np.testing.assert_allclose(history.data.final_params.values[0], 2.0 / (1 - gamma), 1e-6)
