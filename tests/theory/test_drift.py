"""gamma_c, phi_2 and beta against golden numbers, measured operator norms and the paper's own
definitions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.exact.linear_field import LinearField
from fegsam.theory.assumptions.drift import Drift, drift, smooth_drift, sup_norm_drift
from fegsam.theory.assumptions.norms import linear_contraction
from helpers import golden


def linear_drift(matrices: np.ndarray) -> Drift:
    kinds = len(matrices)
    return smooth_drift(
        linear_contraction(
            LinearField(matrices, np.zeros(matrices.shape[:2])), np.full(kinds, 1 / kinds)
        )
    )


@pytest.mark.parametrize(("horizon", "contraction"), [(1, 13 / 16), (2, 23 / 32), (3, 43 / 64)])
def test_tabular_contraction_is_golden_and_the_measured_operator_norm(
    horizon: int, contraction: float
) -> None:
    fed = golden.federation()
    found = drift(fed, fg.OffPolicyTabularTD(horizon))
    assert found.norm_found
    assert found.beta == 1.0
    assert found.contraction == pytest.approx(contraction, rel=1e-14)
    ahead = np.linalg.matrix_power(0.5 * fed.mdps[0].policy_chain(golden.TARGET).toarray(), horizon)
    norms = [
        np.linalg.norm(np.eye(2) - np.diag(law) @ (np.eye(2) - ahead), np.inf)
        for law in (golden.STATIONARY_B1, golden.STATIONARY_B2)
    ]
    assert max(norms) == pytest.approx(found.contraction, rel=1e-14)


def test_q_contraction_counts_states_and_actions() -> None:
    found = drift(golden.federation(), fg.QLearning())
    rarest = min(
        (golden.STATIONARY_B1[:, None] * golden.B1).min(),
        (golden.STATIONARY_B2[:, None] * golden.B2).min(),
    )
    assert found.contraction == pytest.approx(1 - rarest / 2, rel=1e-14)
    assert found.drift == pytest.approx(sup_norm_drift(rarest / 2, dim=4).drift, rel=1e-14)


def test_drift_of_contraction_nine_tenths_is_golden() -> None:
    """For p > 2, l_cs^2 = 1/e whatever the dimension."""
    for dim in (3, 10, 10**6):
        assert sup_norm_drift(0.1, dim).drift == pytest.approx(0.06934766923300872, rel=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3, 50])
@pytest.mark.parametrize("contraction", ["0.999999999999", "0.99", "0.5", "0.001"])
def test_drift_follows_the_definitions(contraction: str, dim: int) -> None:
    with localcontext() as context:
        context.prec = 60
        gamma_c, d = Decimal(contraction), Decimal(dim)
        order = max(Decimal(2), 2 * d.ln())
        psi = ((1 + gamma_c) / (2 * gamma_c)) ** 2 - 1
        phi_1 = (1 + psi) / (1 + psi * d ** (-2 / order))
        phi_2 = 1 - gamma_c * phi_1.sqrt()
        found = sup_norm_drift(float(1 - gamma_c), dim)
    assert found.drift == pytest.approx(float(phi_2), rel=1e-14)
    gap = 1 - float(contraction)
    assert gap / 2 < found.drift <= gap * (1 + 1e-4)


def test_drift_where_one_step_forgets_everything() -> None:
    assert sup_norm_drift(1.0, dim=7).drift == pytest.approx(1.0, rel=1e-15)
    assert linear_drift(np.array([[[4.0]]])).drift == pytest.approx(1.0, rel=1e-12)
    bandit = fg.Federation(fg.examples.bandit([1.0], 0.5), num_agents=1, target_policy=[[1.0]])
    found = drift(bandit, fg.OffPolicyTabularTD(horizon=2000))
    assert (found.contraction, found.drift) == (0.0, pytest.approx(1.0))


def test_rare_states_keep_their_digits() -> None:
    """A state of probability 1e-14 leaves a drift between half the gap and the gap, not rounding
    noise."""
    chain = [[1 - 1e-14, 1e-14], [1.0, 0.0]]
    fed = fg.Federation(
        fg.MDP(np.array(chain)[:, None, :], [[0.0], [1.0]], 0.5),
        num_agents=1,
        target_policy=[[1.0]] * 2,
    )
    gap = 0.5 * 1e-14
    expected = sup_norm_drift(gap, 2).drift
    assert drift(fed, fg.OffPolicyTabularTD()).drift == pytest.approx(expected, rel=1e-12)
    assert gap / 2 < expected < gap


def random_matrices(count: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(count, dim, dim))
    return (
        raw @ raw.transpose(0, 2, 1) / dim
        + 0.5 * np.eye(dim)
        + 0.3 * (raw - raw.transpose(0, 2, 1))
    )


@pytest.mark.parametrize("seed", range(5))
def test_linear_contraction_is_the_smallest_over_beta(seed: int) -> None:
    matrices = random_matrices(3, 4, seed)
    found = linear_drift(matrices)

    def norm(s: float) -> float:
        return max(float(np.linalg.norm(np.eye(4) - s * matrix, 2)) for matrix in matrices)

    assert found.contraction == pytest.approx(norm(1 / found.beta), rel=1e-12)
    assert found.drift == pytest.approx(1 - found.contraction, rel=1e-9)
    assert found.contraction <= min(norm(s) for s in np.linspace(1e-3, 1, 2000)) + 1e-7


def test_scalar_kinds_meet_in_the_middle() -> None:
    """max |1 - s A| over A in {a, b} is smallest at s = 2 / (a + b)."""
    found = linear_drift(np.array([[[0.2]], [[0.3]], [[0.6]]]))
    assert found.beta == pytest.approx(0.4, rel=1e-6)
    assert found.contraction == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("horizon", [1, 4])
def test_on_policy_always_has_a_norm(horizon: int) -> None:
    mdp = fg.examples.garnet(12, 3, 2, 0.99, seed=1, connected=True)
    fed = fg.Federation(
        mdp,
        num_agents=2,
        target_policy=fg.policies.uniform(12, 3),
        features=np.random.default_rng(0).normal(size=(12, 5)),
    )
    found = drift(fed, fg.OnPolicyTD(horizon))
    assert found.norm_found
    assert 0 < found.drift == pytest.approx(1 - found.contraction)


def test_golden_linear_algorithms() -> None:
    """d = 1: A_i = phi' D_i (I - gamma P) phi are two numbers a and b, gamma_c = |a - b| / (a +
    b)."""
    fed = golden.federation()
    gap = golden.FEATURES - 0.5 * fed.mdps[0].policy_chain(golden.TARGET) @ golden.FEATURES
    laws = np.stack([golden.STATIONARY_B1, golden.STATIONARY_B2])
    for weights, preconditioned in ((laws, False), (laws / (laws @ golden.FEATURES**2), True)):
        a, b = weights @ (golden.FEATURES * gap)[:, 0]
        found = drift(fed, fg.OffPolicyLinearTD(preconditioned=preconditioned))
        assert found.contraction == pytest.approx(abs(a - b) / (a + b), rel=1e-5)
        assert found.beta == pytest.approx((a + b) / 2, rel=1e-6)


def test_no_norm_where_the_average_is_unstable() -> None:
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    fed = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    found = drift(fed, fg.OffPolicyLinearTD(int(data["n"])))
    assert not found.norm_found
    assert math.isnan(found.drift)


def test_linear_sa_contracts_with_negative_matrices() -> None:
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1)
    assert drift(noise, fg.LinearSA([[[-1.0]], [[-3.0]]], [[0.0], [0.0]])).beta == pytest.approx(
        2.0
    )
    assert not drift(noise, fg.LinearSA([[[1.0]], [[3.0]]], [[0.0], [0.0]])).norm_found


def test_rounding_that_eats_the_margin_finds_no_norm() -> None:
    assert math.isnan(linear_drift(np.array([[[1e-20, 1.0], [-1.0, 1e-20]]])).drift)


def own_rule(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = y - params[0]


@pytest.mark.parametrize(("norm", "expected"), [(2, 0.1), (math.inf, 0.06934766923300872)])
def test_own_rule_takes_the_contraction_that_it_is_given(norm: float, expected: float) -> None:
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=1)
    given = fg.StochasticApproximation(own_rule, dim=10, norm=norm, assumptions={"gamma_c": 0.9})
    assert drift(noise, given).drift == pytest.approx(expected, rel=1e-12)
    assert not drift(noise, fg.StochasticApproximation(own_rule, dim=10, norm=norm)).norm_found
