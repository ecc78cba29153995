"""Goals, budgets, refusals and the parts of the planner; `test_held_out` judges its plans."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.planning import plan
from fegsam.planning.pilots import PilotSearch
from fegsam.planning.round_law import AffineSteps, RoundLaw
from fegsam.planning.search import Search
from fegsam.planning.settings import Goal, Setting, frontier

BUDGET = 600


def noise_problem(rng: np.random.Generator) -> tuple[Any, Any]:
    """Two kinds of agents with different matrices and offsets: rare averaging costs accuracy."""
    kernels = rng.dirichlet(np.ones(3), size=(2, 3))
    matrices = -np.eye(2) * rng.uniform(0.3, 1.0, (2, 3, 1, 1)) + 0.1 * rng.normal(
        size=(2, 3, 2, 2)
    )
    offsets = 1.0 + 0.5 * rng.normal(size=(2, 3, 2))
    return fg.MarkovNoise(kernels, num_agents=400), fg.LinearSA(matrices, offsets)


def off_policy_problem(rng: np.random.Generator) -> tuple[Any, Any]:
    seed = int(rng.integers(10**6))
    mdp = fg.examples.garnet(4, 2, 3, discount=0.6, seed=seed, connected=True)
    features = rng.uniform(-1.0, 1.0, (4, 2))
    policies = 0.8 * fg.policies.random(4, 2, count=2, seed=seed) + 0.1
    target = fg.policies.random(4, 2, count=1, seed=seed + 1)[0]
    federation = fg.Federation(
        mdp, policies, num_agents=400, target_policy=target, features=features
    )
    return federation, fg.OffPolicyLinearTD()


def environments_problem(rng: np.random.Generator) -> tuple[Any, Any]:
    """Every agent follows the same policy, in one of two environments."""
    seed = int(rng.integers(10**6))
    mdps = [
        fg.examples.garnet(4, 2, 3, discount=0.6, seed=seed + k, connected=True) for k in range(2)
    ]
    features = rng.uniform(-1.0, 1.0, (4, 2))
    policy = fg.policies.uniform(4, 2)
    return fg.Federation(
        mdps, num_agents=400, target_policy=policy, features=features
    ), fg.OnPolicyTD()


MAKERS = (noise_problem, off_policy_problem, environments_problem)


def example(number: int) -> tuple[Any, Any, float]:
    """Problem, algorithm and an accuracy between what one round reaches and what a synchronisation
    each step does."""
    rng = np.random.default_rng(1000 + number)
    problem, algorithm = MAKERS[number % 3](rng)
    search = Search(RoundLaw(problem, algorithm), accuracy=1.0)
    rare, often = search.best(BUDGET, 1).error, search.best(1, BUDGET).error
    return problem, algorithm, 3 * often * (rare / often) ** rng.uniform(0.1, 0.7)


def coin(num_agents: int = 4) -> tuple[Any, Any]:
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=num_agents)
    return noise, fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])


class TestGoals:
    def test_agents_that_agree_meet_once(self) -> None:
        found = plan(*coin(), accuracy=1e-3)
        assert (found.communications, found.source, found.met) == (1, "exact", True)
        assert found.predicted == pytest.approx(found.verified.value, rel=0.4)

    def test_fewest_samples_take_no_more_steps_than_fewest_communications(self) -> None:
        problem, algorithm, accuracy = example(24)
        rare = plan(problem, algorithm, accuracy=accuracy)
        short = plan(problem, algorithm, accuracy=accuracy, goal="samples")
        assert rare.met
        assert short.met
        assert short.num_steps < rare.num_steps
        assert short.communications > rare.communications

    def test_budget_of_communications_is_kept(self) -> None:
        problem, algorithm, accuracy = example(24)
        free = plan(problem, algorithm, accuracy=accuracy, goal="samples")
        bound = plan(
            problem, algorithm, accuracy=accuracy, goal="samples", budget=free.communications // 2
        )
        assert bound.met
        assert bound.communications <= free.communications // 2
        assert bound.num_steps >= free.num_steps

    def test_tradeoff_falls(self) -> None:
        problem, algorithm, accuracy = example(24)
        found = plan(problem, algorithm, accuracy=accuracy)
        rounds = [point.communications for point in found.tradeoff]
        steps = [point.num_steps for point in found.tradeoff]
        assert len(rounds) > 2
        assert rounds == sorted(rounds)
        assert steps == sorted(steps, reverse=True)
        assert all(
            point.num_steps == point.communications * point.sync_period for point in found.tradeoff
        )
        assert rounds[0] == found.communications

    def test_it_shows_itself(self) -> None:
        found = plan(*coin(), accuracy=1e-3, verify_seeds=50)
        for text in (str(found), found._repr_html_()):
            assert "exact moments" in text
            assert "Trade-off" in text
            assert ": met" in text


class TestRefusals:
    def test_unreachable_accuracy_is_said_in_one_sentence(self) -> None:
        with pytest.raises(
            fg.ProblemError,
            match=r"out of reach within 20 steps, where about .* is the least found",
        ):
            plan(*coin(), accuracy=1e-6, budget=20)

    def test_unreachable_with_few_communications(self) -> None:
        """One kind goes to 2, the other stays at 0. Without synchronisation their average goes to
        1, with it to 1.6."""
        noise = fg.MarkovNoise(np.full((2, 2, 2), 0.5), num_agents=4)
        algorithm = fg.LinearSA(
            matrices=[[[[-1.0]]] * 2, [[[-0.25]]] * 2], offsets=[[[1.0], [3.0]], [[-1.0], [1.0]]]
        )
        with pytest.raises(
            fg.ProblemError, match=r"out of reach within 1 communications, where about 0\.36 "
        ):
            plan(noise, algorithm, accuracy=0.01, goal="samples", budget=1)
        assert plan(noise, algorithm, accuracy=0.01, goal="samples", budget=100).met

    def test_unreachable_by_pilots(self) -> None:
        federation = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=2)
        with pytest.raises(fg.ProblemError, match="out of reach within 30 steps"):
            plan(federation, fg.QLearning(), accuracy=1e-6, budget=30)

    def test_unreachable_by_pilots_with_few_communications(self) -> None:
        def rule(params: Any, y: int, kind: int, out: Any) -> None:
            out[0] = 0.5 * (2.0 - params[0]) if kind == 0 else -0.125 * params[0]

        noise = fg.MarkovNoise(np.full((2, 2, 2), 0.5), num_agents=4)
        with pytest.raises(
            fg.ProblemError, match=r"out of reach within 1 communications, where about 0\.36 "
        ):
            plan(
                noise,
                fg.StochasticApproximation(rule, dim=1),
                accuracy=0.01,
                goal="samples",
                budget=1,
            )

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"accuracy": 0.0}, "accuracy is 0.0"),
            ({"goal": "speed"}, "goal is 'speed'"),
            ({"budget": 0}, "budget is 0"),
            ({"verify_seeds": 1}, "verify_seeds is 1"),
        ],
    )
    def test_bad_values_are_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(fg.ProblemError, match=message):
            plan(*coin(), **{"accuracy": 0.1, **changes})


class TestPilots:
    def test_q_learning_is_planned_by_pilots(self) -> None:
        mdp = fg.examples.garnet(4, 2, 3, discount=0.6, seed=0, connected=True)
        federation = fg.Federation(mdp, fg.policies.random(4, 2, count=2, seed=0), num_agents=8)
        start = fg.fixed_point(federation, fg.QLearning())
        found = plan(federation, fg.QLearning(), accuracy=0.01 * float(start @ start))
        assert (found.source, found.met) == ("pilot", True)
        assert found.communications <= 4

    def test_a_rule_of_the_users_own(self) -> None:
        def rule(params: Any, y: int, kind: int, out: Any) -> None:
            out[0] = 0.5 * math.tanh(params[0]) - params[0] + y

        noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=8)
        found = plan(noise, fg.StochasticApproximation(rule, dim=1), accuracy=0.01)
        assert (found.source, found.met) == ("pilot", True)

    @pytest.mark.slow
    def test_pilots_find_about_as_few_communications_as_the_law(self) -> None:
        problem, algorithm, accuracy = example(24)
        goal = Goal("communications", most_steps=BUDGET)
        by_pilots = goal.best(PilotSearch(problem, algorithm, accuracy, "cpu").settings(goal))
        by_law = goal.best(Search(RoundLaw(problem, algorithm), accuracy).settings(goal))
        assert by_law.communications <= by_pilots.communications <= 2 * by_law.communications


class TestLaw:
    def test_squaring_is_stepping(self) -> None:
        rng = np.random.default_rng(0)
        matrix, offset, noise = 0.4 * rng.normal(size=(3, 3)), rng.normal(size=3), np.eye(3)
        one = AffineSteps(matrix, offset, noise)
        mean, covariance = np.ones(3), np.zeros((3, 3))
        for _ in range(13):
            mean, covariance = matrix @ mean + offset, matrix @ covariance @ matrix.T + noise
        found = one.times(13)
        assert found.error(np.ones(3)) == pytest.approx(mean @ mean + np.trace(covariance))

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_many_rounds_of_small_steps_end_in_the_small_step_law(self, number: int) -> None:
        """Both are right to first order in alpha, so their gap is of order alpha: here 1e-3."""
        problem, algorithm, _ = example(number)
        law = fg.theory.small_step_law(problem, algorithm, step_size=1e-3, sync_period=4)
        assert RoundLaw(problem, algorithm).error(1e-3, 4, 10**6) == pytest.approx(
            law.mse, rel=0.01
        )

    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize(("period", "rounds"), [(1, 300), (20, 15), (300, 1)])
    def test_it_is_near_the_exact_error_on_the_way(
        self, number: int, period: int, rounds: int
    ) -> None:
        problem, algorithm, _ = example(number)
        settings = {"step_size": 0.02, "sync_period": period}
        exact = fg.exact.moments(
            problem, algorithm, times=[period * rounds], order=1, **settings
        ).mse[0]
        assert RoundLaw(problem, algorithm).error(0.02, period, rounds) == pytest.approx(
            exact, rel=0.15
        )


def test_frontier_drops_what_is_beaten() -> None:
    best, beaten = Setting(0.1, 10, 2, 0.1), Setting(0.1, 10, 3, 0.1)
    assert frontier([beaten, best]) == [best]


def test_planning_needs_no_extra() -> None:
    extras = {"pydantic", "plotly", "ray", "matplotlib"}
    code = f"import sys, fegsam.planning; print(sorted({extras} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
