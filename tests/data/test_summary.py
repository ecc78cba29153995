"""What a summary says of a log, against closed forms and plain counting."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fegsam as fg
from fegsam.data import files
from helpers.logs import Episode, observation_log, random_episodes, write


@pytest.mark.parametrize("batch", [3, 1 << 16])
def test_counts_ends_rewards_and_effective_rows_are_those_of_the_episodes(
    tmp_path, monkeypatch, batch
) -> None:
    monkeypatch.setattr(files, "BATCH", batch)
    episodes = random_episodes(seed=0, count=50)
    path = write(tmp_path / "log.parquet", observation_log(episodes))
    target = fg.policies.random(5, 3, count=1, seed=0)[0]
    found = fg.data.summarise(fg.LogSource(path), target_policy=target)[None]
    steps = [
        (s, a, r, target[s, a] / b)
        for e in episodes
        for s, a, r, b in zip(e.observations, e.actions, e.rewards, e.probabilities, strict=False)
    ]
    counts = np.zeros((5, 3))
    for state, action, _, _ in steps:
        counts[state, action] += 1
    np.testing.assert_array_equal(found.counts, counts)
    rewards, ratios = (np.array([step[i] for step in steps]) for i in (2, 3))
    assert found.transitions == len(steps)
    assert (found.episodes, found.terminated) == (50, sum(e.terminated for e in episodes))
    assert found.truncated == 50 - found.terminated
    assert found.episode_lengths == Counter(len(e.actions) for e in episodes)
    powers = np.floor(np.log2([step[3] for step in steps])).astype(int).tolist()
    assert found.ratio_sizes == Counter(powers)
    assert found.reward_range == (rewards.min(), rewards.max())
    assert found.mean_reward == pytest.approx(rewards.mean())
    assert found.ratio_mean == pytest.approx(ratios.mean())
    assert found.ratio_error == pytest.approx(ratios.std() / np.sqrt(len(ratios)))
    assert found.effective_rows == pytest.approx(ratios.sum() ** 2 / (ratios**2).sum())
    assert found.ratio_place.row == np.argmax(ratios) + sum(
        np.argmax(ratios) >= end for end in np.cumsum([len(e.actions) for e in episodes])
    )


@pytest.mark.parametrize("batch", [2, 1 << 16])
@pytest.mark.parametrize("limit", [2, 5, 40])
def test_the_truncation_eigenvalue_of_two_states_has_its_closed_form(
    tmp_path, monkeypatch, limit, batch
) -> None:
    # s1 -> s2 -> s2 ... with features 1 and 2, cut after `limit` steps: E phi^2 = 4 - 3 / limit.
    monkeypatch.setattr(files, "BATCH", batch)
    names = range(3)
    seen, zeros, half = [0] + [1] * limit, [0.0] * limit, [1.0] * limit
    episodes = [Episode(i, seen, [0] * limit, zeros, half, False) for i in names]
    source = fg.LogSource(write(tmp_path / "log.parquet", observation_log(episodes)))
    found = fg.data.summarise(source, discount=0.9, features=fg.features.table([[1.0], [2.0]]))[
        None
    ]
    assert found.truncation_eigenvalue == pytest.approx(0.81 * 4.0 / (4.0 - 3.0 / limit))
    assert found.feature_norm == 4.0


def test_features_that_only_ends_show_make_the_eigenvalue_infinite(tmp_path) -> None:
    episodes = [Episode(0, [0, 1], [0], [0.0], [1.0], False)]
    source = fg.LogSource(write(tmp_path / "log.parquet", observation_log(episodes)))
    found = fg.data.summarise(source, discount=0.9, features=fg.features.one_hot(2))[None]
    assert found.truncation_eigenvalue == np.inf


def test_a_terminated_end_adds_nothing_to_the_eigenvalue(tmp_path) -> None:
    episodes = [Episode(0, [0, 0, 1], [0, 0], [0.0] * 2, [1.0] * 2, True)]
    source = fg.LogSource(write(tmp_path / "log.parquet", observation_log(episodes)))
    found = fg.data.summarise(source, discount=0.9, features=fg.features.one_hot(2))[None]
    assert found.truncation_eigenvalue == pytest.approx(0.81 / 2.0)
