"""What held-out episodes say of parameters, against closed forms and plain loops over episodes."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import HeldOut, Rows, clusters
from helpers.hidden_truth import hidden_problem, simulated_rows
from helpers.logs import Episode, random_episodes

RNG = np.random.default_rng(0)
TARGET = fg.policies.random(5, 3, count=1, seed=1)[0]
PHI = RNG.normal(size=(5, 3))


def rows_of(episodes: list[Episode], discount: float = 0.9) -> Rows:
    """Rows and gaps, with NaN wherever a gap has nothing to say."""
    table = []
    for e in episodes:
        for t, action in enumerate(e.actions):
            stays = 0.0 if e.terminated and t == len(e.actions) - 1 else discount
            table.append((e.observations[t], action, e.rewards[t], stays, e.probabilities[t], 0))
        table.append((e.observations[-1], 0, np.nan, np.nan, np.nan, 1))
    seen, actions, rewards, discounts, chances, gap = map(np.array, zip(*table, strict=True))
    return Rows(seen, actions, rewards, discounts, chances, np.full(len(gap), np.nan), gap == 1)


def slow_update(episodes, params, features, horizon, target) -> np.ndarray:
    """The mean update of an agent's steps, by its definition: no rows, no gaps, no windows."""
    total, steps = np.zeros(features.shape[1]), 0
    for e in episodes:
        value = [features[s] @ params for s in e.observations]
        if e.terminated:
            value[-1] = 0.0
        for t in range(len(e.actions)):
            error, weight = 0.0, 1.0
            for k in range(t, min(t + horizon, len(e.actions))):
                if target is not None:
                    weight *= target[e.observations[k], e.actions[k]] / e.probabilities[k]
                error += 0.9 ** (k - t) * weight * (e.rewards[k] + 0.9 * value[k + 1] - value[k])
            total += features[e.observations[t]] * error
            steps += 1
    return total / steps


@pytest.mark.parametrize("horizon", [1, 2, 9])
@pytest.mark.parametrize("target", [None, TARGET], ids=["on", "off"])
@pytest.mark.parametrize("form", ["table", "dense", "sparse"])
def test_the_mean_update_is_that_of_a_loop_over_the_episodes(horizon, target, form) -> None:
    agents = [random_episodes(seed=seed, count=20 * seed) for seed in (1, 2)]
    maps = {"table": None, "dense": fg.features.table(PHI), "sparse": fg.features.one_hot(5)}
    held_out = HeldOut(
        [rows_of(agent) for agent in agents],
        features=maps[form],
        num_states=5,
        horizon=horizon,
        off_policy=target is not None,
        target_policy=target,
        weights=[3.0, 1.0],
    )
    features = PHI if form == "dense" else np.eye(5)
    params = RNG.normal(size=(4, features.shape[1]))
    each = [
        [slow_update(agent, row, features, horizon, target) for row in params] for agent in agents
    ]
    expected = 0.75 * np.array(each[0]) + 0.25 * np.array(each[1])
    np.testing.assert_allclose(held_out.mean_update(params), expected, atol=1e-12)
    solution = held_out.estimate
    full = np.eye(5)[:, solution.directions] if form == "table" else solution.directions
    found = full @ solution.params
    np.testing.assert_allclose(held_out.mean_update(found[None]), 0.0, atol=1e-12)


def test_a_target_policy_may_be_a_function_of_observations() -> None:
    rows = rows_of(random_episodes(seed=3, count=20))
    params = RNG.normal(size=(2, 5))
    options = {"num_states": 5, "off_policy": True, "horizon": 2}
    table = HeldOut(rows, target_policy=TARGET, **options).measure(params)
    function = HeldOut(rows, target_policy=lambda seen: TARGET[seen], **options).measure(params)
    for name, values in table.items():
        np.testing.assert_array_equal(function[name], values)
    with pytest.raises(ProblemError, match=r"gives shape \(2,\) for .* return a probability"):
        HeldOut(rows, target_policy=lambda seen: np.ones(2), **options)


def test_one_step_episodes_have_the_self_normalised_importance_estimate() -> None:
    actions = RNG.choice(2, p=[0.3, 0.7], size=30)
    paid = actions + RNG.normal(size=30)
    behavior, target = np.array([0.3, 0.7]), np.array([[0.8, 0.2]])
    episodes = [
        Episode(i, [0, 0], [int(a)], [r], [behavior[a]], True)
        for i, (a, r) in enumerate(zip(actions, paid, strict=True))
    ]
    ratios = target[0, actions] / behavior[actions]
    mean = (ratios * paid).sum() / ratios.sum()
    held_out = HeldOut(rows_of(episodes), off_policy=True, target_policy=target)
    assert held_out.estimate.params == pytest.approx([mean], rel=1e-13)
    found = held_out.measure([[mean + 0.5], [mean]])
    assert found["ope_return"][0] == pytest.approx(mean, rel=1e-13)
    # The estimate's own variance is that of a ratio of means, and is taken off.
    variance = 30.0 / 29.0 * (ratios**2 * (paid - mean) ** 2).sum() / ratios.sum() ** 2
    assert found["distance_to_estimate"] == pytest.approx([0.25 - variance, -variance], rel=1e-9)
    assert found["return_error"][1] == pytest.approx(
        (ratios * (paid - mean) ** 2).sum() / ratios.sum()
    )


