"""TDC has the fixed point of off-policy TD and is stable where that one diverges; its structure is
that of its rule, so that all exact answers are about what runs."""

from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np
import pytest

import fegsam as fg
from cases import SMALL
from fegsam.algorithms.rule import Path
from fegsam.algorithms.structure import TransitionOperator, structure_of
from fegsam.experiments.spec.study import parse_study
from pseudocode import stationary_law


def matrices(problem: fg.Federation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, b and C of agents in one MDP, by sums over states and actions."""
    mdp, phi = problem.mdps[0], problem.features
    kernel = mdp.transitions.toarray().reshape(*mdp.rewards.shape, -1)
    law = np.mean(
        [stationary_law(kernel, problem.behavior_policies[k]) for k in problem.assignment], axis=0
    )
    chain = np.einsum("sa,sat->st", problem.target_policy, kernel)
    reward = (problem.target_policy * mdp.rewards).sum(axis=1)
    A = phi.T @ (law[:, None] * (phi - mdp.discount * chain @ phi))
    return A, phi.T @ (law * reward), phi.T @ (law[:, None] * phi)


def mean_matrix(problem: fg.Federation, ratio: float) -> np.ndarray:
    A, _, C = matrices(problem)
    return np.block([[A, C - A.T], [ratio * A, ratio * C]])


def unstable() -> fg.Federation:
    """Off-policy TD of each agent alone is stable here at n = 2, and the average is not."""
    data = np.load(FilePath(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    return fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )


@pytest.mark.parametrize("ratio", [0.1, 1.0, 30.0])
def test_fixed_point_is_that_of_off_policy_td_with_w_at_zero(ratio) -> None:
    problem = SMALL.federation(5, "policies")
    A, b, _ = matrices(problem)
    theta, w = fg.fixed_point(problem, fg.TDC(ratio)).reshape(2, -1)
    np.testing.assert_allclose(theta, np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_allclose(w, 0, atol=1e-12)
    np.testing.assert_allclose(theta, fg.fixed_point(problem, fg.OffPolicyLinearTD()), rtol=1e-9)
    own, others = (
        fg.heterogeneity(problem, algorithm)
        for algorithm in (fg.TDC(ratio), fg.OffPolicyLinearTD())
    )
    np.testing.assert_allclose(own, others, rtol=1e-9)


def test_tdc_is_stable_where_off_policy_td_diverges() -> None:
    problem = unstable()
    A, b, C = matrices(problem)
    assert np.linalg.eigvals(A).real.min() < -0.0037
    with pytest.raises(fg.ProblemError, match="unstable"):
        fg.fixed_point(problem, fg.OffPolicyLinearTD())
    for ratio in (0.03, 0.1, 1.0, 10.0, 100.0):
        slowest = np.linalg.eigvals(mean_matrix(problem, ratio)).real.min()
        assert 3e-5 < slowest < 6e-5
        theta, w = fg.fixed_point(problem, fg.TDC(ratio)).reshape(2, -1)
        np.testing.assert_allclose(theta, np.linalg.solve(A, b), rtol=1e-6)
        np.testing.assert_allclose(w, 0, atol=1e-9)
    # A ratio can be too small, but not above this one.
    enough = np.linalg.eigvals(np.linalg.solve(C, -(A + A.T) / 2)).real.max()
    assert 0.01 < enough < 1
    with pytest.raises(fg.ProblemError, match="unstable"):
        fg.fixed_point(problem, fg.TDC(0.01))


def test_a_run_stays_near_the_fixed_point_where_off_policy_td_diverges() -> None:
    problem = unstable()
    settings = {"step_size": 0.005, "sync_period": 10, "num_steps": 800_000, "record": 800_000}
    point = fg.fixed_point(problem, fg.TDC())
    start = point + np.concatenate([np.full(6, 1.0), np.zeros(6)])
    data = fg.run(problem, fg.TDC(), **settings, initial_params=start).data
    assert data.squared_error[0, 1] < 30
    plain = fg.run(
        problem,
        fg.OffPolicyLinearTD(),
        **settings,
        initial_params=start[:6],
        fixed_point=point[:6],
    ).data
    assert plain.squared_error[0, 1] > 1e9


@pytest.mark.parametrize("differ", ["policies", "mdps", "both"])
def test_the_structure_is_the_one_of_the_rule(differ) -> None:
    problem, algorithm = SMALL.federation(5, differ), fg.TDC(0.7)
    structure = structure_of(algorithm, problem)
    assert isinstance(structure, TransitionOperator)
    tables, params = algorithm.tables(problem), np.linspace(-1, 2, algorithm.dimension(problem))
    found = np.empty_like(params)
    for kind in range(problem.num_kinds):
        mdp, policy = (0 if differ == "policies" else kind), (0 if differ == "mdps" else kind)
        for s, a, after in np.ndindex(SMALL.states, 3, SMALL.states):
            path = Path(np.array([s, after]), np.array([a]), kind, mdp, policy)
            algorithm.rule(params, path, np.uint64(0), tables, found)
            matrix, offset = structure.terms(kind, *(np.array([i]) for i in (s, a, after)))
            np.testing.assert_allclose(matrix[0] @ params + offset[0], found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("differ", ["policies", "both"])
def test_the_small_step_law_is_the_limit_of_the_exact_error(differ) -> None:
    mdps = [fg.examples.garnet(5, 2, 3, discount=0.7, seed=seed) for seed in (0, 1)]
    problem = fg.Federation(
        mdps[0] if differ == "policies" else mdps,
        fg.policies.random(5, 2, count=2, seed=1),
        num_agents=3,
        target_policy=fg.policies.uniform(5, 2),
        features=[[1.0, s / 5] for s in range(5)],
    )
    gaps = []
    for step_size in (0.02, 0.01):
        settings = {"step_size": step_size, "sync_period": 4}
        exact = fg.exact.stationary_error(problem, fg.TDC(), **settings)
        law = fg.theory.small_step_law(problem, fg.TDC(), **settings)
        gaps.append(law.mse / exact - 1)
        mean = fg.exact.moments(problem, fg.TDC(), times=[20_000], order=1, **settings).mean[0]
        bias = mean - fg.fixed_point(problem, fg.TDC())
        assert np.linalg.norm(law.bias - bias) < 0.05 * np.linalg.norm(bias)
    assert abs(gaps[1]) < 0.06
    assert 1.6 < gaps[0] / gaps[1] < 2.4  # the omitted terms are of the next order


def test_the_bound_is_that_of_theorem_3_1() -> None:
    problem = SMALL.federation(5, "policies")
    found = fg.theory.assumptions(problem, fg.TDC())
    assert found.level in ("identity", "common")
    data = fg.run(problem, fg.TDC(), step_size=1e-3, sync_period=2, num_steps=200, record=200).data
    bound = fg.theory.error_bound(problem, fg.TDC(), step_size=1e-3, sync_period=2, num_steps=200)
    assert float(data.squared_error[0, -1]) < bound.total


def test_an_unstable_tdc_is_outside_the_theorem() -> None:
    assert not fg.theory.assumptions(unstable(), fg.TDC(0.01)).holds


def test_a_study_names_it(tmp_path) -> None:
    text = """
[study]
name = "corrected"
seeds = 2
[problem]
generator = "garnet"
states = 6
actions = 2
branching = 3
discount = 0.7
seed = 0
[problem.target]
kind = "uniform"
[problem.features]
kind = "random"
dim = 2
seed = 2
[algorithm]
name = "tdc"
ratio = 0.5
[run]
num_steps = 10
[grid]
num_agents = 2
sync_period = 5
step_size = 0.05
"""
    (cell,) = parse_study(text, directory=tmp_path).cells()
    assert cell.algorithm.name == "tdc"
    assert cell.algorithm.ratio == 0.5


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), "1", True])
def test_a_ratio_that_is_no_positive_number_is_refused(ratio) -> None:
    with pytest.raises(fg.ProblemError, match=r"ratio is .*give a positive number"):
        fg.TDC(ratio)


def test_what_it_needs_is_named() -> None:
    mdp, policy = fg.examples.two_state(), fg.policies.uniform(2, 2)
    with pytest.raises(fg.ProblemError, match=r"TDC is linear.*pass features="):
        fg.fixed_point(fg.Federation(mdp, policy, num_agents=1), fg.TDC())
    with pytest.raises(fg.ProblemError, match=r"TDC evaluates a policy.*pass target_policy="):
        fg.fixed_point(fg.Federation(mdp, policy, num_agents=1, features=[[1.0], [2.0]]), fg.TDC())


@pytest.mark.parametrize("sampling", ["markov", "iid"])
def test_first_step_variates_of_rounds_of_two_are_averaging_at_every_step(sampling) -> None:
    """The second step of a round is then corrected to the mean of all agents' first steps."""
    problem = fg.Federation(
        [fg.examples.garnet(3, 2, 2, discount=0.7, seed=seed) for seed in (0, 3)],
        fg.policies.random(3, 2, count=2, seed=1),
        num_agents=2,
        target_policy=fg.policies.uniform(3, 2),
        features=[[1.0], [0.5], [-0.5]],
    )
    settings = {"step_size": 0.2, "times": [0, 2, 8], "sampling": sampling, "order": 2}
    variates = fg.Method(correction=fg.ControlVariates("agent", "first_step"))
    found = fg.exact.moments(problem, fg.TDC(), sync_period=2, method=variates, **settings)
    plain = fg.exact.moments(problem, fg.TDC(), sync_period=1, **settings)
    np.testing.assert_allclose(found.mse, plain.mse, rtol=1e-9)
