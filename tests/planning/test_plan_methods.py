"""Plans for methods: what plain averaging cannot reach, how rounds are counted, and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.planning import plan, plan_methods
from fegsam.planning.compare import candidates, with_own_points
from fegsam.planning.pilots import PilotSearch
from fegsam.planning.settings import Goal

BUDGET = 400
ACCURACY = 1e-3
RATES, POINTS, NOISES = np.array([1.0, 0.25]), np.array([1.0, 0.0]), np.array([1.0, 0.5])


def drifting(num_agents: int = 20) -> tuple[Any, Any]:
    """Two kinds with the mean operators ``rate (point - theta)``, and fair coins of noise."""
    noise = NOISES[:, None] * np.array([-1.0, 1.0])
    matrices = np.broadcast_to(-RATES[:, None, None, None], (2, 2, 1, 1))
    offsets = ((RATES * POINTS)[:, None] + noise)[:, :, None]
    chains = fg.MarkovNoise(np.full((2, 2, 2), 0.5), num_agents=num_agents)
    return chains, fg.LinearSA(matrices, offsets)


def least_rounds(num_agents: int = 20) -> int:
    """The fewest rounds after which plain averaging's error is small enough, in closed form.

    A round of K steps maps the mean to that of ``point + (1 - step rate)^K (theta - point)`` over
    the kinds, and each step adds the variance ``step^2 noise^2`` to an agent.
    """
    best, steps = BUDGET, np.geomspace(1e-4, 1.99, 2000)[:, None]
    for period in range(1, BUDGET + 1):
        left = (1.0 - steps * RATES) ** period
        fresh = (steps * NOISES) ** 2 * (1.0 - left**2) / (1.0 - (1.0 - steps * RATES) ** 2)
        theta, variance = np.zeros(len(steps)), np.zeros(len(steps))
        for rounds in range(1, min(best, BUDGET // period + 1)):
            theta = (POINTS + left * (theta[:, None] - POINTS)).mean(axis=1)
            variance = left.mean(axis=1) ** 2 * variance + fresh.mean(axis=1) / num_agents
            if ((theta - 0.8) ** 2 + variance).min() <= ACCURACY:
                best = rounds
                break
    return best


@pytest.fixture(scope="module")
def found() -> Any:
    methods = {name: candidates(drifting()[1])[name] for name in ("plain", "scafflsa")}
    return plan_methods(
        *drifting(), accuracy=ACCURACY, methods=methods, budget=BUDGET, verify_seeds=100
    )


@pytest.mark.slow
class TestDrift:
    def test_variates_need_fewer_rounds_than_any_plain_averaging(self, found) -> None:
        least = least_rounds()
        # A plan has a margin for its verification, and so needs a few more rounds.
        assert least <= found.plans["plain"].communications <= 2 * least
        assert found.plans["scafflsa"].communications < least
        assert found.best == "scafflsa"

    def test_every_plan_keeps_the_budget_and_the_accuracy(self, found) -> None:
        for each in found.plans.values():
            assert each.met
            assert each.num_steps <= BUDGET
            assert each.verified.value <= ACCURACY

    def test_a_plan_holds_in_a_run_of_other_seeds(self, found) -> None:
        best = found.plans["scafflsa"]
        history = fg.run(
            *drifting(),
            step_size=best.step_size,
            sync_period=best.sync_period,
            num_steps=best.num_steps,
            seeds=range(5000, 5400),
            record=[best.num_steps],
            method=best.method,
        )
        errors = history.data["squared_error_2"].values[:, -1]
        assert history.settings.communications == best.communications
        assert errors.mean() <= ACCURACY + 2 * errors.std() / np.sqrt(len(errors))

    def test_it_shows_itself_best_first(self, found) -> None:
        for text in (str(found), found._repr_html_()):
            assert text.index("scafflsa") < text.index("plain")
            assert "samples per agent" in text


@pytest.mark.slow
def test_two_communications_a_round_are_counted() -> None:
    found = plan(
        *drifting(2),
        accuracy=0.5,
        budget=2,
        verify_seeds=20,
        engine="reference",
        method=fg.methods.fedhsa(),
    )
    assert found.communications == 2 * found.num_steps // found.sync_period
    assert all(
        point.communications * point.sync_period == 2 * point.num_steps for point in found.tradeoff
    )


METHODS = {
    "plain": fg.Method(),
    "equal": fg.Method(fg.Mean((0.5, 0.5)), server=fg.Server(1.5)),
    "heavy": fg.Method(fg.Mean((0.9, 0.1))),
    "one": fg.Method(fg.Mean((0.9, 0.1)), participation=fg.Participation(1)),
}


class TestFixedPoints:
    LAST = "Measured from a fixed point that is not that of plain averaging: heavy"

    def test_only_weights_that_move_the_fixed_point_count(self) -> None:
        """One agent at a time counts in full, whatever its weight."""
        assert with_own_points(*drifting(2), METHODS) == ("heavy",)
        apart = fg.fixed_point(*drifting(2), method=METHODS["heavy"])
        assert apart == pytest.approx(36 / 37)
        assert fg.fixed_point(*drifting(2)) == pytest.approx(0.8)

    def test_the_table_says_whose_error_is_from_a_point_of_its_own(self) -> None:
        methods = {"plain": fg.Method()}
        found = plan_methods(
            *drifting(2), accuracy=0.3, methods=methods, budget=20, verify_seeds=20
        )
        assert found.own_points == ()
        assert "fixed point" not in str(found)
        moved = dataclasses.replace(found, own_points=("heavy",))
        assert str(moved).splitlines()[-1] == self.LAST
        assert self.LAST in moved._repr_html_()

    @pytest.mark.slow
    def test_plans_are_measured_from_the_point_of_the_method(self) -> None:
        methods = {"heavy": METHODS["heavy"]}
        found = plan_methods(
            *drifting(2), accuracy=0.05, methods=methods, budget=100, verify_seeds=50
        )
        assert found.plans["heavy"].met
        assert found.own_points == ("heavy",)


class TestCandidates:
    def test_importance_averaging_is_for_cells(self) -> None:
        assert "importance_averaging" in candidates(fg.QLearning())
        assert "importance_averaging" not in candidates(fg.OnPolicyTD())

    def test_step_sizes_under_importance_averaging_stay_below_one(self) -> None:
        federation = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=2)
        steps = []

        def engine(job: Any) -> fg.History:
            steps.append(job.settings.step_size)
            return fg.engines.Reference()(job)

        search = PilotSearch(
            federation, fg.QLearning(), 0.5, engine, method=fg.methods.importance_averaging()
        )
        settings = search.settings(Goal("communications", most_steps=4))
        assert max(steps) == 0.5
        assert all(setting.step_size < 1 for setting in settings)


class TestRefusals:
    def test_methods_without_names(self) -> None:
        unnamed: Any = [fg.Method()]
        with pytest.raises(fg.ProblemError, match="give a dict of methods by their names"):
            plan_methods(*drifting(), accuracy=0.1, methods=unnamed)

    def test_fixed_local_steps(self) -> None:
        with pytest.raises(fg.ProblemError, match="plan for a method without it"):
            plan(*drifting(), accuracy=0.1, method=fg.methods.fednova((1, 2)))

    def test_less_than_one_round(self) -> None:
        with pytest.raises(fg.ProblemError, match="communicates 2 times in a round"):
            plan(*drifting(), accuracy=0.1, goal="samples", budget=1, method=fg.methods.fedhsa())

    def test_no_method_reaches_it(self) -> None:
        with pytest.raises(fg.ProblemError, match="No method reaches it: A squared error of 1e-06"):
            plan_methods(*drifting(), accuracy=1e-6, budget=20, methods={"plain": fg.Method()})