@pytest.mark.parametrize("features", [None, fg.features.table(np.ones((5, 1)))])
@pytest.mark.parametrize("horizon", [1, 4])
def test_a_constant_reward_with_truncation_only_is_worth_its_sum(features, horizon) -> None:
    episodes = [
        e._replace(terminated=False, rewards=[2.0] * len(e.rewards))
        for e in random_episodes(seed=0, count=50)
    ]
    held_out = HeldOut(rows_of(episodes), features=features, horizon=horizon, num_states=5)
    worth = np.full((1, held_out.dimension), 20.0)
    np.testing.assert_allclose(held_out.estimate.parts(worth), 0.0, atol=1e-11)
    found = held_out.measure(worth)
    for name in ("residual", "distance_to_estimate", "td_error"):
        assert abs(found[name][0]) < 1e-20
    assert found["start_value"] == pytest.approx(20.0)


@pytest.mark.parametrize("form", ["table", "features", "control"])
@pytest.mark.parametrize("seed", range(3))
def test_cut_episodes_have_no_estimate_without_a_discount(seed, form) -> None:
    cut = [e._replace(terminated=False) for e in random_episodes(seed, count=200)]
    options = {
        "table": {"num_states": 5},
        "features": {"features": fg.features.table(np.eye(5))},
        "control": {"num_states": 5, "num_actions": 3, "kind": "control"},
    }[form]
    params = np.zeros((1, 15 if form == "control" else 5))
    endless = HeldOut(rows_of(cut, discount=1.0), **options)
    assert np.isnan(endless.measure(params)["distance_to_estimate"]).all()
    slow = HeldOut(rows_of(cut, discount=1.0 - 1e-6), **options).measure(params)
    assert np.isfinite(slow["distance_to_estimate"]).all()


@pytest.mark.parametrize("discount", [0.8, 0.95])
def test_cut_episodes_make_td_unstable_exactly_below_the_threshold(discount) -> None:
    # s1 -> s2 -> s2 ... with features 1 and 2, reward 0 and the time limit H.
    threshold = 1.0 + (2.0 * discount - 1.0) / (4.0 * (1.0 - discount))
    for limit in (int(np.floor(threshold)), int(np.floor(threshold)) + 1):
        one = Episode(0, [0] + [1] * limit, [0] * limit, [0.0] * limit, [1.0] * limit, False)
        held_out = HeldOut(
            rows_of([one] * 20, discount), features=fg.features.table([[1.0], [2.0]])
        )
        grows = held_out.mean_update([[1.0]])[0, 0] > 0.0
        assert grows == (limit < threshold)
        # The eigenvalue is a sufficient condition, which unstable data must not pass.
        rows = rows_of([one] * 20, discount)
        found = fg.data.summarise_rows(rows, features=fg.features.table([[1.0], [2.0]]))
        assert found.truncation_eigenvalue >= 1.0 or not grows


def test_control_solves_the_counted_mdp_in_the_cells_that_occur() -> None:
    episodes = random_episodes(seed=5, count=60)
    rows = rows_of(episodes)
    held_out = HeldOut(rows, kind="control", num_states=6, num_actions=4)
    q = np.full((6, 4), -np.inf)
    moves: dict[tuple[int, int], list] = {}
    for e in episodes:
        for t, action in enumerate(e.actions):
            last = t == len(e.actions) - 1
            after = None if last and e.terminated else e.observations[t + 1]
            moves.setdefault((e.observations[t], action), []).append((e.rewards[t], after))
    for cell in moves:
        q[cell] = 0.0
    for _ in range(400):
        best = q.max(axis=1)
        for cell, seen in moves.items():
            q[cell] = np.mean([r + (0.0 if s is None else 0.9 * best[s]) for r, s in seen])
    solution = held_out.estimate
    np.testing.assert_array_equal(solution.directions, np.flatnonzero(np.isfinite(q.ravel())))
    np.testing.assert_allclose(solution.params, q[np.isfinite(q)], atol=1e-10)


