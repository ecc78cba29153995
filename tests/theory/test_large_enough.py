"""From which number of steps on the theorem admits the corollary's schedule, or why from none."""

from __future__ import annotations

import math

import pytest

import fegsam as fg
from fegsam.reproduction.corollary import setting
from fegsam.theory.bound.large_enough import violations_at


def test_agents_that_differ_have_a_number_of_steps_that_is_large_enough() -> None:
    """The problem of the demo: at T = 4e4 not even the step size is admitted, from 6e9 on
    everything is."""
    algorithm, federate = setting(5, "Two states", 0.5)
    problem = federate(8)
    given, found = (
        fg.theory.assumptions(problem, algorithm),
        fg.theory.large_enough(problem, algorithm),
    )
    assert found.heterogeneous
    assert found.holds
    assert found.why.endswith("and at all larger T that were checked, 8 per decade up to 1e+30")
    assert "c1a" in violations_at(given, 40_000, True)
    first = round(found.num_steps)
    assert violations_at(given, math.floor(first * (1 - 1e-5)), True)
    for steps in (first, 10**12, 10**15, 10**18, 10**30):
        assert not violations_at(given, steps, True)
        assert fg.theory.schedule(problem, algorithm, num_steps=steps).holds


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("agents", [2, 8, 64])
def test_agents_that_agree_have_none_and_c2a_is_why(number: int, agents: int) -> None:
    algorithm, federate = setting(number, "Two states", 0.5)
    problem = federate(agents)
    given, found = (
        fg.theory.assumptions(problem, algorithm),
        fg.theory.large_enough(problem, algorithm),
    )
    assert not found.heterogeneous
    assert not found.holds
    first = max(1, math.ceil(math.exp(found.log_fails_from)))
    for factor in (1, 3, 10, 10**3, 10**9, 10**20):
        assert "c2a" in violations_at(given, first * factor, False)
    assert "fails for every larger T" in found.why


def test_the_inequality_of_the_proof_is_below_the_truth() -> None:
    """alpha (K - 1) >= 4 log(N T) / (phi_2 N) for T >= 4 N."""
    algorithm, federate = setting(3, "Two states", 0.5)
    for agents in (2, 5, 16):
        given = fg.theory.assumptions(federate(agents), algorithm)
        phi_2 = fg.theory.large_enough(federate(agents), algorithm).drift
        for steps in (4 * agents, 4 * agents + agents - 1, 10**3, 10**6 + 1, 10**12):
            plan = fg.theory.schedule(federate(agents), algorithm, num_steps=steps)
            spread = plan.step_size * given.beta * (plan.sync_period - 1)
            assert spread >= 4 * math.log(agents * steps) / (phi_2 * agents)


def test_so_many_agents_that_the_proof_begins_beyond_all_numbers_have_a_proof_too() -> None:
    algorithm, federate = setting(1, "Two states", 0.5)
    found = fg.theory.large_enough(federate(10**5), algorithm)
    assert not found.holds
    assert "10^" in found.why
