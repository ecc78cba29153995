"""Datasets of Minari: a recorded environment comes back as a log, with its probabilities."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.cli import main

gymnasium = pytest.importorskip("gymnasium")
minari = pytest.importorskip("minari")


class Telling(gymnasium.Wrapper):
    """Puts the probability of the action that was just taken into the info of its step."""

    chances = np.array([0.1, 0.2, 0.3, 0.4])

    def reset(self, **options):
        seen, info = self.env.reset(**options)
        return seen, info | {"chance": np.nan}

    def step(self, action):
        *result, info = self.env.step(action)
        return *result, info | {"chance": self.chances[action]}


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Eight episodes of FrozenLake in Minari's own store, and what an observer saw."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    lake = gymnasium.make("FrozenLake-v1", max_episode_steps=5)
    env = minari.DataCollector(Telling(lake), record_infos=True)
    rng, seen = np.random.default_rng(0), []
    for episode in range(8):
        state, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = int(rng.integers(4))
            reached, reward, terminated, truncated, _ = env.step(action)
            seen.append((state, action, float(reward), bool(terminated), bool(truncated)))
            state, over = reached, terminated or truncated
    env.create_dataset("toy/lake-v0")
    env.close()
    return seen


# Minari warns about every field of the dataset's card that is left empty.
@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_recorded_environment_comes_back_with_the_probability_of_each_action(
    tmp_path, recorded, capsys
) -> None:
    path = tmp_path / "lake.parquet"
    words = ["import", "minari:toy/lake-v0", "-o", str(path), "--probability", "chance"]
    assert main(["data", *words]) == 0
    assert f"{len(recorded)} transitions" in capsys.readouterr().out
    rows = fg.LogSource(path).read(discount=0.9)
    on = ~rows.gap
    states, actions, rewards, terminated, truncated = map(np.array, zip(*recorded, strict=True))
    np.testing.assert_array_equal(rows.observation[on], states)
    np.testing.assert_array_equal(rows.action[on], actions)
    np.testing.assert_array_equal(rows.reward[on], rewards)
    np.testing.assert_array_equal(rows.discount[on], np.where(terminated, 0.0, 0.9))
    np.testing.assert_array_equal(rows.behavior[on], Telling.chances[actions])
    ends = np.flatnonzero(rows.gap)
    assert len(ends) == (terminated | truncated).sum() == 8
    with pytest.raises(ProblemError, match=r"have no 'p', only .*chance"):
        fg.data.import_minari("toy/lake-v0", tmp_path / "other.parquet", probability="p")
    assert not (tmp_path / "other.parquet").exists()


class Counter(gymnasium.Env):
    """Shows a step's number modulo 4 in the form of a space, for episodes of three steps."""

    action_space = gymnasium.spaces.Discrete(2, start=5)

    def __init__(self, space, show) -> None:
        self.observation_space, self._show, self._time = space, show, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show(0), {}

    def step(self, action):
        self._time += 1
        return self._show(self._time % 4), float(action), self._time == 3, False, {}


SPACES = gymnasium.spaces


def imported(tmp_path, monkeypatch, space, show):
    """The rows of two recorded episodes of a `Counter`, with the actions 5, 6 and 5."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    env = minari.DataCollector(Counter(space, show))
    for _ in range(2):
        env.reset()
        for action in (5, 6, 5):
            env.step(action)
    env.create_dataset("toy/counter-v0")
    env.close()
    fg.data.import_minari("toy/counter-v0", tmp_path / "log.parquet")
    return fg.LogSource(tmp_path / "log.parquet").read(discount=0.9)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_the_fields_of_a_tuple_stand_side_by_side_in_each_row(tmp_path, monkeypatch) -> None:
    space = SPACES.Tuple((SPACES.Discrete(5), SPACES.Discrete(5), SPACES.Box(0.0, 9.0, ())))
    show = lambda time: (time, 4, np.array(time / 2, np.float32))  # noqa: E731
    rows = imported(tmp_path, monkeypatch, space, show)
    episode = [[0, 4, 0.0], [1, 4, 0.5], [2, 4, 1.0], [3, 4, 1.5]]
    np.testing.assert_array_equal(rows.observation, episode * 2)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_states_and_actions_that_begin_elsewhere_are_numbered_from_0(tmp_path, monkeypatch) -> None:
    space = SPACES.Discrete(4, start=-1)
    rows = imported(tmp_path, monkeypatch, space, lambda time: time - 1)
    np.testing.assert_array_equal(rows.observation, [0, 1, 2, 3] * 2)
    np.testing.assert_array_equal(rows.action[~rows.gap], [0, 1, 0] * 2)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_tuple_of_arrays_is_refused(tmp_path, monkeypatch) -> None:
    space = SPACES.Tuple((SPACES.Discrete(5), SPACES.Box(0.0, 9.0, (2,))))
    with pytest.raises(ProblemError, match="not plain arrays of numbers"):
        imported(tmp_path, monkeypatch, space, lambda time: (time, np.full(2, time, np.float32)))