def test_states_that_no_action_leaves_are_left_out() -> None:
    # 0 -> 1 and 0 -> 2, both cut; only 1 is left again, by an action that ends the episode.
    cut = [Episode(i, [0, 1 + i % 2], [0], [1.0 + 7.0 * (i % 2)], [1.0], False) for i in range(20)]
    done = [Episode(i, [1, 1], [0], [4.0], [1.0], True) for i in range(20)]
    for options in ({}, {"kind": "control"}):
        solution = HeldOut(rows_of(cut + done), **options).estimate
        np.testing.assert_array_equal(solution.directions, [0, 1])
        np.testing.assert_allclose(solution.params, [1.0 + 0.9 * 4.0, 4.0])


def test_values_of_starts_returns_and_td_errors_are_those_of_the_episodes() -> None:
    episodes = random_episodes(seed=7, count=30)
    params = RNG.normal(size=5)
    found = HeldOut(rows_of(episodes), num_states=5).measure(params[None])
    starts = np.array([params[e.observations[0]] for e in episodes])
    assert found["start_value"][0] == pytest.approx(starts.mean())
    assert found["start_value_standard_error"][0] == pytest.approx(
        starts.std(ddof=1) / np.sqrt(30)
    )  # an episode is a cluster
    squares, errors = [], []
    for e in episodes:
        for t in range(len(e.actions)):
            ended = e.terminated and t == len(e.actions) - 1
            ahead = 0.0 if ended else params[e.observations[t + 1]]
            errors.append((e.rewards[t] + 0.9 * ahead - params[e.observations[t]]) ** 2)
            paid = sum(0.9**k * reward for k, reward in enumerate(e.rewards[t:]))
            squares += [(params[e.observations[t]] - paid) ** 2] * e.terminated
    assert found["td_error"][0] == pytest.approx(np.mean(errors))
    assert found["return_error"][0] == pytest.approx(np.mean(squares))


def test_greedy_returns_are_those_of_the_estimates() -> None:
    mdp = fg.examples.garnet(4, 2, branching=2, discount=0.8, seed=3)
    rows = simulated_rows(mdp, fg.policies.uniform(4, 2), episodes=300, length=4, rng=RNG)
    held_out = HeldOut(rows, kind="control", num_states=4, num_actions=2)
    q = RNG.normal(size=(3, 4, 2))
    found = held_out.measure(q.reshape(3, 8))
    for t in range(3):
        policy = fg.policies.greedy(q[t])
        weighted = fg.data.weighted_importance_sampling(rows, policy)
        robust = fg.data.doubly_robust(rows, q[t], policy)
        assert found["ope_return"][t] == weighted.value
        assert found["ope_return_robust_standard_error"][t] == robust.standard_error
    unknown = HeldOut(rows._replace(behavior=rows.target), kind="control", num_states=4)
    assert np.isnan(unknown.measure(q.reshape(3, 8))["ope_return"]).all()


def test_linear_action_values_with_one_feature_per_state_are_a_table() -> None:
    rows = rows_of(random_episodes(seed=2, count=40))
    table = HeldOut(rows, kind="control", num_states=5, num_actions=3)
    linear = HeldOut(rows, kind="control", features=fg.features.one_hot(5), num_actions=3)
    dense = HeldOut(rows, kind="control", features=fg.features.table(np.eye(5)), num_actions=3)
    params = RNG.normal(size=(3, 15))
    for other in (linear, dense):
        np.testing.assert_allclose(other.mean_update(params), table.mean_update(params))
        found, expected = other.measure(params), table.measure(params)
        np.testing.assert_allclose(found["start_value"], expected["start_value"])
        assert np.isnan(found["distance_to_estimate"]).all()


def test_nothing_depends_on_blocks_on_gaps_or_on_parameters_that_diverged(monkeypatch) -> None:
    rows = rows_of(random_episodes(seed=2, count=40))
    params = RNG.normal(size=(5, 5))
    whole = HeldOut(rows, num_states=5).measure(params)
    monkeypatch.setattr("fegsam.data.quality.BLOCK", 1)
    zeros = {"reward": np.where(rows.gap, 0.0, rows.reward)}
    zeros["discount"] = np.where(rows.gap, 0.0, rows.discount)
    broken = np.insert(params, 2, [1.0, np.nan, np.inf, 0.0, 0.0], axis=0)
    found = HeldOut(rows._replace(**zeros), num_states=5).measure(broken)
    for name, values in found.items():
        if name != "moved":
            assert np.isnan(values[2])
            np.testing.assert_allclose(np.delete(values, 2), whole[name], rtol=1e-12)


