"""The constants against a second transcription of their definitions, their limits, and where the
paper's differ."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from typing import Any

import numpy as np
import pytest

from fegsam.errors import ProblemError
from fegsam.theory.bound.constants import constants_from, mixing_window
from fegsam.theory.bound.formulas import FORMULAS
from helpers.assumed import assumed


def by_hand(a: Any, alpha: float) -> dict[str, float]:
    """The corrected constants in plain Python, in the order in which the proofs need them."""
    tau = max(1, a.horizon, math.ceil(2 * math.log(1 / alpha) / math.log(1 / a.mixing.rho)))
    rho, g = a.mixing.rho, a.contraction
    if a.norm == "sup":
        p = max(2.0, 2 * math.log(a.dimension))
        L, lcs, lcD = p - 1, a.dimension ** (-1 / p), a.dimension**-0.5
        psi = ((1 + g) / (2 * g)) ** 2 - 1
    else:
        L = lcs = lcD = psi = 1.0
    X, u2, l2 = L / (psi * lcs**2), 1 + psi, 1 + psi * lcs**2
    phi1 = u2 / l2
    phi2 = 1 - g * math.sqrt(phi1)
    r = k = 1 / lcD
    out = {"tau": tau, "phi_1": phi1, "phi_2": phi2, "l_cm": math.sqrt(l2), "u_cm": math.sqrt(u2)}
    z1sq = phi2 / 10
    z2sq = phi2 / (20 * X * a.A_2)
    z3sq = phi2 / (10 * X * (a.A_1 + 1))
    out |= {
        "zeta_1": z1sq**0.5,
        "zeta_2": z2sq**0.5,
        "zeta_3": z3sq**0.5,
        "zeta_4": z1sq**0.5,
        "zeta_6": z1sq**0.5,
    }
    C1 = 3 * math.sqrt(a.A_2**2 + 1)
    C3 = a.m_4 * X
    C4 = X * X / 2
    C4 += X * alpha * a.A_2 * (1 + u2 / z2sq)
    C4 += X * alpha * (a.A_1 + 1) * (3 * u2 / (2 * z3sq) + 2)
    C4 += X * 3 * a.m_1 * alpha**2
    C5 = (
        X * (3 * u2 / (2 * z3sq) + 3 / 2) * (a.A_1 + 1)
        + X * a.A_2
        + X**2 * u2 / (2 * z1sq)
        + 3 * X * a.A_1**2 * alpha / 2
    )
    C6 = X / 2 * (3 * u2 / z3sq + 3) * (a.A_1 + 1) + X / 2 * a.m_1 * alpha
    C7 = alpha * a.m_4**2 * u2 * X**2 / (2 * z1sq)
    C8 = (1 + 3 * X) / 2
    C9 = 8 * r * a.B
    C10 = 8 * r * a.m_4 / (1 - rho)
    C11 = 8 * C1**2 * C3**2 * u2 / z1sq
    C12 = 8 * C4 * r**2 * a.B**2
    C13 = 8 * C4 * r**2 * a.m_4**2 / (1 - rho**2)
    C14 = tau**2 * (
        C7 + C3**2 * C9**2 / 2 + C11 * alpha + C3 * C10 * alpha + 6 * a.A_1 * C3 * alpha
    )
    C14 += tau**2 * (C13 * alpha**2 + C8 * r**2 * a.m_4**2 * alpha**6)
    C15 = tau**2 * u2 * (6 * a.m_1 * X + 3 * X * (a.A_2 + 1) ** 2 + 144 * (a.A_2**2 + 1) * C4)
    h = 0.5 if a.m_4 > 0 else 0.0
    C16 = tau**2 * (C8 * r**2 * a.B**2 + h + C12)
    C17 = 3 * a.A_1 * C3 + 8 * a.A_1**2 * C4 + C5 + C6
    out |= {
        "C_1": C1,
        "C_2": 3 * C1 + 8,
        "C_3": C3,
        "C_4": C4,
        "C_5": C5,
        "C_6": C6,
        "C_7": C7,
        "C_8": C8,
        "C_9": C9,
    }
    out |= {
        "C_10": C10,
        "C_11": C11,
        "C_12": C12,
        "C_13": C13,
        "C_14": C14,
        "C_15": C15,
        "C_16": C16,
        "C_17": C17,
    }
    lag = (
        4 * (a.m_2 + a.m_4) * rho / (a.B * (1 - rho))
        if math.isnan(a.lag_sum)
        else 8 * a.lag_sum / a.B
    )
    th0 = a.start_error
    M0 = ((a.B + (a.A_2 + 1) * (th0 + a.B / (2 * C1))) ** 2 / C1**2 + th0**2) / l2
    Bt = k * a.B
    out |= {
        "A_tilde_1": 2 * a.A_1**2 * k**2,
        "A_tilde_2": 2 * a.A_2**2 * k**2,
        "B_tilde": Bt,
        "Lag": lag,
        "M_0": M0,
    }
    out["S_1"] = 16 * u2 * M0 * (1 / math.log(1 / rho) + 1 / phi2)
    out["S_2"] = 8 * u2 * (C8 * r**2 * a.B**2 + h + C12) / phi2
    out["S_3"] = 80 * u2 * Bt**2 * C17 * (1 + lag) / phi2
    out["S_4"] = 160 * u2 * Bt**2 * C17 * a.m_3 / (phi2 * a.B)
    out["S_5"] = 8 * u2 * C14 / (tau**2 * phi2)
    return out


def random_assumptions(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    noisy = seed % 2 == 0
    return assumed(
        norm=("sup", "2", "weighted")[seed % 3],
        dimension=int(rng.integers(1, 60)),
        horizon=int(rng.integers(0, 5)),
        contraction=float(rng.uniform(0.3, 0.99)),
        A_1=float(rng.uniform(0.5, 9)),
        A_2=float(rng.uniform(0.5, 9)),
        B=float(rng.uniform(0.1, 20)),
        rho=float(rng.uniform(0.05, 0.98)),
        m_1=float(rng.uniform(0, 30)),
        m_2=float(rng.uniform(0, 30)) * noisy,
        m_3=float(rng.uniform(0, 3)),
        m_4=float(rng.uniform(0, 30)) * noisy,
        lag_sum=math.nan if noisy else float(rng.uniform(0, 3)),
        start_error=float(rng.uniform(0, 9)),
        beta=float(rng.uniform(0.1, 3)),
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_constant_equals_its_definition(seed: int) -> None:
    given = random_assumptions(seed)
    alpha = 10 ** np.random.default_rng(seed + 100).uniform(-9, -2)
    found = constants_from(given, alpha / given.beta)
    for name, value in by_hand(given, found.alpha).items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-300), name


def test_golden_values() -> None:
    """phi_2 = 1 - e^(1/2) (1 + g) / 2 / sqrt(e - 1 + ((1 + g) / 2g)^2) wherever 2 ln d > 2."""
    assert mixing_window(alpha=0.01, rho=0.8, horizon=1) == 42
    for dim in (3, 10, 1000):
        assert constants_from(assumed(dimension=dim), 1e-3).phi_2 == pytest.approx(
            0.06934766923300872, rel=1e-13
        )
    g = 0.99
    expected = 1 - 0.5 * math.sqrt(math.e) * (1 + g) / math.sqrt(
        math.e - 1 + ((1 + g) / (2 * g)) ** 2
    )
    assert constants_from(assumed(contraction=g), 1e-3).phi_2 == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(0.00685, rel=1e-3)


def test_window_waits_for_the_look_ahead_and_for_the_chain() -> None:
    assert mixing_window(alpha=0.5, rho=0.1, horizon=7) == 7
    assert mixing_window(alpha=2.0, rho=0.5, horizon=0) == 1
    assert mixing_window(alpha=1e-20, rho=0.0, horizon=3) == 4
    assert mixing_window(alpha=0.01, rho=0.8, horizon=1, factor=3) == 62
    for alpha in (1e-3, 1e-20):
        assert 0.8 ** mixing_window(alpha=alpha, rho=0.8, horizon=1) <= alpha**2


def test_rare_states_cost_no_digits() -> None:
    """gamma_c = 1 - 2^-40, where psi and phi_2 are differences of nearly equal numbers: against 60
    digits."""
    getcontext().prec = 60
    gap = Decimal(2) ** -40
    g, d = 1 - gap, Decimal(100)
    low = (-1 / d.ln()).exp() ** d.ln()  # d^(-2/p) = 1/e
    psi = ((1 + g) / (2 * g)) ** 2 - 1
    phi_1 = (1 + psi) / (1 + psi * low)
    found = constants_from(assumed(dimension=100, contraction=1 - 2.0**-40), 1e-20)
    assert found.psi == pytest.approx(float(psi), rel=1e-12)
    assert found.phi_2 == pytest.approx(float(1 - g * phi_1.sqrt()), rel=1e-12)


def test_inner_product_norms_need_no_equivalence() -> None:
    found = constants_from(assumed(norm="weighted", weight=np.eye(10), contraction=0.75), 1e-3)
    names = ("L", "psi", "l_cs", "u_cs", "l_cD", "u_cD", "l_c2", "u_c2", "phi_1", "X")
    assert [found[name] for name in names] == [1.0] * len(names)
    assert found.phi_2 == 0.25
    assert found.A_tilde_1 == pytest.approx(2 * found.A_1**2)


@pytest.mark.parametrize(
    "changes",
    [{"B": 0.0}, {"A_1": 0.0, "A_2": 0.0}, {"contraction": 0.0}, {"rho": 0.0}, {"dimension": 1}],
)
def test_degenerate_problems_have_finite_constants(changes: dict[str, Any]) -> None:
    found = constants_from(assumed(**changes), 1e-4)
    infinite = {name for name, value in found.items() if not math.isfinite(value)}
    assert infinite <= {"zeta_2"}
    assert found.S_1 > 0


def test_scaling_the_rewards_scales_variance_and_local_steps() -> None:
    """Rewards times s: b, theta* and hence B, the start error and the lags times s, nothing else.
    Not so as printed."""
    s = 1e-3
    given = assumed(lag_sum=0.7)
    scaled = assumed(lag_sum=0.7 * s, B=given.B * s, start_error=given.start_error * s)
    corrected, small = constants_from(given, 1e-6), constants_from(scaled, 1e-6)
    for name in ("S_1", "S_2", "S_3", "M_0", "C_16"):
        assert small[name] == pytest.approx(s**2 * corrected[name], rel=1e-12), name
    corrected, small = (
        constants_from(given, 1e-6, printed=True),
        constants_from(scaled, 1e-6, printed=True),
    )
    assert 1.0001 * s**2 * corrected.S_2 < small.S_2


class TestPrinted:
    """Each difference between the paper's statements and the corrected constants."""

    given = assumed(m_2=3.0, m_4=2.0, lag_sum=0.5, dimension=20)
    alpha = 1e-3
    fixed, paper = constants_from(given, alpha), constants_from(given, alpha, printed=True)

    def test_window_of_the_theorem_is_negative(self) -> None:
        golden = constants_from(assumed(rho=0.8), 0.01, printed=True)
        assert golden.tau == -41
        # The appendix, which defines C_14 to C_16, has it right.
        assert (
            pytest.approx(1, rel=0.5)
            == golden.C_16 / constants_from(assumed(rho=0.8, m_4=1e-9), 0.01).C_16
        )

    def test_drift_is_too_large(self) -> None:
        given = assumed(contraction=0.99)
        assert constants_from(given, 0.01).phi_2 == pytest.approx(0.00685, rel=2e-3)
        assert constants_from(given, 0.01, printed=True).phi_2 == pytest.approx(0.00804, rel=2e-3)
        assert self.paper.phi_2 == pytest.approx(1 - 0.9 * math.sqrt(self.paper.phi_1), rel=1e-12)

    def test_smooth_norm_of_few_states(self) -> None:
        two = constants_from(assumed(dimension=2), 0.01, printed=True)
        assert two.p == pytest.approx(1.386, rel=1e-3)
        assert two.l_cs == pytest.approx(0.6065, rel=1e-3)
        assert constants_from(assumed(dimension=2), 0.01).p == 2

    def test_power_of_alpha_in_c5(self) -> None:
        """In a smooth norm, where no other constant of C_5 differs."""
        fixed, paper = (
            constants_from(assumed(norm="2"), 0.1, printed=printed) for printed in (False, True)
        )
        assert pytest.approx(1.5 * 1.5**2 * (0.1 - 0.01), rel=1e-9) == fixed.C_5 - paper.C_5
        assert fixed.C_4 == paper.C_4

    def test_left_over_statements_of_an_older_lemma(self) -> None:
        rho, m2, r = 0.5, 3.0, math.sqrt(20)
        assert pytest.approx(8 * m2 * r / (1 - rho)) == self.paper.C_10
        assert pytest.approx(14 * self.paper.C_4 * r**2 * m2**2 / (1 - rho**2)) == self.paper.C_13
        c = self.paper
        parts = (
            c.C_7
            + c.C_11
            + c.C_3**2 * c.C_9**2 / 2
            + c.C_3 * c.C_10 * (1 + 2 * c.C_1)
            + 3 * c.A_1 * c.C_3
        )
        parts += c.C_13 + 2 * c.C_8 * r**2 * m2**2 * self.alpha**2
        tau = math.ceil(2 * math.log(self.alpha) / math.log(rho))
        assert pytest.approx(tau**2 * parts) == c.C_14
        assert pytest.approx(8 * c.u_cm**2 * parts / c.phi_2) == c.S_5

    def test_half_stays_without_m4(self) -> None:
        """Smooth norm again: S_2 phi_2 / (8 u_cm^2) differs by the half."""
        fixed, paper = (
            constants_from(assumed(norm="2"), 1e-3, printed=printed) for printed in (False, True)
        )
        assert pytest.approx(8 * 2 * 0.5 / 0.1, rel=1e-6) == paper.S_2 - fixed.S_2
        assert pytest.approx(0.5 * fixed.tau**2, rel=1e-6) == paper.C_16 - fixed.C_16

    def test_lags_and_double_square(self) -> None:
        assert self.paper.Lag == pytest.approx(4 * (3 + 2) * 0.5 / (2 * 0.5))
        assert self.fixed.Lag == pytest.approx(8 * 0.5 / 2)
        assert self.paper.B_tilde == pytest.approx(self.fixed.B_tilde**2)

    def test_formulas_say_so(self) -> None:
        assert "alpha^2" in self.paper.formula("C_5").partition("3/2 A_1^2")[2]
        assert "paper" in self.fixed.formula("C_5")
        assert "paper" not in self.fixed.formula("C_4")
        assert "negative" in self.paper.formula("tau")


def test_constants_read_like_a_mapping() -> None:
    found = constants_from(assumed(), 1e-3)
    assert list(found) == list(FORMULAS)
    assert found["C_4"] == found.C_4 == dict(found)["C_4"]
    assert "C_4" in found
    assert "C_4" in dir(found)
    assert all(found.formula(name).startswith(f"{name} = ") for name in found)
    with pytest.raises(AttributeError, match="C_99"):
        _ = found.C_99
    with pytest.raises(ProblemError, match="C_99"):
        found.formula("C_99")


def test_constants_show_themselves() -> None:
    found = constants_from(assumed(), 1e-3)
    text, html = str(found), found._repr_html_()
    assert len(text.splitlines()) == len(found) + 3
    assert "144" not in text
    assert html.count("<tr>") == len(found) + 1
    assert "corrected" in repr(found)
    assert "as printed" in repr(constants_from(assumed(), 1e-3, printed=True))
