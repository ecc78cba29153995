"""What exact moments refuse under methods, in one sentence with its cure."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fegsam as fg
from helpers import golden
from helpers.scalar_problems import pulled, two_unequal

GIVEN = {"step_size": 0.1, "sync_period": 4}


def refused(says: str, method: fg.Method, **changes) -> None:
    problem, algorithm = two_unequal()
    with pytest.raises(fg.ProblemError, match=says):
        fg.exact.moments(problem, algorithm, times=[4], method=method, **GIVEN | changes)


def test_rounding_without_dither_is_not_linear() -> None:
    refused("dither=True", fg.Method(rounding=fg.Rounding(0.1)))


def test_agents_that_wait_are_sampled() -> None:
    refused("others='go_on'", fg.Method(participation=fg.Participation(agents=1)))


def test_tail_over_steps_of_agents_that_wait_is_sampled() -> None:
    method = fg.Method(participation=fg.Participation(probability=0.5, divide_by="all"))
    with pytest.raises(fg.ProblemError, match="over='syncs'"):
        fg.exact.tail_error(*two_unequal(), num_steps=10, tail=0.5, method=method, **GIVEN)


def test_first_step_variates_need_all_agents() -> None:
    some = fg.Participation(agents=1, others="go_on")
    refused(
        "leave out participation",
        fg.Method(correction=fg.ControlVariates("kind", "first_step"), participation=some),
    )


def test_weights_by_visits_are_refused_for_linear_algorithms() -> None:
    problem = golden.federation()
    with pytest.raises(fg.ProblemError, match="ByVisits"):
        fg.exact.moments(
            problem,
            fg.OffPolicyTabularTD(),
            times=[4],
            method=fg.methods.importance_averaging(),
            **GIVEN,
        )


def test_variates_of_many_agents_are_by_kind() -> None:
    problem = fg.MarkovNoise(np.full((1, 2, 2), 0.5), num_agents=9)
    algorithm = two_unequal()[1]
    algorithm = fg.LinearSA(algorithm.matrices[:1], algorithm.offsets[:1])
    with pytest.raises(fg.ProblemError, match="of='kind'"):
        fg.exact.moments(problem, algorithm, times=[4], method=fg.methods.scafflsa(), **GIVEN)


def test_q_learning_is_sampled_under_every_method() -> None:
    with pytest.raises(fg.ProblemError, match="not linear"):
        fg.exact.moments(
            golden.federation(), fg.QLearning(), times=[4], method=fg.methods.fedavgm(0.5), **GIVEN
        )


def test_weights_of_too_many_groups_are_sampled() -> None:
    agents = 30
    weights = np.arange(1.0, agents + 1)
    problem = fg.MarkovNoise(np.full((1, 2, 2), 0.5), num_agents=agents)
    base = two_unequal()[1]
    with pytest.raises(fg.ProblemError, match="too many cases"):
        fg.exact.moments(
            problem,
            fg.LinearSA(base.matrices[:1], base.offsets[:1]),
            times=[4],
            method=fg.Method(
                fg.Mean(tuple(weights / weights.sum())),
                participation=fg.Participation(probability=0.5, others="go_on"),
            ),
            **GIVEN,
        )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "momentum"}, "method is"),
        ({"schedule": 0.5}, "schedule is"),
        ({"sync_period": ()}, "sync_period is empty"),
        ({"method": fg.Method(local_steps=fg.LocalSteps((2, 9)))}, "sync_period=4"),
    ],
)
def test_settings_that_make_no_run_are_named(changes, says) -> None:
    problem, algorithm = two_unequal()
    with pytest.raises(fg.ProblemError, match=says):
        fg.exact.moments(problem, algorithm, times=[4], **GIVEN | changes)


def test_a_tail_needs_something_to_average() -> None:
    with pytest.raises(fg.ProblemError, match="larger fraction"):
        fg.exact.tail_error(*two_unequal(), num_steps=10, tail=fg.Tail(0.1, "syncs"), **GIVEN)


def test_limit_of_a_diverging_method_names_a_step_size() -> None:
    """First-step variates diverge where the agents' slopes are far apart and rounds are long."""
    problem, algorithm = pulled((1.0, 0.05), (1.0, 0.0), (1.0, 1.0))
    method = fg.Method(correction=fg.ControlVariates("agent", "first_step"))
    with pytest.raises(fg.ProblemError, match=r"converges at step_size=([\d.e-]+)\.") as error:
        fg.exact.stationary_error(problem, algorithm, step_size=0.1, sync_period=400, method=method)
    step = float(str(error.value).rsplit("=", 1)[1].rstrip("."))
    slopes = np.array([1.0, 0.05])

    def slope(step_size: float) -> float:
        psi = (1 - (1 - step_size * slopes) ** 400) / slopes
        return float(1 - psi.mean() * slopes.mean())

    assert slope(0.1) < -1
    assert -1 < slope(step) < 1
    star = fg.fixed_point(problem, algorithm)
    found = fg.exact.moments(
        problem, algorithm, step_size=step, sync_period=400, method=method, times=[0, 400, 800]
    )
    gaps = found.mean[:, 0] - star[0]
    assert_allclose(gaps[1:] / gaps[:-1], slope(step), rtol=1e-8)
