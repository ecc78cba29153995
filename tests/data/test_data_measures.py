"""What a run on data measures: on held-out episodes, apart from those that agents learn from."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

import fegsam as fg
from fegsam.data.division import divide
from helpers.logs import Episode, observation_log, random_episodes, write

STATES, ACTIONS, GAMMA = 5, 3, 0.9
SIZES = {"discount": GAMMA, "num_states": STATES, "num_actions": ACTIONS}
RUN = {"step_size": 0.1, "sync_period": 5, "engine": "reference"}


def _log(folder, episodes, **options):
    path = write(folder / f"{len(episodes)}.parquet", observation_log(episodes))
    return fg.LogSource(path, **options)


def _marked(count):
    """Episodes of three steps whose rewards are their own number."""
    return [
        Episode(e, [0, 1, 2, 0], [0, 1, 2], [float(e)] * 3, [0.5] * 3, True) for e in range(count)
    ]


@pytest.mark.parametrize("passes", [1, 3])
def test_nobody_learns_from_a_held_out_episode(tmp_path, passes) -> None:
    data = fg.DataFederation(_log(tmp_path, _marked(50), passes=passes), held_out=0.2, **SIZES)
    (summary,) = fg.data.summarise(data.logs[0]).values()
    division = divide(data, {0: summary}, num_steps=90)
    learned = division.learning(0, seed=1).read(10**6)
    (held,) = division.held_out()
    apart = {*learned.reward[~learned.gap].tolist()}, {*held.reward[~held.gap].tolist()}
    assert not apart[0] & apart[1]
    assert apart[0] | apart[1] == {float(e) for e in range(50)}
    assert len(apart[1]) == 10
    assert (~learned.gap).sum() == 3 * 40 * passes


def test_a_short_log_is_not_divided_and_nothing_is_measured(tmp_path) -> None:
    data = fg.DataFederation(_log(tmp_path, _marked(19)), **SIZES)
    history = fg.run(data, fg.QLearning(), num_steps=57, **RUN)
    assert "residual" not in history.data
    assert np.isnan(history.data.squared_error.values).all()


def test_steps_that_the_held_out_episodes_would_be_needed_for_are_refused(tmp_path) -> None:
    data = fg.DataFederation(_log(tmp_path, _marked(50)), held_out=0.5, **SIZES)
    with pytest.raises(fg.ProblemError, match="25 of 50 episodes are held out"):
        fg.run(data, fg.QLearning(), num_steps=150, **RUN)


def test_a_part_of_a_log_that_no_agent_reads_may_be_of_any_length(tmp_path) -> None:
    table = observation_log(_marked(22))
    table["ward"] = ["long" if episode < 20 else "short" for episode in table["episode"]]
    source = fg.LogSource(write(tmp_path / "log.parquet", table), by="ward")
    options = {"num_steps": 50, **RUN}
    one = fg.run(fg.DataFederation(source, num_agents=1, **SIZES), fg.QLearning(), **options)
    assert one.data.data_transitions.values.tolist() == [60.0]
    with pytest.raises(fg.ProblemError, match=r"ward short.*: 6 transitions for num_steps 50"):
        fg.run(fg.DataFederation(source, **SIZES), fg.QLearning(), **options)


def test_a_warning_of_truncation_names_what_the_run_can_use_instead(tmp_path) -> None:
    episodes = [Episode(e, [0, 1, 1], [0, 0], [0.0] * 2, [1.0] * 2, False) for e in range(60)]
    data = fg.DataFederation(
        _log(tmp_path, episodes),
        discount=GAMMA,
        num_states=2,
        num_actions=1,
        features=fg.features.table([[1.0], [2.0]]),
        target_policy=[[1.0], [1.0]],
        held_out=0,
    )
    told = {
        fg.OnPolicyTD(): ["TD diverge; use TDC, longer episodes or other features"],
        fg.LinearQLearning(): ["linear Q-learning diverge; use longer episodes or other features"],
        fg.TDC(1.0): [],
    }
    for algorithm, cures in told.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fg.run(data, algorithm, num_steps=10, **(RUN | {"step_size": 0.01}))
        found = [w for w in caught if issubclass(w.category, fg.data.TruncationWarning)]
        assert len(found) == len(cures)
        assert all(cure in str(w.message) for w, cure in zip(found, cures, strict=True))


def test_the_measures_are_those_of_the_held_out_rows_and_fall(tmp_path) -> None:
    mdp = fg.examples.garnet(STATES, ACTIONS, 3, discount=GAMMA, seed=3)
    go = fg.policies.uniform(STATES, ACTIONS)
    path = fg.data.simulate_log(tmp_path / "a.parquet", mdp, go, episodes=300, length=20, seed=0)
    data = fg.DataFederation(fg.LogSource(path), held_out=0.25, target_policy=go, **SIZES)
    algorithm = fg.OffPolicyTabularTD(2)
    history = fg.run(data, algorithm, num_steps=3000, record=1500, record_params=True, **RUN)
    (summary,) = fg.data.summarise(data.logs[0]).values()
    held = fg.data.HeldOut(
        divide(data, {0: summary}, 3000).held_out(),
        num_states=STATES,
        num_actions=ACTIONS,
        off_policy=True,
        target_policy=go,
        horizon=2,
    )
    expected = held.measure(history.data.average_params.values[0])
    for name in ("residual", "distance_to_estimate", "start_value", "td_error"):
        np.testing.assert_allclose(history.data[name].values[0], expected[name], 1e-12)
    assert history.data.distance_to_estimate[0, -1] < history.data.distance_to_estimate[0, 0] / 20
    truth = fg.policy_value(mdp, go)
    off = ((history.data.average_params.values[0, -1] - truth) ** 2).max()
    found = history.data.distance_to_estimate[0, -1]
    assert abs(found - off) < 4 * history.data.distance_to_estimate_standard_error[0, -1]


def test_live_agents_are_measured_on_rows_of_their_own(tmp_path) -> None:
    lake = fg.LiveSource(
        "FrozenLake-v1", fg.policies.uniform(16, 4), options={"is_slippery": False}
    )
    data = fg.DataFederation(lake, discount=0.9, num_agents=2, evaluation=fg.Evaluation(episodes=4))
    history = fg.run(
        data, fg.QLearning(), num_steps=3000, record=1500, **(RUN | {"step_size": 0.5})
    )
    assert history.data.greedy_return.values[0].tolist() == [0.0, 1.0, 1.0]
    assert history.data.distance_to_estimate[0, -1] < 0.1 * history.data.distance_to_estimate[0, 0]


def test_an_error_of_held_out_rows_names_the_agent_that_they_are_of() -> None:
    def unpaid():
        return gymnasium.wrappers.TransformReward(gymnasium.make("FrozenLake-v1"), lambda _: np.nan)

    data = fg.DataFederation(
        fg.LiveSource(unpaid, fg.policies.uniform(16, 4)), discount=0.9, num_agents=2
    )
    with pytest.raises(fg.ProblemError, match="unpaid, held-out rows of agent 0: reward is nan"):
        divide(data, {}, 10).held_out()


def test_an_evaluation_without_an_environment_is_refused(tmp_path) -> None:
    log = _log(tmp_path, random_episodes(seed=0, count=5))
    with pytest.raises(fg.ProblemError, match="all sources are logs"):
        fg.DataFederation(log, evaluation=fg.Evaluation(), **SIZES)


def _long(folder):
    """A log whose held-out episodes visit every cell."""
    mdp = fg.examples.garnet(STATES, ACTIONS, 3, discount=GAMMA, seed=3)
    go = fg.policies.uniform(STATES, ACTIONS)
    path = fg.data.simulate_log(folder / "a.parquet", mdp, go, episodes=200, length=20, seed=0)
    return fg.DataFederation(fg.LogSource(path), held_out=0.3, **SIZES)


def test_a_plot_shows_what_was_measured_and_its_error(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    history = fg.run(_long(tmp_path), fg.QLearning(), num_steps=100, record=20, **RUN)
    axes = history.plot()
    assert axes.get_ylabel().replace("\n", " ") == "squared distance from an estimate"
    found = history.data.distance_to_estimate.values[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), found)
    top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    spread = 1.96 * history.data.distance_to_estimate_standard_error.values[0]
    assert top == pytest.approx((found + spread).max())
    assert history.plot(error="start_value").get_yscale() == "linear"
    assert history.plot(kind="frontier").get_xlabel() == "communications"
    with pytest.raises(fg.ProblemError, match="'residual', 'ope_return'"):
        history.plot(error="moved")


def test_a_run_tells_how_far_it_is_and_what_it_measured_last(tmp_path, monkeypatch) -> None:
    from fegsam import progress

    shown: list[tuple[int, str | None]] = []
    monkeypatch.setattr(
        progress.Progress, "show", lambda self, done, what=None: shown.append((done, what))
    )
    data = _long(tmp_path)
    history = fg.run(data, fg.QLearning(), num_steps=100, record=50, seeds=[0, 1], **RUN)
    assert shown[-1][0] == 2 * 100
    last = history.data.distance_to_estimate.values[1, -1]
    assert shown[-1][1] == f"squared distance from an estimate {last:.3g}"


def test_a_history_says_what_is_in_the_log_of_each_agent(tmp_path) -> None:
    go = fg.policies.uniform(STATES, ACTIONS)
    log = _log(tmp_path, random_episodes(seed=0, count=25))
    lake = fg.LiveSource("FrozenLake-v1", fg.policies.uniform(16, 4))
    (summary,) = fg.data.summarise(log, target_policy=go).values()
    data = fg.DataFederation(log, target_policy=go, held_out=0, **SIZES)
    begun = fg.run(data, fg.OffPolicyTabularTD(), num_steps=20, **(RUN | {"step_size": 0.01}))
    begun.save(tmp_path / "begun.nc")
    history = fg.run(
        data,
        fg.OffPolicyTabularTD(),
        num_steps=60,
        resume_from=fg.load_history(tmp_path / "begun.nc"),
        **(RUN | {"step_size": 0.01}),
    )
    for name in ("transitions", "terminated", "ratio_max", "effective_rows", "cells_seen"):
        assert history.data[f"data_{name}"].values == [getattr(summary, name)]
    assert "data_truncation_eigenvalue" not in history.data
    both = fg.DataFederation([lake, log], discount=GAMMA, num_states=16, num_actions=4, held_out=0)
    found = fg.run(both, fg.QLearning(), num_steps=20, **RUN).data.data_episodes.values
    np.testing.assert_array_equal(found, [np.nan, 25])
