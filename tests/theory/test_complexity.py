"""The corollary's schedule against the theorem's conditions, and what an accuracy takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.theory.bound.bound import bound_from
from fegsam.theory.bound.complexity import complexity, complexity_from_bound
from fegsam.theory.bound.conditions import largest_alpha, largest_period
from fegsam.theory.bound.corollary import schedule, schedule_from
from helpers.assumed import assumed


class TestSchedule:
    def test_choice_is_the_corollarys(self) -> None:
        plan = schedule_from(assumed(beta=2.0), 10**9, heterogeneous=False)
        phi_2 = 0.06934766923300872
        assert plan.step_size * 2.0 == pytest.approx(8 * math.log(10 * 10**9) / (phi_2 * 10**9))
        assert (plan.sync_period, plan.communications) == (10**8, 10)

    @pytest.mark.parametrize("agents", [2, 10, 10**6])
    @pytest.mark.parametrize("steps", [10**20, 10**25, 10**30])
    def test_one_round_per_agent_violates_the_theorem_for_large_t(
        self, steps: int, agents: int
    ) -> None:
        """alpha K = 8 log(N T) / (phi_2 N) grows with T. All else holds, so it is K that is at
        fault."""
        plan = schedule_from(assumed(num_agents=agents), steps, heterogeneous=False)
        violated = [line.partition(":")[0] for line in plan.violations]
        assert violated == (["c2a", "c2b"] if agents < 1000 else ["c2b"])
        assert not plan.holds
        assert plan.advised_sync_period == plan.largest_sync_period < plan.sync_period
        advised = bound_from(
            assumed(num_agents=agents),
            step_size=plan.step_size,
            sync_period=plan.advised_sync_period,
            num_steps=steps,
        )
        assert advised.holds

    def test_short_runs_violate_the_step_conditions(self) -> None:
        plan = schedule_from(assumed(), 10**6, heterogeneous=False)
        assert "c1b" in {line.partition(":")[0] for line in plan.violations}

    def test_heterogeneous_choice_holds_but_wastes_rounds(self) -> None:
        given = assumed(num_agents=100, m_3=1.5, heterogeneity=0.3)
        steps = 10**24
        plan = schedule_from(given, steps, heterogeneous=True)
        assert plan.sync_period == 10**12 // 100
        assert plan.advised_sync_period == math.isqrt(10**22)
        assert plan.holds
        better = bound_from(
            given, step_size=plan.step_size, sync_period=plan.advised_sync_period, num_steps=steps
        )
        assert better.holds
        # Ten times fewer rounds at one and the same order, epsilon / (N T), of the term that they
        # cost.
        assert better.terms["heterogeneity"] < 1.01 * 100 * plan.bound.terms["heterogeneity"]
        assert steps // plan.advised_sync_period == pytest.approx(
            plan.communications / 10, rel=1e-6
        )

    def test_periods_are_whole_and_at_least_one(self) -> None:
        plan = schedule_from(assumed(num_agents=1000), 100, heterogeneous=True)
        assert plan.sync_period == plan.advised_sync_period == 1

    def test_one_agent_need_not_sync(self) -> None:
        plan = schedule_from(assumed(num_agents=1), 10**25, heterogeneous=False)
        assert plan.holds

    def test_it_shows_itself(self) -> None:
        plan = schedule_from(assumed(), 10**25, heterogeneous=False)
        assert "c2a, c2b" in str(plan)
        assert "c2a, c2b" in plan._repr_html_()


class TestComplexityOfTheBound:
    @pytest.mark.parametrize("accuracy", [1.0, 1e-2, 1e-6])
    @pytest.mark.parametrize(
        "changes",
        [{}, {"m_2": 1.0, "m_3": 1.0, "m_4": 1.0, "lag_sum": math.nan, "heterogeneity": 0.1}],
    )
    def test_bound_at_the_answer_is_below_the_accuracy(
        self, accuracy: float, changes: dict[str, Any]
    ) -> None:
        given = assumed(**changes)
        plan = complexity_from_bound(given, accuracy)
        settings = {"step_size": plan.step_size, "sync_period": plan.sync_period}
        bound = bound_from(given, num_steps=plan.num_steps, **settings)
        assert bound.holds
        assert 0.5 * accuracy < bound.total <= accuracy
        assert bound_from(given, num_steps=plan.num_steps * 9 // 10, **settings).total > accuracy
        assert plan.communications == plan.num_steps // plan.sync_period
        assert plan.parts == bound.terms

    def test_agents_share_the_steps_where_the_variance_rules(self) -> None:
        few, many = (complexity_from_bound(assumed(num_agents=N), 1e-12) for N in (10, 20))
        assert few.num_steps / many.num_steps == pytest.approx(2, rel=0.1)

    def test_step_never_exceeds_the_admissible_one(self) -> None:
        given = assumed()
        plan = complexity_from_bound(given, 1e9)
        assert plan.step_size == pytest.approx(largest_alpha(given, 1))
        assert plan.sync_period <= largest_period(given, plan.step_size)


def scalar(agents: int, matrix: float = -1.0) -> tuple[Any, Any]:
    """theta += alpha (noise - theta), noise +-2 by a fair coin around a mean of 3."""
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=agents)
    return noise, fg.LinearSA([[[matrix]], [[matrix]]], [[5.0], [1.0]])


class TestComplexityOfTheSmallStepLaw:
    @pytest.mark.parametrize("agents", [1, 5])
    @pytest.mark.parametrize("accuracy", [1.0, 1e-2, 1e-4])
    def test_scalar_average_reaches_the_accuracy(self, accuracy: float, agents: int) -> None:
        """E (avg_t - 3)^2 = (9 - v) (1 - a)^(2t) + v, v = 4 a / (N (2 - a)), exactly and for every
        K."""
        plan = complexity(*scalar(agents), accuracy=accuracy)
        a = plan.step_size
        v = 4 * a / (agents * (2 - a))

        def error(t: float) -> float:
            return (9 - v) * (1 - a) ** (2 * t) + v

        assert error(plan.num_steps) <= accuracy
        assert error(plan.num_steps * 0.7) > accuracy
        assert (
            plan.communications == 1
        )  # the agents are alike and unbiased: one average at the end will do

    def test_more_agents_need_fewer_steps(self) -> None:
        one, ten = (complexity(*scalar(N), accuracy=1e-6).num_steps for N in (1, 10))
        assert one / ten == pytest.approx(10, rel=0.01)

    def test_heterogeneous_agents_must_communicate(self) -> None:
        """Two kinds with A_i = 1, 2 and fixed points 1, 0; the drift is a (K-1) / 2 |A^-1 mean A_i
        b_i|, known by hand."""
        noise = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=4)
        algorithm = fg.LinearSA(
            np.array([[[[-1.0]]] * 2, [[[-2.0]]] * 2]), np.array([[[0.0], [2.0]], [[1.0], [-1.0]]])
        )
        accuracy = 1e-4
        plan = complexity(noise, algorithm, accuracy=accuracy)
        # theta* = 1/3, bbar = 1 - 1/3 = 2/3 and -2/3; mean A_i bbar_i = -(2/3 - 4/3) / 2 = 1/3; A =
        # -3/2.
        drift = plan.step_size * (plan.sync_period - 1) / 2 * (1 / 3) / 1.5
        assert plan.parts["bias"] == pytest.approx(drift**2, rel=1e-9)
        assert sum(plan.parts.values()) <= accuracy
        longer = plan.step_size * plan.sync_period / 2 * (1 / 3) / 1.5
        assert plan.parts["variance"] + longer**2 > accuracy / 2
        assert plan.communications > 1

    def test_coarse_accuracy_is_left_to_small_steps(self) -> None:
        plan = complexity(*scalar(4, matrix=-100.0), accuracy=1e3)
        assert plan.step_size <= 0.1 / 100
        assert plan.num_steps >= 1


@pytest.mark.parametrize("accuracy", [0, -1.0, math.nan, math.inf, "small", None])
def test_accuracy_must_be_positive(accuracy: Any) -> None:
    with pytest.raises(fg.ProblemError, match="accuracy"):
        complexity(*scalar(2), accuracy=accuracy)


def test_bad_input() -> None:
    with pytest.raises(fg.ProblemError, match="source"):
        complexity(*scalar(2), accuracy=0.1, source="guess")
    with pytest.raises(fg.ProblemError, match="num_steps"):
        schedule(*scalar(2), num_steps=1)