def test_moved_is_the_squared_distance_from_the_parameters_before() -> None:
    rows = rows_of(random_episodes(seed=2, count=40))
    params = np.array([[0.0] * 5, [1.0, 2.0, 0.0, 0.0, 0.0]])
    assert HeldOut(rows, num_states=5).measure(params)["moved"][1] == 4.0
    linear = HeldOut(rows, features=fg.features.one_hot(5))
    np.testing.assert_array_equal(linear.measure(params, np.ones(5))["moved"], [5.0, 5.0])
    assert np.isnan(linear.measure(params)["moved"][0])


@pytest.mark.parametrize("square", [clusters.squared_length, clusters.squared_maximum])
@pytest.mark.parametrize("size", [0.0, 0.3, 3.0])
def test_squares_of_means_are_right_in_mean_and_in_spread(square, size) -> None:
    rng = np.random.default_rng(1)
    scale = np.array([1.0, 0.5, 2.0])
    mean = size * np.array([0.0, 1.0, 0.0])
    value, error = square(mean + scale * rng.normal(size=(20_000, 20, 3)))
    bias = value.mean() - size**2
    if square is clusters.squared_length or size != 0.3:
        assert abs(bias) < 4.0 * value.std() / np.sqrt(20_000)
    else:  # another entry may be chosen than the largest, which only makes it smaller
        assert -0.1 < bias < 0.0
    assert 0.8 < np.sqrt((error**2).mean()) / value.std() < 1.5
    assert (np.abs(value - size**2) < 2.09 * error).mean() > 0.9


@pytest.mark.parametrize("number", [1, 5, 8])
def test_at_the_true_fixed_point_nothing_is_found_though_agents_differ(number) -> None:
    problem = hidden_problem(number)
    truth = problem.fixed_point()[None]
    held = [problem.held_out(np.random.default_rng(seed), 32, 50) for seed in range(12)]
    for name in ("residual", "distance_to_estimate"):
        found = np.array([one.measure(truth)[name][0] for one in held])
        assert abs(found.mean()) < 4.0 * found.std(ddof=1) / np.sqrt(12)
        errors = [one.measure(truth)[f"{name}_standard_error"][0] for one in held]
        assert 0.4 < np.mean(errors) / found.std(ddof=1) < 2.5


def test_updates_of_agents_that_cancel_are_no_update() -> None:
    agents = [
        rows_of([Episode(i, [0, 0], [0], [paid], [1.0], True) for i in range(40)])
        for paid in (1.0, -1.0)
    ]
    for features in (None, fg.features.one_hot(1)):
        found = HeldOut(agents, features=features).measure([[0.0]])
        for name in ("residual", "distance_to_estimate"):
            assert found[name][0] == pytest.approx(0.0, abs=1e-12)


def test_one_long_episode_is_cut_into_stretches() -> None:
    mdp = fg.examples.two_state()
    policy = fg.policies.uniform(2, 2)
    rows = simulated_rows(mdp, policy, episodes=1, length=20_000, rng=np.random.default_rng(0))
    open_end = Rows(*(array[:-1] for array in rows))
    exact = fg.policy_value(mdp, policy)
    for one in (rows, open_end):
        found = HeldOut(one).measure(np.stack([exact, exact + 1.0]))
        for name in ("residual", "distance_to_estimate"):
            assert abs(found[name][0]) < 4.0 * found[f"{name}_standard_error"][0]
        assert found["distance_to_estimate"][1] == pytest.approx(1.0, rel=0.5)
        assert np.isnan(found["start_value_standard_error"]).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "q"}, "kind is 'q': give 'values' or 'control'"),
        ({"kind": "control", "horizon": 2}, "Q-learning looks one step ahead"),
        ({"off_policy": True}, "importance ratios need a target"),
        ({"num_states": 3}, "an observation is 4, but there are 3 states"),
        ({"num_actions": 2, "kind": "control"}, "an action is 2, but there are 2 actions"),
        ({"weights": [1.0, 1.0]}, "for 1 agents: give a number of at least 0 for each"),
        ({"weights": [0.0]}, "for 1 agents: give a number of at least 0 for each"),
        ({"horizon": 0}, "horizon is 0"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(change, told) -> None:
    rows = rows_of(random_episodes(seed=2, count=40))
    with pytest.raises(ProblemError, match=told):
        HeldOut(rows, **change)


def test_params_of_another_shape_and_rows_without_steps_are_refused() -> None:
    rows = rows_of(random_episodes(seed=2, count=40))
    with pytest.raises(ProblemError, match=r"params has shape \(5,\): give shape \(T, 5\)"):
        HeldOut(rows).measure(np.zeros(5))
    with pytest.raises(ProblemError, match="no transition: hold out more episodes"):
        HeldOut([Rows(*(array[rows.gap] for array in rows))])
    with pytest.raises(ProblemError, match="not states, so that no table fits them"):
        HeldOut(rows._replace(observation=np.zeros((len(rows.gap), 2))))
