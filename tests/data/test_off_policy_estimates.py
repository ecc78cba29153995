"""Off-policy estimates against closed forms, and against exact values in standard errors."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import doubly_robust, fitted_q_evaluation, weighted_importance_sampling
from helpers.logs import Episode, observation_log, random_episodes, write

RNG = np.random.default_rng(0)
ACTIONS = RNG.choice(2, p=[0.3, 0.7], size=60).tolist()
PAID = (np.array(ACTIONS) + RNG.normal(size=60)).tolist()
BANDIT = [
    Episode(i, [0, 0], [a], [r], [[0.3, 0.7][a]], True)
    for i, (a, r) in enumerate(zip(ACTIONS, PAID, strict=True))
]
TARGET = np.array([[0.8, 0.2]])
RHO = np.array([TARGET[0, a] / [0.3, 0.7][a] for a in ACTIONS])
REWARDS = np.array(PAID)


def read(tmp_path, episodes, discount=0.9):
    path = write(tmp_path / "log.parquet", observation_log(episodes))
    return fg.LogSource(path).read(discount=discount)


def test_on_a_bandit_the_weighted_estimate_is_the_self_normalised_mean(tmp_path) -> None:
    found = weighted_importance_sampling(read(tmp_path, BANDIT), TARGET)
    mean = (RHO * REWARDS).sum() / RHO.sum()
    assert found.value == pytest.approx(mean, rel=1e-13)
    error = np.sqrt((RHO**2 * (REWARDS - mean) ** 2).sum()) / RHO.sum()
    assert found.standard_error == pytest.approx(error, rel=1e-13)
    assert found.effective_episodes == pytest.approx(RHO.sum() ** 2 / (RHO**2).sum())


def test_on_a_bandit_the_doubly_robust_estimate_is_the_corrected_guess(tmp_path) -> None:
    q = np.array([[0.5, -1.0]])
    found = doubly_robust(read(tmp_path, BANDIT), q, TARGET)
    each = (TARGET * q).sum() + RHO * (REWARDS - q[0, ACTIONS])
    assert found.value == pytest.approx(each.mean(), rel=1e-13)
    assert found.standard_error == pytest.approx(each.std(ddof=1) / np.sqrt(60), rel=1e-13)


def test_on_a_bandit_fitted_q_is_the_mean_of_each_arm(tmp_path) -> None:
    found = fitted_q_evaluation(read(tmp_path, BANDIT), TARGET)
    arms = [REWARDS[np.array(ACTIONS) == a] for a in range(2)]
    np.testing.assert_allclose(found.q, [[arm.mean() for arm in arms]], rtol=1e-12)
    assert found.estimate.value == pytest.approx(TARGET[0] @ [arm.mean() for arm in arms])
    variance = sum(p**2 * arm.var() / len(arm) for p, arm in zip(TARGET[0], arms, strict=True))
    assert found.estimate.standard_error == pytest.approx(np.sqrt(variance), rel=1e-12)


def test_where_only_the_first_states_vary_so_does_the_fitted_value(tmp_path) -> None:
    starts = RNG.integers(0, 2, 40)
    episodes = [Episode(i, [s, s], [0], [float(s)], [1.0], True) for i, s in enumerate(starts)]
    found = fitted_q_evaluation(read(tmp_path, episodes), [[1.0], [1.0]]).estimate
    assert found.value == pytest.approx(starts.mean())
    assert found.standard_error == pytest.approx(starts.std() / np.sqrt(40))


def test_the_weighted_estimate_equals_a_loop_over_the_episodes(tmp_path) -> None:
    episodes = random_episodes(seed=3, count=30)
    target = fg.policies.random(5, 3, count=1, seed=1)[0]
    weights, returns = [], []
    for e in episodes:
        weight = 1.0
        for state, action, chance in zip(e.observations, e.actions, e.probabilities, strict=False):
            weight *= target[state, action] / chance
        weights.append(weight)
        returns.append(sum(0.9**t * reward for t, reward in enumerate(e.rewards)))
    found = weighted_importance_sampling(read(tmp_path, episodes), target)
    assert found.value == pytest.approx(np.average(returns, weights=weights), rel=1e-12)


def test_without_a_guess_the_doubly_robust_estimate_weighs_each_reward_by_its_past(
    tmp_path,
) -> None:
    episodes = random_episodes(seed=4, count=30)
    target = fg.policies.random(5, 3, count=1, seed=1)[0]
    each = []
    for e in episodes:
        total, weight = 0.0, 1.0
        for t, (state, action) in enumerate(zip(e.observations, e.actions, strict=False)):
            weight *= target[state, action] / e.probabilities[t]
            total += 0.9**t * weight * e.rewards[t]
        each.append(total)
    found = doubly_robust(read(tmp_path, episodes), np.zeros((5, 3)), target)
    assert found.value == pytest.approx(np.mean(each), rel=1e-12)


MDP = fg.examples.garnet(5, 2, branching=2, discount=0.8, seed=3)
BEHAVIOR = 0.5 * fg.policies.random(5, 2, count=1, seed=0)[0] + 0.25
AIM = fg.policies.random(5, 2, count=1, seed=1)[0]
VALUE = fg.policy_value(MDP, AIM)
EXACT_Q = MDP.rewards + 0.8 * (MDP.transitions @ VALUE).reshape(5, 2)


def simulated(tmp_path, seed, episodes=150, length=8):
    path = tmp_path / f"{seed}.parquet"
    fg.data.simulate_log(path, MDP, BEHAVIOR, episodes=episodes, length=length, seed=seed)
    return fg.LogSource(path).read(discount=0.8)


def test_the_counted_values_are_a_fixed_point_of_the_counted_bellman_operator(tmp_path) -> None:
    rows = simulated(tmp_path, 0)
    q = fitted_q_evaluation(rows, AIM).q
    values = (AIM * q).sum(axis=1)
    targets: dict[tuple[int, int], list[float]] = {}
    for j in np.flatnonzero(~rows.gap):
        cell = int(rows.observation[j]), int(rows.action[j])
        targets.setdefault(cell, []).append(
            rows.reward[j] + rows.discount[j] * values[rows.observation[j + 1]]
        )
    for cell, found in targets.items():
        assert q[cell] == pytest.approx(np.mean(found), rel=1e-10)


def test_errors_over_many_logs_are_as_large_as_their_standard_errors_say(tmp_path) -> None:
    # A truncated return is not the value, but both these estimates bootstrap at the end.
    logs = [simulated(tmp_path, seed) for seed in range(80)]
    wrong_q = EXACT_Q + RNG.normal(size=EXACT_Q.shape) * [[1.0], [1.0], [1.0], [1.0], [0.0]]
    fitted = [fitted_q_evaluation(rows, AIM).estimate for rows in logs]
    robust = [doubly_robust(rows, EXACT_Q, AIM) for rows in logs]
    for estimates in (fitted, robust):
        z = np.array([(each.value - VALUE[0]) / each.standard_error for each in estimates])
        assert abs(z.mean()) < 4.0 / np.sqrt(80)
        assert abs((z**2).mean() - 1.0) < 4.0 * np.sqrt(2.0 / 80)
    off = [doubly_robust(rows, wrong_q, AIM) for rows in logs]
    assert np.mean([e.standard_error for e in off]) > 2.0 * np.mean(
        [e.standard_error for e in robust]
    )


def test_the_weighted_estimate_is_near_the_exact_return_of_episodes_that_end(tmp_path) -> None:
    path = tmp_path / "log.parquet"
    fg.data.simulate_log(path, MDP, BEHAVIOR, episodes=4000, length=3, seed=1)
    rows = fg.LogSource(path).read(discount=0.8)
    chain, paid = MDP.policy_chain(AIM).toarray(), MDP.policy_rewards(AIM)
    exact = sum(0.8**t * (np.linalg.matrix_power(chain, t) @ paid)[0] for t in range(3))
    found = weighted_importance_sampling(rows, AIM)
    assert abs(found.value - exact) < 4.0 * found.standard_error


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("actions", [1, 3])
def test_the_fitted_return_of_cut_episodes_is_refused_without_a_discount(
    tmp_path, actions, seed
) -> None:
    cut = [
        e._replace(terminated=False, actions=[a % actions for a in e.actions])
        for e in random_episodes(seed, count=300)
    ]
    target = np.full((5, actions), 1.0 / actions)
    with pytest.raises(ProblemError, match="without end, so that its return is not finite"):
        fitted_q_evaluation(read(tmp_path, cut, discount=1.0), target)
    found = fitted_q_evaluation(read(tmp_path, cut, discount=1.0 - 1e-6), target)
    # All the rewards of a cell are worth their stationary mean, times a million.
    assert 0.0 < abs(found.estimate.value) < 1e6
    ended = [e._replace(terminated=True, rewards=[1.0] * len(e.rewards)) for e in cut[:150]]
    kept = [e._replace(rewards=[1.0] * len(e.rewards)) for e in cut[150:]]
    assert fitted_q_evaluation(read(tmp_path, ended + kept, discount=1.0), target).q.min() > 1.0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda rows: weighted_importance_sampling(rows), "importance ratios need a target"),
        (lambda rows: weighted_importance_sampling(rows, [[1.0]]), "actions 0 to 1"),
        (
            lambda rows: weighted_importance_sampling(rows._replace(behavior=rows.target), TARGET),
            "need behavior_probability",
        ),
        (lambda rows: doubly_robust(rows, [[1.0]], TARGET), "q has shape"),
        (
            lambda rows: fitted_q_evaluation(rows, [[0.5, 0.25, 0.25]]),
            "takes action 2 in state 0, which this log never shows",
        ),
        (
            lambda rows: weighted_importance_sampling(rows, [[0.0, 0.0, 1.0]]),
            "all weights are 0",
        ),
        (
            lambda rows: weighted_importance_sampling(type(rows)(*(a[:3] for a in rows)), TARGET),
            "do not end with an episode",
        ),
    ],
)
def test_rows_that_do_not_suffice_are_refused(tmp_path, call, told) -> None:
    with pytest.raises(ProblemError, match=told):
        call(read(tmp_path, BANDIT))
