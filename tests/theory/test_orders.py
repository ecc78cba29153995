"""The orders of the sup-norm theorems, measured on the constants themselves; the printed ones are
refuted alongside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import fegsam as fg
from fegsam.theory.bound.conditions import largest_alpha
from fegsam.theory.bound.constants import Constants, constants_from
from fegsam.theory.bound.orders import orders
from helpers.assumed import assumed

HORIZON = 2
QUANTITIES: dict[str, Callable[[Constants], float]] = {
    "initial": lambda c: c.S_1,
    "variance": lambda c: c.S_2,
    "local_steps": lambda c: c.S_3,
    "sample complexity": lambda c: max(c.S_2 / c.phi_2, c.S_3 / c.phi_2**2),
}


def at_largest_step(*, mu_min: float, gap: float, size: int, ratio: float) -> Constants:
    """Tabular TD with n = 2 and closed-form A and B; `gap` is 1 - gamma."""
    gamma = 1 - gap
    products = sum((gamma * ratio) ** k for k in range(HORIZON))
    A, B = 1 + (1 + gamma) * ratio * products, 2 * ratio / gap * products
    given = assumed(
        dimension=size,
        horizon=HORIZON,
        contraction=1 - mu_min * (1 - gamma**HORIZON),
        A_1=A,
        A_2=A,
        B=B,
        m_1=8 * A,
        start_error=1 / gap,
        lag_sum=B,
    )
    return constants_from(given, largest_alpha(given, 1))


BASE: dict[str, Any] = {"mu_min": 1e-4, "gap": 1e-3, "size": 10**9, "ratio": 10.0}
RANGES: dict[str, tuple[str, Any, Any]] = {
    "mu_min": ("mu_min", 1e-5, 1e-6),
    "1-gamma": ("gap", 1e-4, 1e-5),
    "|S|": ("size", 10**9, 10**12),
    "I_max": ("ratio", 1e4, 1e5),
}


def slope(quantity: str, symbol: str) -> float:
    name, first, second = RANGES[symbol]
    values = [
        QUANTITIES[quantity](at_largest_step(**(BASE | {name: value}))) for value in (first, second)
    ]
    growth = math.log(values[1] / values[0])
    if symbol == "|S|" and quantity != "initial":  # beside log^2 d, which is taken out
        growth -= 2 * math.log(math.log(second) / math.log(first))
    return growth / math.log(second / first)


@pytest.mark.parametrize("symbol", RANGES)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_constants_grow_as_corrected_and_not_as_printed(quantity: str, symbol: str) -> None:
    order = orders(fg.OffPolicyTabularTD(HORIZON))[quantity]
    measured = slope(quantity, symbol)
    corrected, printed = order.corrected.get(symbol, 0), order.printed.get(symbol, 0)
    assert measured == pytest.approx(corrected, abs=0.02)
    if printed != corrected:
        assert abs(measured - printed) > 0.9


def test_every_printed_order_is_refuted_somewhere() -> None:
    table = orders(fg.OffPolicyTabularTD(HORIZON))
    assert not any(table[name].agree for name in QUANTITIES)


def test_q_learning_counts_actions() -> None:
    table = orders(fg.QLearning)
    assert table["variance"].corrected["|A|"] == 1
    assert "|A|" not in table["variance"].printed
    assert "I_max" not in table["variance"].printed
    assert table["local_steps"].corrected["|S|"] == 1


def test_heterogeneous_communication() -> None:
    """T / K for K = sqrt(T) / N and sqrt(T / N), at T = 1 / (N epsilon): by counting, as epsilon
    and N vary."""

    def communications(agents: float, accuracy: float, *, printed: bool) -> float:
        T = 1 / (agents * accuracy)
        return T / (math.sqrt(T) / agents if printed else math.sqrt(T / agents))

    order = orders(fg.OffPolicyLinearTD)["communication"]
    for printed, exponents in ((True, order.printed), (False, order.corrected)):
        base = communications(100, 1e-8, printed=printed)
        by_agents = math.log10(communications(1000, 1e-8, printed=printed) / base)
        by_accuracy = math.log10(communications(100, 1e-7, printed=printed) / base)
        assert by_agents == pytest.approx(exponents.get("N", 0), abs=1e-9)
        assert by_accuracy == pytest.approx(exponents["epsilon"], abs=1e-9)


@pytest.mark.parametrize(
    "algorithm", [fg.OnPolicyTD, fg.OffPolicyLinearTD(), fg.LinearSA, fg.StochasticApproximation]
)
def test_every_algorithm_has_a_table(algorithm: Any) -> None:
    table = orders(algorithm)
    assert table["variance"].corrected["N"] == -1
    assert "communication" in str(table)
    assert "<table>" in table._repr_html_()


def test_other_things_have_none() -> None:
    with pytest.raises(fg.ProblemError, match="orders"):
        orders(3)
