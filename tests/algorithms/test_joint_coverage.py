"""Q-learning converges where the agents try every action only together; off-policy TD would then
learn the value of another policy, and refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fegsam as fg
from fegsam.algorithms.rule import Path
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.share import load_share, save_share
from helpers.in_memory import InMemory, serve, spread
from pseudocode import stationary_law

STATES, ACTIONS, GAMMA = 2, 4, 0.8


def own_action_each(actions: int = ACTIONS, states: int = STATES) -> np.ndarray:
    """(A, S, A): agent k takes action k alone."""
    return np.repeat(np.eye(actions)[:, None, :], states, axis=1)


def mdp(
    seed: int = 0, states: int = STATES, actions: int = ACTIONS, gamma: float = GAMMA
) -> fg.MDP:
    rng = np.random.default_rng(seed)
    kernel = 0.1 + rng.random((states, actions, states))
    kernel /= kernel.sum(axis=2, keepdims=True)
    return fg.MDP(kernel, rng.uniform(-1, 1, (states, actions)), gamma)


def tables(one: fg.MDP) -> tuple[np.ndarray, np.ndarray]:
    return one.transitions.toarray().reshape(*one.rewards.shape, -1), one.rewards


def value_iteration(one: fg.MDP) -> np.ndarray:
    kernel, rewards = tables(one)
    q = np.zeros_like(rewards)
    for _ in range(2000):
        q = rewards + one.discount * kernel @ q.max(axis=1)
    return q.ravel()


@pytest.mark.parametrize("K", [1, 10, 50])
def test_agents_with_one_action_each_find_the_optimal_values(K) -> None:
    one = mdp()
    problem = fg.Federation(one, own_action_each(), num_agents=ACTIONS)
    star = value_iteration(one)
    np.testing.assert_allclose(fg.fixed_point(problem, fg.QLearning()), star, atol=1e-9)
    data = fg.run(
        problem,
        fg.QLearning(),
        step_size=0.1,
        sync_period=K,
        num_steps=20_000,
        seeds=range(20),
        record=100,
        record_params=True,
    ).data
    errors = np.abs(data.average_params.values - star).max(axis=2) ** 2
    assert errors[:, 0].min() > 1
    assert errors[:, 100:].mean() < 0.002
    # Q-learning by one of them alone does not even try the other actions.
    alone = fg.Federation(one, own_action_each()[:1], num_agents=1)
    with pytest.raises(fg.ProblemError, match="no agent ever takes action 1 in state 0"):
        fg.run(alone, fg.QLearning(), step_size=0.1, sync_period=K, num_steps=10)


def mean_step(problem: fg.Federation, params: np.ndarray, alpha: float) -> np.ndarray:
    """The mean over agents and stationary transitions of the parameters after one step."""
    algorithm, total = fg.QLearning(), params.copy()
    constants = algorithm.tables(problem)
    kernel, _ = tables(problem.mdps[0])
    for kind in problem.assignment:
        policy = problem.behavior_policies[kind]
        law = stationary_law(kernel, policy)
        for s, a, after in np.ndindex(kernel.shape):
            chance = law[s] * policy[s, a] * kernel[s, a, after]
            states, actions = np.array([s, after], np.uint64), np.array([a], np.uint64)
            path = Path(states, actions, kind, 0, kind)
            cell, scale = algorithm.rule(params, path, np.uint64(0), constants)
            total[int(cell)] += alpha * chance * scale / problem.num_agents
    return total


@pytest.mark.parametrize(
    ("states", "actions", "gamma", "alpha"),
    list(itertools.product((2, 3), (2, 3), (0.3, 0.9), (0.1, 1.0))),
)
def test_the_mean_step_contracts_by_the_rarest_mean_visit(states, actions, gamma, alpha) -> None:
    one = mdp(7, states, actions, gamma)
    policies = own_action_each(actions, states)
    problem = fg.Federation(one, policies, num_agents=actions)
    kernel, _ = tables(one)
    visits = np.mean(
        [stationary_law(kernel, policy)[:, None] * policy for policy in policies], axis=0
    )
    factor = 1 - alpha * (1 - gamma) * visits.min()
    rng = np.random.default_rng(1)
    star = value_iteration(one)
    np.testing.assert_allclose(mean_step(problem, star, alpha), star, atol=1e-9)
    for _ in range(20):
        first, second = rng.normal(size=(2, states * actions))
        gap = np.abs(mean_step(problem, first, alpha) - mean_step(problem, second, alpha)).max()
        assert gap <= factor * np.abs(first - second).max() + 1e-12
    shifted = mean_step(problem, first + 1.0, alpha) - mean_step(problem, first, alpha)
    np.testing.assert_allclose(np.abs(shifted).max(), factor, rtol=1e-9)


def test_a_cell_that_no_agent_reaches_is_named() -> None:
    policies = own_action_each()
    policies[2] = policies[1]
    policies[2, 0] = policies[0, 0] = policies[3, 0]
    problem = fg.Federation(mdp(), policies, num_agents=8)
    with pytest.raises(
        fg.ProblemError, match=r"no agent ever takes action 0 in state 0;.*positive"
    ):
        fg.fixed_point(problem, fg.QLearning())
    # A kind without agents does not count.
    policies = own_action_each()
    few = fg.Federation(mdp(), policies, num_agents=3, assignment=[0, 1, 3])
    with pytest.raises(fg.ProblemError, match="no agent ever takes action 2 in state 0"):
        fg.run(few, fg.QLearning(), step_size=0.1, sync_period=1, num_steps=1)


def test_theory_says_that_the_theorem_does_not_apply_and_that_the_algorithm_converges() -> None:
    problem = fg.Federation(mdp(), own_action_each(), num_agents=8)
    found = fg.theory.assumptions(problem, fg.QLearning())
    assert found.contraction == 1
    assert not found.holds
    assert "does not apply: gamma_c is 1" in str(found)
    assert "the algorithm converges" in str(found)
    assert found.heterogeneity == 0
    settings = {"step_size": 0.1, "sync_period": 5}
    with pytest.warns(RuntimeWarning, match=r"gamma_c < 1 fails.*theory\.assumptions"):
        bound = fg.theory.error_bound(problem, fg.QLearning(), num_steps=100, **settings)
    assert not bound.holds
    with pytest.raises(fg.ProblemError, match="theorem admits no step size"):
        fg.theory.schedule(problem, fg.QLearning(), num_steps=100)
    decay = fg.theory.default_output_decay(problem, fg.QLearning(), step_size=0.1, num_steps=100)
    assert decay == 0.99  # 1 - 1 / T, as where no norm is known


def test_the_small_step_law_holds_for_agents_that_cover_the_cells_together() -> None:
    problem = fg.Federation(mdp(), own_action_each(), num_agents=ACTIONS)
    settings = {"step_size": 0.01, "sync_period": 3}
    law = fg.theory.small_step_law(problem, fg.QLearning(), **settings)
    assert law.holds
    data = fg.run(
        problem, fg.QLearning(), num_steps=60_000, seeds=range(200), record=[60_000], **settings,
        initial_params=fg.fixed_point(problem, fg.QLearning()),
    ).data  # fmt: skip
    errors = data.squared_error_2[:, -1].values
    assert abs(errors.mean() - law.mse) < 4 * errors.std() / len(errors) ** 0.5 + 0.05 * law.mse


def test_own_fixed_points_are_shared_in_one_mdp_and_undefined_in_several() -> None:
    one = fg.Federation(mdp(), own_action_each(), num_agents=ACTIONS)
    points = fg.agent_fixed_points(one, fg.QLearning())
    np.testing.assert_allclose(points, np.tile(value_iteration(mdp()), (ACTIONS, 1)), atol=1e-9)
    assert fg.heterogeneity(one, fg.QLearning()) == 0
    mdps = [mdp(seed) for seed in range(ACTIONS)]
    several = fg.Federation(mdps, own_action_each(), num_agents=ACTIONS)
    for ask in (fg.agent_fixed_points, fg.heterogeneity):
        with pytest.raises(fg.ProblemError, match="kind 0 never takes action 1 in state 0"):
            ask(several, fg.QLearning())
    # Each cell is reached by one kind, so that the common point is that of the pieced MDP.
    kernel = np.stack([tables(mdps[k])[0][:, k] for k in range(ACTIONS)], axis=1)
    rewards = np.stack([tables(mdps[k])[1][:, k] for k in range(ACTIONS)], axis=1)
    pieced = value_iteration(fg.MDP(kernel, rewards, GAMMA))
    np.testing.assert_allclose(fg.fixed_point(several, fg.QLearning()), pieced, atol=1e-9)
    assert np.isnan(fg.theory.assumptions(several, fg.QLearning()).heterogeneity)


def test_a_federation_whose_nodes_cover_the_cells_together_runs(tmp_path) -> None:
    problem = fg.Federation(mdp(), own_action_each(), num_agents=ACTIONS)
    settings = {"step_size": 0.1, "sync_period": 7, "num_steps": 66}
    experiment = Experiment(problem, fg.QLearning(), record_params=True, **settings)
    homes = [(0, 3), (1, 2)]
    outcome, _ = serve(experiment, InMemory(spread(experiment, tmp_path, homes)), tmp_path)
    record = outcome.history.settings.record
    simulated = fg.run(problem, fg.QLearning(), record=record, record_params=True, **settings)
    np.testing.assert_allclose(
        outcome.history.data.average_params, simulated.data.average_params, rtol=0, atol=1e-12
    )
    save_share(experiment, [1], tmp_path / "share")
    assert load_share(tmp_path / "share").present == (1,)


def test_off_policy_td_with_own_ratios_would_learn_the_value_of_another_policy() -> None:
    one = mdp(3, 3, 3)
    kernel, rewards = tables(one)
    rng = np.random.default_rng(2)
    support = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])[:, None, :].repeat(3, axis=1)
    behaviors = rng.uniform(0.2, 1, (3, 3, 3)) * support
    behaviors /= behaviors.sum(axis=2, keepdims=True)
    target = rng.dirichlet(np.ones(3), 3)
    # The mean of ratio * (R + gamma V(S') - V(S)) over agents, state by state.
    matrix, offset, weights = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3))
    for behavior in behaviors:
        law = stationary_law(kernel, behavior)
        for s, a in np.argwhere(behavior > 0):
            ratio = target[s, a] / behavior[s, a]
            chance = law[s] * behavior[s, a]
            matrix[s] += chance * ratio * (np.eye(3)[s] - GAMMA * kernel[s, a])
            offset[s] += chance * ratio * rewards[s, a]
        weights += law[:, None] * (behavior > 0)
    limit = np.linalg.solve(matrix, offset)
    other = target * weights
    other /= other.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fg.policy_value(one, other), limit, rtol=1e-12)
    assert np.abs(fg.policy_value(one, target) - limit).max() > 1e-3
    problem = fg.Federation(
        one, behaviors, num_agents=3, target_policy=target, features=[[1.0], [2.0], [0.5]]
    )
    for algorithm in (fg.OffPolicyTabularTD(), fg.OffPolicyLinearTD(), fg.TDC()):
        with pytest.raises(
            fg.ProblemError,
            match=r"kind 0 never takes action 2 in state 0.*the value of another policy",
        ):
            fg.fixed_point(problem, algorithm)
