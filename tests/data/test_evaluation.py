"""What a greedy policy earns in an environment, against closed forms."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import fegsam as fg
from fegsam import Evaluation, ProblemError


class Coins(gymnasium.Env):
    """Two states; action 0 pays 1 for certain, action 1 pays 3 by a coin; ends after 4 steps.

    States and actions begin at -1.
    """

    observation_space = gymnasium.spaces.Discrete(2, start=-1)
    action_space = gymnasium.spaces.Discrete(2, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return -1, {}

    def step(self, action):
        self.steps += 1
        reward = 1.0 if action == -1 else 3.0 * (self.np_random.random() < 0.5)
        return self.steps % 2 - 1, reward, self.steps == 4, False, {}


SAFE, BOLD = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])


def test_the_mean_and_its_error_are_those_of_the_episodes() -> None:
    params = np.stack([SAFE.ravel(), BOLD.ravel(), BOLD.ravel() * 2.0])
    found = Evaluation(episodes=400).measure(Coins, params)
    value, error = found["greedy_return"], found["greedy_return_standard_error"]
    assert (value[0], error[0]) == (4.0, 0.0)
    assert abs(value[1] - 6.0) < 4.0 * error[1]
    assert error[1] == pytest.approx(3.0 / np.sqrt(400), rel=0.1)
    assert (value[1], error[1]) == (value[2], error[2])


def test_all_times_meet_the_same_episodes_and_a_policy_is_tried_once() -> None:
    bold = BOLD.ravel()[None]
    evaluation = Evaluation(episodes=20, seed=3)
    first = evaluation.measure(Coins, bold)["greedy_return"]
    mixed = np.array([[1.0, 0.0], [0.0, 1.0]]).ravel()
    later = evaluation.measure(Coins, np.stack([mixed, *bold]))["greedy_return"]
    assert first[0] == later[1] != later[0]
    other = Evaluation(episodes=20, seed=4).measure(Coins, bold)["greedy_return"]
    assert other[0] != first[0]
    assert len(set(evaluation.seeds())) == 20


def test_discount_and_a_longest_episode_are_those_of_a_geometric_sum() -> None:
    found = Evaluation(episodes=2, discount=0.5).measure(Coins, [SAFE.ravel()])
    assert found["greedy_return"][0] == 1.875
    found = Evaluation(episodes=2, longest=3).measure(Coins, [SAFE.ravel()])
    assert found["greedy_return"][0] == 3.0


@pytest.mark.parametrize("features", [fg.features.one_hot(2), fg.features.table(np.eye(2))])
def test_one_feature_per_state_and_an_index_earn_what_the_table_earns(features) -> None:
    evaluation = Evaluation(episodes=10)
    params = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
    expected = evaluation.measure(Coins, params)["greedy_return"]
    for options in ({"features": features}, {"index": lambda seen: seen + 1}):
        found = evaluation.measure(Coins, params, **options)["greedy_return"]
        np.testing.assert_array_equal(found, expected)


def test_observations_of_numbers_are_turned_into_features() -> None:
    make = lambda: gymnasium.make("CartPole-v1")  # noqa: E731
    lean = fg.features.columns(4)
    right = np.zeros((4, 2))
    right[2, 1] = right[3, 1] = 1.0  # push to where the pole falls
    found = Evaluation(episodes=5).measure(make, [right.ravel(), np.zeros(8)], features=lean)
    assert found["greedy_return"][0] > 100.0 > found["greedy_return"][1]


def test_the_optimal_policy_of_a_lake_earns_its_exact_value() -> None:
    make = lambda: gymnasium.make("FrozenLake-v1", max_episode_steps=2000)  # noqa: E731
    model = make().unwrapped.P
    q = np.zeros((16, 4))
    for _ in range(3000):
        best = q.max(axis=1)
        for s in range(16):
            for a in range(4):
                q[s, a] = sum(p * (r + 0.99 * best[z] * (not end)) for p, z, r, end in model[s][a])
    found = Evaluation(episodes=300, discount=0.99).measure(make, [q.ravel()])
    error = found["greedy_return_standard_error"][0]
    assert abs(found["greedy_return"][0] - q[0].max()) < 4.0 * error


def test_what_diverged_has_no_return_and_what_does_not_fit_is_refused() -> None:
    evaluation = Evaluation(episodes=2)
    found = evaluation.measure(Coins, [[np.nan] * 4, SAFE.ravel()])["greedy_return"]
    assert np.isnan(found[0])
    assert found[1] == 4.0
    with pytest.raises(
        ProblemError, match=r"there are 2 states and 2 actions: give shape \(T, 4\)"
    ):
        evaluation.measure(Coins, [[0.0]])
    with pytest.raises(ProblemError, match="not states: give features or index"):
        evaluation.measure(lambda: gymnasium.make("CartPole-v1"), [[0.0]])
    with pytest.raises(ProblemError, match="episodes is 1"):
        Evaluation(episodes=1)
