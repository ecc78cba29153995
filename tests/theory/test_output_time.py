"""The law of the output time: its probabilities, its draws, and no overflow or cancellation at any
size."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import fegsam as fg
from fegsam.theory import default_output_decay, output_time_distribution
from fegsam.theory.assumptions.drift import drift
from helpers import golden


def test_four_steps_at_one_half_weigh_one_two_four_eight() -> None:
    law = output_time_distribution(4, 0.5)
    np.testing.assert_allclose(law.probabilities(), np.array([1, 2, 4, 8]) / 15, rtol=1e-15)
    np.testing.assert_allclose(law.cdf([0, 1, 2, 3]), np.array([1, 3, 7, 15]) / 15, rtol=1e-15)
    assert law.mean == pytest.approx((2 + 8 + 24) / 15, rel=1e-15)
    draws = law.draw(np.random.default_rng(0).random(150_000))
    assert draws.dtype == np.int64
    counts = np.bincount(draws)
    assert len(counts) == 4
    assert chisquare(counts, 10_000 * np.array([1, 2, 4, 8])).pvalue > 1e-4


@pytest.mark.parametrize(
    ("steps", "decay"),
    [(1, 0.3), (2, 1e-300), (50, 0.9), (1000, 1e-3), (1000, 1 - 1e-15), (999, 0.5)],
)
def test_probabilities_are_those_of_the_definition(steps: int, decay: float) -> None:
    law = output_time_distribution(steps, decay)
    with localcontext() as context:
        context.prec = 50
        context.Emin = -(10**9)
        weights = [Decimal(decay) ** (steps - 1 - t) for t in range(steps)]
        expected = np.array([float(w / sum(weights)) for w in weights])
        mean = float(sum(t * w for t, w in enumerate(weights)) / sum(weights))
    np.testing.assert_allclose(law.probabilities(), expected, rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(
        law.cdf(np.arange(steps)), np.cumsum(expected), rtol=1e-11, atol=1e-300
    )
    assert law.mean == pytest.approx(mean, rel=1e-13)
    assert law.mean >= (steps - 1) / 2


@pytest.mark.parametrize("decay", [0.4, 0.97, 1 - 1e-9])
def test_draws_invert_the_cdf_at_every_edge(decay: float) -> None:
    law = output_time_distribution(40, decay)
    edges = law.cdf(np.arange(40))
    inside = edges[:-1][(edges[:-1] > 0) & (np.diff(edges) > 1e-14)]
    times = np.flatnonzero((edges[:-1] > 0) & (np.diff(edges) > 1e-14))
    np.testing.assert_array_equal(law.draw(inside), times + 1)
    np.testing.assert_array_equal(law.draw(np.nextafter(inside, 0)), times)
    assert law.draw(0.0) == 0
    assert law.draw(math.nextafter(1, 0)) == 39


@pytest.mark.parametrize(
    "decay", [1e-300, 0.5, 1 - 1e-6, 1 - 1e-12, 1 - 1e-15, math.nextafter(1, 0)]
)
@pytest.mark.parametrize("steps", [1, 10, 10**6, 10**12])
def test_draws_are_right_at_every_size(steps: int, decay: float) -> None:
    law = output_time_distribution(steps, decay)
    u = np.concatenate([[0.0, 2.0**-53], np.random.default_rng(1).random(2000), [1 - 2.0**-53]])
    t = law.draw(u)
    assert t.min() >= 0
    assert t.max() <= steps - 1
    # The draws cover the law: below t at most u, up to t more than u, up to the rounding of the cdf
    # itself.
    assert np.all(law.cdf(t - 1) <= u + 1e-15)
    assert np.all(law.cdf(t) > u * (1 - 1e-12) - 1e-15)
    assert np.all(np.diff(law.draw(np.sort(u))) >= 0)
    error = law.draw((np.arange(20_000) + 0.5) / 20_000).mean() - law.mean
    assert abs(error) <= 0.5 + 1e-3 * steps


def test_small_uniforms_reach_the_early_times() -> None:
    """At rate T = 40 the time of u = 2^-53 is exactly computable: (1/rate) ln(1 + u (e^40 - 1))."""
    steps = 10**9
    law = output_time_distribution(steps, math.exp(-40 / steps))
    expected = math.log1p(2.0**-53 * math.expm1(40)) / -math.log(law.decay)
    assert law.draw(2.0**-53) == pytest.approx(expected, abs=2 + 1e-12 * steps)


def test_times_outside_have_no_probability() -> None:
    law = output_time_distribution(3, 0.5)
    np.testing.assert_array_equal(law.probabilities([-1, 3, 10**6]), 0)
    np.testing.assert_array_equal(law.cdf([-5, 2, 7]), [0, 1, 1])


@pytest.mark.parametrize(
    ("steps", "decay"), [(0, 0.5), (2.5, 0.5), (3, 0.0), (3, 1.0), (3, 1.5), (3, math.nan)]
)
def test_impossible_laws_are_refused(steps: Any, decay: float) -> None:
    with pytest.raises(fg.ProblemError, match=r"num_steps|decay"):
        output_time_distribution(steps, decay)


@pytest.mark.parametrize("u", [-0.1, 1.0, math.nan])
def test_uniforms_outside_are_refused(u: float) -> None:
    with pytest.raises(fg.ProblemError, match=r"\[0, 1\)"):
        output_time_distribution(3, 0.5).draw(u)


@pytest.mark.parametrize(
    "algorithm", [fg.OnPolicyTD(), fg.OffPolicyTabularTD(), fg.QLearning(), fg.OffPolicyLinearTD()]
)
def test_default_decay_is_the_theorems(algorithm: Any) -> None:
    found = drift(golden.federation(), algorithm)
    decay = default_output_decay(golden.federation(), algorithm, step_size=0.125, num_steps=1000)
    assert decay == pytest.approx(1 - 0.125 * found.beta * found.drift / 2, rel=1e-15)
    assert (found.beta == 1.0) == (algorithm.norm == "sup")


def test_default_decay_without_a_norm_or_with_a_step_out_of_range() -> None:
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1)
    growing, shrinking = (fg.LinearSA([[[a]], [[a]]], [[0.0], [0.0]]) for a in (1.0, -1.0))
    assert default_output_decay(noise, growing, 0.1, 1000) == pytest.approx(0.999)
    assert default_output_decay(noise, shrinking, 0.1, 1000) == pytest.approx(0.95)
    for step_size in (2.5, 1e-30):
        assert default_output_decay(noise, shrinking, step_size, 1000) == pytest.approx(0.999)
    assert default_output_decay(noise, growing, 0.1, 1) == Fraction(1, 2)
    assert 0 < default_output_decay(noise, growing, 0.1, 10**18) < 1
