"""The bound's five terms, the conditions it holds under, and the largest step that they admit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.theory.bound.bound import bound_from
from fegsam.theory.bound.conditions import largest_alpha, largest_period, step_conditions
from fegsam.theory.bound.constants import constants_from, mixing_window
from helpers.assumed import assumed

TERMS = ["initial", "variance", "local_steps", "heterogeneity", "higher_order"]
NOISY: dict[str, Any] = {
    "m_2": 3.0,
    "m_3": 1.5,
    "m_4": 2.0,
    "lag_sum": math.nan,
    "heterogeneity": 0.25,
}


def failing(found: Any) -> set[str]:
    return {condition.name for condition in found.conditions if not condition.holds}


@pytest.mark.parametrize("norm", ["sup", "2"])
def test_terms_are_those_of_the_theorem(norm: str) -> None:
    given = assumed(norm=norm, **NOISY)
    step, K, T = 1e-5, 7, 10**6
    found = bound_from(given, step_size=step, sync_period=K, num_steps=T)
    c = constants_from(given, step)
    tau = math.ceil(2 * math.log(step) / math.log(0.5))
    expected = [
        c.S_1 / step * (1 - step * c.phi_2 / 2) ** (T - 2 * tau),
        c.S_2 * step * tau**2 / 10,
        c.S_3 * 6 * step**2 * tau,
        c.S_4 * 36 * 0.25 * step**2 * tau,
        c.S_5 * step**3 * tau**2,
    ]
    assert list(found.terms) == TERMS
    assert list(found.terms.values()) == pytest.approx(expected, rel=1e-8)
    assert found.total == pytest.approx(sum(expected), rel=1e-8)


def test_linear_algorithms_use_alpha_times_beta() -> None:
    plain = bound_from(assumed(norm="2"), step_size=1e-6, sync_period=1, num_steps=10**9)
    scaled = bound_from(
        assumed(norm="2", beta=4.0), step_size=0.25e-6, sync_period=1, num_steps=10**9
    )
    assert scaled.terms == pytest.approx(plain.terms)
    assert largest_alpha(assumed(norm="2"), 1) == largest_alpha(assumed(norm="2", beta=4.0), 1)


def test_last_term_of_a_longer_window_goes_as_alpha_to_the_2r_minus_1() -> None:
    """As the paper remarks, with the sharper lemma on the average noise. Slopes are taken of the
    term over tau^2."""
    given = assumed(**NOISY)
    for r in (2, 3, 4):
        found = [
            bound_from(given, step_size=a, sync_period=1, num_steps=10**9, tau_factor=r)
            for a in (1e-28, 1e-30)
        ]
        values = [b.terms["higher_order"] / b.constants.tau**2 for b in found]
        assert math.log(values[0] / values[1]) / math.log(100) == pytest.approx(2 * r - 1, abs=1e-3)
    at_two = bound_from(given, step_size=1e-4, sync_period=1, num_steps=10**9)
    assert at_two.terms["higher_order"] == pytest.approx(
        at_two.constants.S_5 * 1e-12 * at_two.constants.tau**2
    )
    with pytest.raises(ProblemError, match="tau_factor"):
        bound_from(given, step_size=1e-4, sync_period=1, num_steps=10**9, tau_factor=1.5)


def test_one_agent_has_no_sync_period() -> None:
    alone = assumed(num_agents=1)
    settings: dict[str, Any] = {"step_size": 1e-8, "num_steps": 10**9}
    rare, always = (bound_from(alone, sync_period=K, **settings) for K in (10**9, 1))
    assert rare.terms == always.terms
    assert failing(rare) == failing(always)


def test_more_agents_divide_the_variance() -> None:
    few, many = (
        bound_from(assumed(num_agents=N), step_size=1e-8, sync_period=1, num_steps=10**12).terms[
            "variance"
        ]
        for N in (2, 64)
    )
    assert few == pytest.approx(32 * many)


@pytest.mark.parametrize("steps", [10**2, 10**12, 10**30])
@pytest.mark.parametrize("alpha", [1e-20, 1e-9, 0.5, 1e3])
def test_no_overflow_at_the_extremes(alpha: float, steps: int) -> None:
    found = bound_from(assumed(**NOISY), step_size=alpha, sync_period=10**12, num_steps=steps)
    assert not math.isnan(found.total) or alpha > 1
    assert found.holds == (not failing(found))
    str(found)


def test_initial_term_keeps_its_digits() -> None:
    """(1 - 5e-22)^(10^22) = e^-5, where 1 - 5e-22 rounds to 1."""
    given = assumed(norm="2", contraction=0.9)
    found = bound_from(given, step_size=1e-20, sync_period=1, num_steps=10**22)
    assert found.terms["initial"] / (found.constants.S_1 / 1e-20) == pytest.approx(
        math.exp(-5), rel=1e-9
    )


def test_vacuous_where_it_says_no_more_than_the_start() -> None:
    given = assumed()
    step = largest_alpha(given, 1)
    short, long = (
        bound_from(given, step_size=step / 1e4, sync_period=1, num_steps=T) for T in (10**6, 10**30)
    )
    assert short.vacuous
    assert long.total < 9.0
    assert not long.vacuous
    assert long.holds
    assert "informative" in str(long)
    assert "vacuous" in str(short)


def test_two_norm() -> None:
    weight = np.array([[2.0, 1.0], [1.0, 2.0]])
    settings: dict[str, Any] = {"step_size": 1e-8, "sync_period": 1, "num_steps": 10**9}
    weighted = bound_from(assumed(norm="weighted", weight=weight, dimension=2), **settings)
    assert weighted.total_2 == pytest.approx(weighted.total / 1.0)  # eigenvalues 1 and 3
    heavier = bound_from(assumed(norm="weighted", weight=4 * weight, dimension=2), **settings)
    assert heavier.total_2 == pytest.approx(heavier.total / 4)
    sup = bound_from(assumed(dimension=7), **settings)
    assert sup.total_2 == pytest.approx(7 * sup.total)


def test_beside_an_error() -> None:
    found = bound_from(assumed(), step_size=1e-8, sync_period=1, num_steps=10**9)
    beside = found.beside(found.total / 8)
    assert beside.ratio == pytest.approx(8)
    assert "8 times" in str(beside)
    assert "8 times" in beside._repr_html_()
    assert found.beside(0.0).ratio == math.inf


class TestConditions:
    def test_each_inequality_has_its_two_sides(self) -> None:
        given = assumed(**NOISY)
        found = bound_from(given, step_size=1e-4, sync_period=5, num_steps=1000)
        c, tau = found.constants, found.constants.tau
        sides = {condition.name: (condition.lhs, condition.rhs) for condition in found.conditions}
        root, phi = math.sqrt(1.25**2 + 1), c.phi_2
        expected = {
            "contraction": (0.9, 1.0),
            "c1a": (1e-4, 1 / (360 * tau * root**2)),
            "c1b": (1e-4, phi / (2 * c.C_15)),
            "c3a": (1e-4 * tau, 1 / (24 * root)),
            "c3b": (1e-4 * tau, 1 / (8 * 2.25)),
            "c4a": (1e-4, 1 / (3 * root)),
            "c4b": (1e-4, 1 / (8 * tau * (9 * root + 8))),
            "c4c": (1e-4, 1 / (40 * tau * 9 * root**2)),
            "c2a": (4e-4, math.sqrt(math.log(5 / 4) / (2 * (1 + 2 * 1.5**2 * 10)))),
            "c2b": (
                20 * 1e-8 * (2 * 1.25**2 * 10) * c.C_17 * c.u_cm**2 * (tau + 1) * 20,
                phi * (1 - 1e-4 * phi / 2) ** (5 + tau - 1),
            ),
            "T > K": (999, 5 + tau),
            "T > tau": (1000, 2 * tau),
        }
        assert list(sides) == list(expected)
        for name, pair in expected.items():
            assert sides[name] == pytest.approx(pair, rel=1e-9), name

    def test_sync_conditions_are_for_local_steps_only(self) -> None:
        given = assumed()
        names = {
            c.name
            for c in bound_from(given, step_size=1e-4, sync_period=1, num_steps=100).conditions
        }
        assert not names & {"c2a", "c2b"}

    def test_run_must_outlast_two_windows_and_a_round(self) -> None:
        given, step = assumed(), 1e-9
        tau = mixing_window(step, 0.5, 1)
        for T, K, names in (
            (2 * tau, 1, {"T > tau"}),
            (2 * tau + 1, 1, set()),
            (2 * tau + 1, tau, {"T > K"}),
        ):
            found = bound_from(given, step_size=step, sync_period=K, num_steps=T)
            assert failing(found) & {"T > tau", "T > K"} == names

    def test_violations_name_both_sides(self) -> None:
        found = bound_from(assumed(), step_size=0.1, sync_period=1, num_steps=10**6)
        assert not found.holds
        assert [line.partition(":")[0] for line in found.violations] == sorted(
            failing(found), key=lambda n: (n[:3], n)
        )
        assert "0.1 against" in found.violations[0]
        assert "FAILS" in str(found)
        assert "FAILS" in found._repr_html_()

    def test_no_norm_no_number(self) -> None:
        given = assumed(norm="2", contraction=math.nan, level="average-only")
        found = bound_from(given, step_size=1e-3, sync_period=5, num_steps=10**6)
        assert "contraction" in failing(found)
        assert math.isnan(found.total)
        assert found.vacuous
        with pytest.raises(ProblemError, match="average-only"):
            largest_alpha(given, 1)

    def test_an_unknown_constant_is_asked_for(self) -> None:
        with pytest.raises(ProblemError, match="B is not known"):
            largest_alpha(assumed(B=math.nan), 1)

    @pytest.mark.parametrize("seed", range(20))
    def test_the_papers_sync_conditions_imply_c2b(self, seed: int) -> None:
        """Eq. alpha_const_2, whose last two lines c2b replaces."""
        rng = np.random.default_rng(seed)
        given = assumed(
            contraction=rng.uniform(0.5, 0.99), rho=rng.uniform(0.1, 0.95), A_1=rng.uniform(1, 4)
        )
        hits = 0
        for alpha, K in itertools.product(10 ** rng.uniform(-14, -6, 40), (2, 5, 50, 1000)):
            c = constants_from(given, alpha)
            logs, v = (
                math.log(alpha) / math.log(c.rho),
                c.phi_2 / (80 * c.A_tilde_2 * c.C_17 * c.u_cm**2),
            )
            root = math.sqrt(math.log(5 / 4) / (2 * (1 + c.A_tilde_1)))
            printed = (
                alpha <= min(1 / c.phi_2, root / (K - 1)),
                alpha**2 * (logs + 1) <= v / (2 * K**2),
                alpha**2 * (logs + 1) ** 3 * math.exp(alpha * c.phi_2 * (2 * logs + 1))
                <= v / (4 * K) * math.exp(-c.phi_2 * root),
            )
            if all(printed):
                hits += 1
                assert all(
                    condition.holds
                    for condition in step_conditions(c, K)
                    if condition.name in ("c2a", "c2b")
                )
        assert hits


@pytest.mark.parametrize(("K", "tau"), [(2, 1), (5, 12), (20, 3), (50, 10), (7, 7)])
def test_repaired_count_of_the_local_steps(K: int, tau: int) -> None:
    """What c2b stands on, term by term: sum_t w_t sum_{l in [t-tau, t]} (l - sK) sum_{l'=sK}^{l-1}
    M_l', for unit M_l'."""
    T, c = 6 * K + 3 * tau, 0.97
    for unit in range(T):
        start = unit // K * K
        total = 0.0
        for t in range(2 * tau, T + 1):
            for l in range(max(t - tau, unit + 1), min(t, start + K - 1) + 1):
                total += c**-t * (l - start)
        assert total <= (tau + 1) * K * (K - 1) / 2 * c ** -(unit + K + tau - 1) * (1 + 1e-12)


class TestLargestStep:
    @pytest.mark.parametrize("K", [1, 10, 10**6])
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            NOISY,
            {"rho": 0.999},
            {"rho": 1e-6},
            {"rho": 0.0},
            {"horizon": 40, "rho": 0.1},
            {"norm": "2", "A_1": 0.5, "A_2": 0.5, "contraction": 0.1, "rho": 0.9, "m_1": 0.0},
            {"contraction": 1 - 1e-9},
        ],
    )
    def test_it_passes_and_nothing_above_does(self, changes: dict[str, Any], K: int) -> None:
        given = assumed(**changes)
        alpha = largest_alpha(given, K)

        def passes(step: float) -> bool:
            return all(
                condition.holds for condition in step_conditions(constants_from(given, step), K)
            )

        assert passes(alpha)
        # Just above, over the next jumps of tau, and far above.
        above = np.concatenate([1 + np.geomspace(1e-9, 1, 400), np.geomspace(2, 1 / alpha, 400)])
        assert not any(passes(alpha * factor) for factor in above)

    def test_drift_condition_binds(self) -> None:
        """c1b is the one that is met with equality."""
        for changes in ({}, NOISY, {"norm": "2"}, {"rho": 0.99}):
            given = assumed(**changes)
            conditions = step_conditions(constants_from(given, largest_alpha(given, 1)), 1)
            assert min((c.slack, c.name) for c in conditions if c.name != "contraction")[1] == "c1b"

    def test_longer_rounds_need_smaller_steps(self) -> None:
        given = assumed()
        steps = [largest_alpha(given, K) for K in (1, 10**3, 10**6, 10**9)]
        assert steps == sorted(steps, reverse=True)
        assert steps[-1] < steps[0]


@pytest.mark.parametrize("alpha", [1e-4, 1e-8, 1e-15, 1e-20])
def test_largest_period_passes_and_the_next_does_not(alpha: float) -> None:
    given = assumed(**NOISY)
    K, c = largest_period(given, alpha), constants_from(given, alpha)

    def passes(period: int) -> bool:
        return all(x.holds for x in step_conditions(c, period) if x.name in ("c2a", "c2b"))

    assert passes(K)
    step = max(1, K // 10**12)
    assert not passes(K + step)
