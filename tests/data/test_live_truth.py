"""Data against exact answers: both meanings of an end, cut episodes, constant rewards."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import fegsam as fg
from helpers.logs import Episode, observation_log, write

gymnasium = pytest.importorskip("gymnasium")


def _values(ends):
    """(16): the uniform policy's values on the slippery lake."""
    mdp = fg.examples.from_gymnasium("FrozenLake-v1", discount=0.9, ends=ends)
    return fg.policy_value(mdp, fg.policies.uniform(16, 4))


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "other"), [("stop", "restart"), ("restart", "stop")])
def test_the_slippery_lake_tends_to_the_values_of_its_meaning_of_an_end(ends, other) -> None:
    go = fg.policies.uniform(16, 4)
    lake = fg.LiveSource("FrozenLake-v1", go, ends=ends)
    data = fg.DataFederation(lake, discount=0.9, num_agents=2, target_policy=go, held_out=0)
    history = fg.run(
        data,
        fg.OffPolicyTabularTD(2),
        step_size=0.1,
        sync_period=50,
        num_steps=20_000,
        seeds=range(6),
        tail=0.5,
        record=[0, 20_000],
    )
    tails = history.data.tail_params.values
    error = tails.std(axis=0, ddof=1) / np.sqrt(len(tails)) + 1e-6
    assert (abs(tails.mean(axis=0) - _values(ends)) / error).max() < 5.0
    assert (abs(tails.mean(axis=0) - _values(other)) / error).max() > 7.0


@pytest.mark.parametrize("ends", ["stop", "restart"])
def test_the_lake_without_chance_gives_the_exact_optimal_values(ends) -> None:
    options = {"is_slippery": False}
    mdp = fg.examples.from_gymnasium("FrozenLake-v1", discount=0.9, ends=ends, **options)
    go = fg.policies.uniform(16, 4)
    exact = fg.fixed_point(fg.Federation(mdp, go, num_agents=1), fg.QLearning()).reshape(16, 4)
    lake = fg.LiveSource("FrozenLake-v1", go, options=options, ends=ends)
    data = fg.DataFederation(lake, discount=0.9, num_agents=1, held_out=0)
    history = fg.run(data, fg.QLearning(), step_size=0.9, sync_period=1, num_steps=40_000)
    found = history.data.final_params.values[0].reshape(16, 4)
    # Where an end stops, nothing is learned of what would follow it.
    last = [5, 7, 11, 12, 15] if ends == "stop" else []
    kept = np.setdiff1d(np.arange(16), last)
    np.testing.assert_allclose(found[kept], exact[kept], 0, 1e-3)


GAMMA, SEEDS, STEPS = 0.9, 16, 5000


def _best_values(ends) -> np.ndarray:
    """Q* of the slippery lake by value iteration on Gymnasium's own table of outcomes."""
    table = gymnasium.make("FrozenLake-v1").unwrapped.P
    best = np.zeros((16, 4))
    for _ in range(500):
        reached = best.max(axis=1)
        for s, a in np.ndindex(16, 4):
            if table[s][a][0][3] and table[s][a][0][1] == s:  # a hole or the goal
                best[s, a] = GAMMA * reached[0] if ends == "restart" else 0.0
            else:
                best[s, a] = sum(p * (r + GAMMA * reached[to]) for p, to, r, _ in table[s][a])
    return best


def _updates_at(best, lake) -> tuple[np.ndarray, np.ndarray]:
    """The mean over seeds of the sum of all updates at `best`, in standard errors, and which
    cells have updates that vary.

    A step size of 1e-7 leaves the parameters where they are, so that their change is that sum. Its
    terms have mean 0 at Q*, given what came before: no bias is left, however long the run. Where
    nothing varies, the sum itself must be 0.
    """
    size = 1e-7
    data = fg.DataFederation(lake, discount=GAMMA, num_agents=1, held_out=0)
    history = fg.run(
        data,
        fg.QLearning(),
        step_size=size,
        sync_period=1000,
        num_steps=STEPS,
        seeds=range(SEEDS),
        initial_params=best.ravel(),
        record=[0, STEPS],
    )
    sums = (history.data.final_params.values - best.ravel()) / size
    error = sums.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    varies = error > 1e-4
    off = np.where(varies, sums.mean(axis=0) / np.maximum(error, 1e-4), sums.mean(axis=0) / 1e-4)
    return off, varies.reshape(16, 4)


@pytest.mark.parametrize(("ends", "other"), [("stop", "restart"), ("restart", "stop")])
def test_updates_on_the_slippery_lake_are_zero_in_mean_at_the_optimal_values(ends, other) -> None:
    """Both kinds of ends occur: holes and the goal terminate, a limit of 20 steps truncates."""
    best = _best_values(ends)
    mdp = fg.examples.from_gymnasium("FrozenLake-v1", discount=GAMMA, ends=ends)
    solved = fg.fixed_point(
        fg.Federation(mdp, fg.policies.uniform(16, 4), num_agents=1), fg.QLearning()
    )
    np.testing.assert_allclose(solved.reshape(16, 4), best, 0, 1e-9)
    # Half of the actions are the best ones, so that all cells are seen often.
    go = fg.policies.epsilon_greedy(_best_values("stop"), 0.5)
    lake = fg.LiveSource("FrozenLake-v1", go, options={"max_episode_steps": 20}, ends=ends)
    last = np.isin(np.arange(16), [5, 7, 11, 12, 15])
    if ends == "stop":
        best[last] = 7.0  # nobody may look there
    off, varies = _updates_at(best, lake)
    # No action is taken where an end stops, and every one does the same where it restarts.
    np.testing.assert_array_equal(varies, np.repeat(~last[:, None], 4, axis=1))
    assert abs(off).max() < 5.0
    assert np.sqrt(np.mean(off**2)) < 1.4
    assert abs(_updates_at(_best_values(other), lake)[0]).max() > 15.0


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
