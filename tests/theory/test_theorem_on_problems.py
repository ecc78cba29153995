"""The theorem on actual problems: through `assumptions`, beside the exact error, and beside the
paper's lemmas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fegsam as fg
from fegsam.exact.moments import moments, weighted_error
from fegsam.theory.assumptions.assumptions import assumptions
from fegsam.theory.bound.bound import error_bound, largest_step
from fegsam.theory.bound.complexity import complexity
from fegsam.theory.bound.conditions import largest_sync_period
from fegsam.theory.bound.constants import constants
from fegsam.theory.bound.corollary import schedule
from fegsam.theory.bound.output_time import default_output_decay
from helpers import golden

ALGORITHMS = [fg.OnPolicyTD(), fg.OffPolicyLinearTD(), fg.OffPolicyTabularTD(), fg.QLearning()]


def random_federation(num_agents: int = 10, scale: float = 1.0, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    mdp = fg.MDP(rng.dirichlet(np.ones(5), size=(5, 2)), scale * rng.uniform(0, 1, (5, 2)), 0.9)
    return fg.Federation(
        mdp,
        (fg.policies.random(5, 2, count=2, seed=seed + 1) + fg.policies.uniform(5, 2)) / 2,
        num_agents=num_agents,
        target_policy=fg.policies.uniform(5, 2),
        features=np.column_stack([np.ones(5), rng.uniform(-1, 1, 5)]),
    )


@pytest.mark.parametrize(
    ("algorithm", "drift", "alpha", "start", "variance", "local"),
    [
        (fg.OnPolicyTD(), 0.4, 5e-8, 4e2, 1.5e4, 2.5e10),
        (fg.OffPolicyLinearTD(), 0.25, 2e-9, 8e2, 1.3e5, 1.7e12),
        (fg.OffPolicyTabularTD(), 0.01, 6e-15, 2e4, 5e9, 1.5e15),
        (fg.QLearning(), 0.003, 6e-16, 2e5, 1.7e11, 1.9e16),
    ],
)
def test_orders_of_magnitude_on_a_random_problem(
    algorithm: Any, drift: float, alpha: float, start: float, variance: float, local: float
) -> None:
    """Five states, two actions, gamma = 0.9: within a factor of a hundred of another draw of the
    same problem."""
    found = constants(random_federation(), algorithm)
    assert abs(math.log10(found.phi_2 / drift)) < 1
    for value, other in (
        (found.alpha, alpha),
        (found.S_1, start),
        (found.S_2, variance),
        (found.S_3, local),
    ):
        assert abs(math.log10(value / other)) < 2


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_largest_step_is_admitted_and_c1b_binds(algorithm: Any) -> None:
    fed = random_federation()
    step = largest_step(fed, algorithm)
    found = error_bound(fed, algorithm, step_size=step, sync_period=1, num_steps=10**30)
    assert found.holds
    assert (
        min(
            (c.slack, c.name)
            for c in found.conditions
            if c.name[0] == "c" and c.name != "contraction"
        )[1]
        == "c1b"
    )
    assert not error_bound(
        fed, algorithm, step_size=1.001 * step, sync_period=1, num_steps=10**30
    ).holds
    assert not error_bound(fed, algorithm, step_size=0.01, sync_period=1, num_steps=10**30).holds
    longest = largest_sync_period(fed, algorithm, step_size=step)
    assert error_bound(fed, algorithm, step_size=step, sync_period=longest, num_steps=10**30).holds


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_output_time_and_bound_share_their_decay(algorithm: Any) -> None:
    """c of q_T^c is the c whose powers the initial term falls by."""
    fed, step = random_federation(), 1e-3
    decay = default_output_decay(fed, algorithm, step, 10**6)
    one, two = (
        error_bound(fed, algorithm, step_size=step, sync_period=1, num_steps=10**4 + more).terms[
            "initial"
        ]
        for more in (0, 1)
    )
    assert two / one == pytest.approx(decay, rel=1e-9)


@pytest.mark.parametrize(
    "algorithm", [fg.OffPolicyTabularTD(), fg.OffPolicyTabularTD(2), fg.QLearning()], ids=str
)
def test_scaled_rewards_scale_the_bound(algorithm: Any) -> None:
    settings: dict[str, Any] = {"step_size": 1e-16, "sync_period": 5, "num_steps": 10**20}
    plain, scaled = (
        error_bound(random_federation(scale=s), algorithm, **settings) for s in (1.0, 1e-3)
    )
    for name in ("variance", "local_steps", "initial"):
        assert scaled.terms[name] == pytest.approx(1e-6 * plain.terms[name], rel=1e-9)


@pytest.mark.parametrize("sync_period", [1, 4])
@pytest.mark.parametrize(
    "algorithm", [fg.OnPolicyTD(), fg.OffPolicyLinearTD()], ids=lambda a: type(a).__name__
)
def test_bound_is_above_the_exact_error(algorithm: Any, sync_period: int) -> None:
    """At the largest step, and at one that the theorem does not admit, where it is above all the
    same."""
    fed = golden.federation(num_agents=4)
    admitted = largest_step(fed, algorithm, sync_period=sync_period)
    for step, steps in ((admitted, 10**3), (admitted, 10**9), (0.01, 10**4)):
        settings: dict[str, Any] = {
            "step_size": step,
            "sync_period": sync_period,
            "num_steps": steps,
        }
        found = error_bound(fed, algorithm, **settings)
        assert found.holds == (step == admitted)
        decay = default_output_decay(fed, algorithm, step, steps)
        exact = weighted_error(fed, algorithm, decay=decay, order=1, **settings)
        assert found.beside(exact).ratio > 100


@pytest.mark.parametrize("algorithm", ALGORITHMS[:2], ids=lambda a: type(a).__name__)
def test_small_step_plan_reaches_its_accuracy(algorithm: Any) -> None:
    fed, accuracy = random_federation(num_agents=6), 0.01
    plan = complexity(fed, algorithm, accuracy=accuracy)
    settings: dict[str, Any] = {"step_size": plan.step_size, "sync_period": plan.sync_period}
    exact = moments(fed, algorithm, times=[plan.num_steps // 2, plan.num_steps], **settings).mse
    assert exact[1] < 1.05 * accuracy < exact[0]


class TestPrintedLemmas:
    fed = golden.federation()

    def test_tabular_contraction_and_size_of_the_steps(self) -> None:
        """mu_min = 3/8, I_max = 2, gamma = 1/2: gamma_c = 23/32 for 13/16 at n = 1, A without the
        outer I_max."""
        for n, contraction, products in (
            (1, 1 - 3 / 8 * (1 - 1 / 4), 1),
            (2, 1 - 3 / 8 * (1 - 1 / 8), 2),
        ):
            paper = constants(self.fed, fg.OffPolicyTabularTD(n), step_size=1e-3, printed=True)
            assert paper.gamma_c == pytest.approx(contraction)
            assert pytest.approx(1 + 1.5 * products) == paper.A_1 == paper.A_2
            assert pytest.approx(2 * 2 / 0.5 * products) == paper.B
        assert constants(
            self.fed, fg.OffPolicyTabularTD(), step_size=1e-3
        ).gamma_c == pytest.approx(13 / 16)

    def test_q_learning_forgets_the_actions(self) -> None:
        paper = constants(self.fed, fg.QLearning(), step_size=1e-3, printed=True)
        fixed = constants(self.fed, fg.QLearning(), step_size=1e-3)
        assert (paper.A_1, fixed.A_1, paper.B) == (2, 1, 4)
        assert paper.p == pytest.approx(2 * math.log(2))
        assert fixed.p == pytest.approx(2 * math.log(4))
        assert paper.l_cD == pytest.approx(2**-0.5)
        assert fixed.l_cD == pytest.approx(4**-0.5)
        assert paper.m_1 == pytest.approx(4 * assumptions(self.fed, fg.QLearning()).mixing.m)

    def test_on_policy_contraction_from_eigenvalues(self) -> None:
        """One parameter: delta = lambda_max = |A|, so gamma_c = 7/8 and beta = 2 |A|; corrected it
        is 0 and |A|."""
        paper = constants(self.fed, fg.OnPolicyTD(), step_size=1e-3, printed=True)
        fixed = constants(self.fed, fg.OnPolicyTD(), step_size=1e-3)
        assert paper.gamma_c == pytest.approx(7 / 8)
        assert paper.beta == pytest.approx(2 * fixed.beta, rel=1e-6)
        assert pytest.approx(fixed.B / 2, rel=1e-6) == paper.B
        assert paper.m_4 == 0 < fixed.m_4
        assert paper.m_2 < fixed.m_2

    def test_nothing_is_printed_for_other_algorithms(self) -> None:
        paper = constants(self.fed, fg.OffPolicyLinearTD(), step_size=1e-3, printed=True)
        fixed = constants(self.fed, fg.OffPolicyLinearTD(), step_size=1e-3)
        assert (paper.gamma_c, paper.A_1, paper.m_4) == (fixed.gamma_c, fixed.A_1, fixed.m_4)
        assert paper.C_5 != fixed.C_5


def own_rule(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = 0.5 * math.tanh(params[0]) - params[0] + y


def test_bound_for_a_rule_of_ones_own() -> None:
    noise = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=4)
    given = {"gamma_c": 0.5, "A_1": 0.5, "A_2": 0.5, "B": 0.5}
    algorithm = fg.StochasticApproximation(own_rule, dim=1, assumptions=given)
    step = largest_step(noise, algorithm)
    found = error_bound(noise, algorithm, step_size=step, sync_period=1, num_steps=10**12)
    assert found.holds
    assert found.constants.phi_2 == 0.5
    assert found.total > 0


def test_unstable_average_has_no_bound() -> None:
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    fed = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    algorithm = fg.OffPolicyLinearTD(int(data["n"]))
    found = error_bound(fed, algorithm, step_size=1e-6, sync_period=1, num_steps=10**9)
    assert not found.holds
    assert found.violations[0].startswith("contraction")
    assert math.isnan(found.total)
    assert math.isnan(constants(fed, algorithm, step_size=1e-6).S_2)
    for ask in (largest_step, constants):
        with pytest.raises(fg.ProblemError, match="unstable"):
            ask(fed, algorithm)


def test_independent_draws_are_forgotten_after_the_window() -> None:
    """Every action leads to either state with probability 1/2: rho = 0, tau = n + 1, and everything
    is finite."""
    mdp = fg.MDP(np.full((2, 2, 2), 0.5), [[1.0, 0.0], [0.0, 0.5]], 0.5)
    fed = fg.Federation(
        mdp, num_agents=4, target_policy=fg.policies.uniform(2, 2), features=[[1.0], [0.5]]
    )
    for algorithm in (fg.OnPolicyTD(3), fg.OffPolicyTabularTD(3)):
        step = largest_step(fed, algorithm)
        found = error_bound(fed, algorithm, step_size=step, sync_period=1, num_steps=10**12)
        assert found.holds
        assert found.constants.tau == 4
        assert math.isfinite(found.total)


def test_corollary_finds_out_whether_agents_differ() -> None:
    fed = golden.federation()
    assert not schedule(fed, fg.OffPolicyTabularTD(), num_steps=10**9).heterogeneous
    assert schedule(fed, fg.OffPolicyLinearTD(), num_steps=10**9).heterogeneous
    assert not schedule(
        fed, fg.OffPolicyLinearTD(), num_steps=10**9, heterogeneous=False
    ).heterogeneous


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_size": 0.0},
        {"step_size": math.nan},
        {"sync_period": 0},
        {"num_steps": 0},
        {"num_steps": 1.5},
    ],
)
def test_bad_input(wrong: dict[str, Any]) -> None:
    settings = {"step_size": 0.1, "sync_period": 1, "num_steps": 10} | wrong
    with pytest.raises(fg.ProblemError, match=next(iter(wrong))):
        error_bound(golden.federation(), fg.OffPolicyTabularTD(), **settings)
