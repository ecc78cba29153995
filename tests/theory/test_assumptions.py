"""What the theorem assumes, against operator norms, windows enumerated in plain Python, and the
golden problem's fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cases
import fegsam as fg
from fegsam.theory.assumptions import sharp
from fegsam.theory.assumptions.assumptions import Assumptions, assumptions
from helpers import golden

LINEAR = ("alg2", "alg5", "alg5-preconditioned")


def windows(
    problem: Any, algorithm: Any, kind: int
) -> Iterator[tuple[list[int], list[int], float]]:
    """Every window (states, actions) of a kind and its probability given the first state."""
    mdp = problem.mdps[kind % len(problem.mdps)]
    policies = algorithm.policies(problem)
    policy = policies[kind % len(policies)]
    transitions = mdp.transitions.toarray().reshape(problem.num_states, problem.num_actions, -1)

    def extend(
        states: list[int], actions: list[int], chance: float
    ) -> Iterator[tuple[list[int], list[int], float]]:
        if len(actions) == algorithm.window:
            yield states, actions, chance
            return
        s = states[-1]
        for a, after in itertools.product(range(problem.num_actions), range(problem.num_states)):
            if policy[s, a] * transitions[s, a, after] > 0:
                yield from extend(
                    [*states, after],
                    [*actions, a],
                    chance * policy[s, a] * transitions[s, a, after],
                )

    for first in range(problem.num_states):
        yield from extend([first], [], 1.0)


def step(
    problem: Any, algorithm: Any, kind: int, states: list[int], actions: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """M and c of the increment ``M theta + c`` that one window gives."""
    mdp = problem.mdps[kind % len(problem.mdps)]
    tabular = isinstance(algorithm, fg.OffPolicyTabularTD)
    phi = np.eye(problem.num_states) if tabular else problem.features
    row = phi[states[0]]
    if getattr(algorithm, "preconditioned", False):
        law = fg.exact.kind_stationary_laws(problem, algorithm)[kind]
        row = np.linalg.solve(phi.T @ np.diag(law) @ phi, row)
    policies = algorithm.policies(problem)
    weight, functional, reward = 1.0, np.zeros(phi.shape[1]), 0.0
    for l, (s, a) in enumerate(zip(states[:-1], actions, strict=True)):
        weight *= problem.target_policy[s, a] / policies[kind % len(policies)][s, a]
        scale = problem.discount**l * weight
        functional += scale * (problem.discount * phi[states[l + 1]] - phi[s])
        reward += scale * mdp.rewards[s, a]
    return np.outer(row, functional), row * reward


def norm_of(found: Assumptions, x: np.ndarray) -> float:
    """The c-norm of a vector, or the operator norm of a matrix."""
    if found.norm == "sup":
        return float(np.linalg.norm(x, np.inf))
    root = np.eye(found.dimension) if found.weight is None else np.linalg.cholesky(found.weight).T
    return float(np.linalg.norm(root @ x @ np.linalg.inv(root) if x.ndim == 2 else root @ x, 2))


@pytest.mark.parametrize(
    ("n", "expected"), [(1, Fraction(13, 16)), (2, Fraction(23, 32)), (3, Fraction(43, 64))]
)
def test_golden_contraction(n: int, expected: Fraction) -> None:
    assert assumptions(golden.federation(), fg.OffPolicyTabularTD(n)).contraction == pytest.approx(
        float(expected), rel=1e-14
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("policy", "noise"), [(golden.B1, (35, 70, 105)), (golden.B2, (35, 58, 81))]
)
def test_golden_step_bounds(policy: np.ndarray, noise: tuple[int, ...], n: int) -> None:
    """I_max = 2 = 1 / gamma, so the closed forms are 1 + 3 n and 8 n."""
    found = assumptions(golden.federation([policy]), fg.OffPolicyTabularTD(n))
    assert found.is_sharp
    assert pytest.approx((n + 1, n + 1, noise[n - 1] / 29), rel=1e-13) == (
        found.A_1,
        found.A_2,
        found.B,
    )
    assert (found.A_cap, found.B_cap) == pytest.approx((1 + 3 * n, 8 * n))
    assert found.lag_sum == pytest.approx(sum(noise[: n - 1]) / 29, rel=1e-13, abs=1e-15)
    assert (found.m_2, found.m_3, found.m_4, found.heterogeneity) == (0, 0, 0, 0)


def test_golden_mixing_and_start() -> None:
    """The rows of b1's chain are equal; those of b2's differ by (1/4, -1/4)."""
    found = assumptions(golden.federation(), fg.OffPolicyTabularTD(2))
    assert (found.mixing.m, found.mixing.rho) == pytest.approx((1, 0.25), rel=1e-9)
    assert found.m_1 == pytest.approx(2 * 3 * 0.25**-2, rel=1e-9)
    assert found.start_error == pytest.approx(23 / 29)
    assert (
        assumptions(
            golden.federation(), fg.OffPolicyTabularTD(2), initial_params=golden.VALUE
        ).start_error
        < 1e-12
    )


def test_golden_q_learning() -> None:
    """Q* = [[11/6, 2/3], [-1/4, 7/6]]; the worst surprise is 1 + (11/6) / 2 - 11/6, or -1 + (7/6) /
    2 + 1/4, ..."""
    found = assumptions(golden.federation(), fg.QLearning())
    surprises = [
        abs(
            golden.REWARDS[s, a]
            + golden.OPTIMAL_Q.reshape(2, 2)[after].max() / 2
            - golden.OPTIMAL_Q[2 * s + a]
        )
        for s, a, after in itertools.product(range(2), repeat=3)
    ]
    assert (found.A_1, found.A_2, found.A_cap, found.B) == pytest.approx(
        (1, 1, 2, max(surprises)), rel=1e-12
    )
    assert found.contraction == pytest.approx(1 - (3 / 8) * (1 / 4) / 2)
    assert (found.lag_sum, found.m_2, found.horizon, found.dimension) == (0, 0, 1, 4)


def test_golden_linear_off_policy() -> None:
    found = assumptions(golden.federation(), fg.OffPolicyLinearTD())
    own = np.abs(np.array([232 / 295, 72 / 91]) - 520 / 659)
    np.testing.assert_allclose(found.agent_heterogeneity, own, rtol=1e-10)
    assert found.heterogeneity == pytest.approx(own.mean(), rel=1e-10)
    assert found.start_error == pytest.approx(520 / 659)
    assert (found.level, found.norm, found.n_threshold) == ("identity", "2", 1)  # sqrt(3/8) > 1/2


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ["alg2", "alg3", "alg5", "alg5-preconditioned"])
@pytest.mark.parametrize("differ", ["policies", "mdps"])
def test_step_bounds_are_the_maxima_over_all_windows(name: str, n: int, differ: str) -> None:
    world = cases.World(states=3, zeros=0.4)
    world.features = world.features[:, :2]
    problem, algorithm = world.federation(5, differ), cases.case(name, n).algorithm
    assert_sharp(problem, algorithm, assumptions(problem, algorithm))


def test_step_bounds_in_a_weighted_norm() -> None:
    """Policies so far apart that the 2-norm does not do."""
    rng = np.random.default_rng(4)
    problem = fg.Federation(
        fg.MDP(rng.dirichlet(np.full(8, 0.3), (8, 3)), rng.uniform(-1, 1, (8, 3)), 0.9),
        0.98 * rng.dirichlet(np.full(3, 0.5), (4, 8)) + 0.02 / 3,
        num_agents=4,
        target_policy=rng.dirichlet(np.full(3, 0.3), 8),
        features=rng.normal(size=(8, 6)),
    )
    found = assumptions(problem, fg.OffPolicyLinearTD())
    assert (found.level, found.norm) == ("common", "weighted")
    assert_sharp(problem, fg.OffPolicyLinearTD(), found)
    gap = fg.agent_fixed_points(problem, fg.OffPolicyLinearTD())[2] - fg.fixed_point(
        problem, fg.OffPolicyLinearTD()
    )
    assert found.agent_heterogeneity[2] == pytest.approx(norm_of(found, gap), rel=1e-9)


def assert_sharp(problem: Any, algorithm: Any, found: Assumptions) -> None:
    assert found.is_sharp
    assert found.holds
    point = fg.fixed_point(problem, algorithm)
    growth, noise = 0.0, 0.0
    for kind in range(problem.num_kinds):
        for states, actions, _ in windows(problem, algorithm, kind):
            matrix, offset = step(problem, algorithm, kind, states, actions)
            growth = max(growth, norm_of(found, np.eye(found.dimension) + matrix / found.beta))
            noise = max(noise, norm_of(found, (matrix @ point + offset) / found.beta))
    assert pytest.approx((growth, noise), rel=1e-9) == (found.A_1, found.B)
    assert found.A_cap >= found.A_1
    assert found.B_cap >= found.B


@pytest.mark.parametrize("name", ["alg2", "alg3", "alg5"])
def test_a_bound_stands_in_where_windows_are_too_many(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, algorithm = cases.SMALL.federation(5, "policies"), cases.case(name, 2).algorithm
    exact = assumptions(problem, algorithm)
    monkeypatch.setattr(sharp, "MOST_WINDOWS", 10)
    monkeypatch.setattr(sharp, "MOST_PAIRS", 10)
    bounded = assumptions(problem, algorithm)
    assert exact.is_sharp
    assert not bounded.is_sharp
    assert exact.A_1 <= bounded.A_1 * (1 + 1e-12)
    assert bounded.A_cap >= bounded.A_1
    assert bounded.B == exact.B


def test_long_windows_are_bounded_quickly() -> None:
    found = assumptions(cases.SMALL.federation(5, "policies"), fg.OffPolicyTabularTD(60))
    assert not found.is_sharp
    assert np.isfinite([found.A_1, found.B, found.lag_sum]).all()
    assert 1 < found.A_1 < found.A_cap


@pytest.mark.parametrize("differ", ["policies", "both"])
@pytest.mark.parametrize("n", [1, 3])
def test_contraction_is_the_norm_of_the_tabular_mean_operator(n: int, differ: str) -> None:
    problem = cases.SMALL.federation(5, differ)
    norms = []
    for kind, law in enumerate(fg.exact.kind_stationary_laws(problem, fg.OffPolicyTabularTD(n))):
        chain = problem.mdps[kind % len(problem.mdps)].policy_chain(cases.SMALL.target).toarray()
        ahead = np.linalg.matrix_power(cases.DISCOUNT * chain, n)
        norms.append(np.linalg.norm(np.eye(6) - np.diag(law) @ (np.eye(6) - ahead), np.inf))
    assert assumptions(problem, fg.OffPolicyTabularTD(n)).contraction == pytest.approx(
        max(norms), rel=1e-12
    )


def test_contraction_is_the_lipschitz_constant_of_mean_q_learning() -> None:
    """The mean operator is piecewise linear; on each piece a policy is greedy, and its matrix has
    the same norm."""
    fed = golden.federation()
    laws = fg.exact.kind_stationary_laws(fed, fg.QLearning())
    norms = []
    for law, policy in zip(laws, (golden.B1, golden.B2), strict=True):
        visits = (law[:, None] * policy).ravel()
        for greedy in itertools.product(range(2), repeat=2):
            ahead = np.zeros((4, 4))
            for after in range(2):
                ahead[:, 2 * after + greedy[after]] = (
                    golden.DISCOUNT * golden.TRANSITIONS.reshape(4, 2)[:, after]
                )
            norms.append(np.linalg.norm(np.eye(4) - np.diag(visits) @ (np.eye(4) - ahead), np.inf))
    assert assumptions(fed, fg.QLearning()).contraction == pytest.approx(max(norms), rel=1e-12)


@pytest.mark.parametrize("name", ["alg1-linear", "alg2", "alg3", "alg4", "alg5"])
def test_the_certificate_dominates_the_total_variation(name: str) -> None:
    case = cases.case(name, 2)
    pair = assumptions(case.problem, case.algorithm).mixing
    laws = fg.exact.kind_stationary_laws(case.problem, case.algorithm)
    assert pair.m >= 1
    for chain, law in zip(fg.exact.kind_chains(case.problem, case.algorithm), laws, strict=True):
        power = np.eye(len(law))
        for t in range(201):
            distance = np.abs(power - law).sum(axis=1).max() / 2
            assert distance <= pair.m * pair.rho**t + 1e-13 * t
            power = chain.toarray() @ power


def test_q_learning_forgets_as_its_states_do() -> None:
    """y_0 knows S_1, and from there the law of (S_t, A_t) is that of S_t times the policy."""
    fed = golden.federation([golden.B2])
    found = assumptions(fed, fg.QLearning())
    chain = fg.exact.kind_chains(fed, fg.QLearning())[0].toarray()
    law = (golden.STATIONARY_B2[:, None] * golden.B2).ravel()
    for t in range(1, 30):
        visits = (np.linalg.matrix_power(chain, t - 1)[:, :, None] * golden.B2).reshape(2, 4)
        assert (
            2 * found.A_2 * np.abs(visits - law).sum(axis=1).max() / 2
            <= found.m_1 * found.mixing.rho**t + 1e-15
        )


def conditional_means(
    problem: Any, algorithm: Any, kind: int, lag: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The means of M(y_lag) and of c(y_lag) given each window y_0, by continuing y_0 in every
    way."""
    n = algorithm.window
    chain = np.linalg.matrix_power(
        fg.exact.kind_chains(problem, algorithm)[kind].toarray(), max(lag - n, 0)
    )
    every = [
        (y, chance, *step(problem, algorithm, kind, *y))
        for *y, chance in windows(problem, algorithm, kind)
    ]
    found = {}
    for (states, actions), *_ in every:
        known = (tuple(states[min(lag, n) :]), tuple(actions[lag:]))
        if known in found:
            continue
        matrix, offset, total = 0.0, 0.0, 0.0
        for (later, taken), chance, one, other in every:
            if lag >= n:
                chance = chance * chain[states[-1], later[0]]
            elif (tuple(later[: n - lag + 1]), tuple(taken[: n - lag])) != known:
                continue
            matrix, offset, total = matrix + chance * one, offset + chance * other, total + chance
        found[known] = matrix / total, offset / total
    return list(found.values())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_conditional_means_of_tabular_noise_vanish_from_lag_n_on(n: int) -> None:
    problem, algorithm = golden.federation(), fg.OffPolicyTabularTD(n)
    lags = []
    for lag in range(1, n + 2):
        means = [
            matrix @ golden.VALUE + offset
            for kind in range(2)
            for matrix, offset in conditional_means(problem, algorithm, kind, lag)
        ]
        lags.append(max(np.abs(mean).max() for mean in means))
    np.testing.assert_allclose(lags[n - 1 :], 0, atol=1e-12)
    assert assumptions(problem, algorithm).lag_sum == pytest.approx(
        sum(lags[: n - 1]), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("name", LINEAR)
def test_mixing_constants_hold_at_every_lag(name: str) -> None:
    """n = 2: at lags 1 to 12 the means given y_0 are as near their limits as m_1 rho^t, m_2 rho^t
    say."""
    world = cases.World(states=3, zeros=0.0)
    world.features = world.features[:, :2]
    problem, algorithm = world.federation(3, "policies"), cases.case(name, 2).algorithm
    found, point = assumptions(problem, algorithm), fg.fixed_point(problem, algorithm)
    law = fg.exact.kind_stationary_laws(problem, algorithm)[0]
    steps = [
        (law[y[0][0]] * y[2], *step(problem, algorithm, 0, y[0], y[1]))
        for y in windows(problem, algorithm, 0)
    ]
    mean = sum(chance * matrix for chance, matrix, _ in steps)
    noise = sum(chance * (matrix @ point + offset) for chance, matrix, offset in steps)
    assert norm_of(found, noise / found.beta) <= found.m_3 * found.agent_heterogeneity[0] + 1e-12
    for lag in (1, 2, 3, 5, 12):
        for matrix, offset in conditional_means(problem, algorithm, 0, lag):
            assert norm_of(found, (matrix - mean) / found.beta) <= found.m_1 * found.mixing.rho**lag
            assert (
                norm_of(found, (matrix @ point + offset - noise) / found.beta)
                <= found.m_2 * found.mixing.rho**lag
            )


def test_independent_states_are_forgotten_after_the_window() -> None:
    """b1 alone makes the states independent: at lag n + 1 nothing is left, and the lags before add
    up to at most lag_sum."""
    problem, algorithm = golden.federation([golden.B1]), fg.OffPolicyLinearTD(2)
    found, point = assumptions(problem, algorithm), fg.fixed_point(problem, algorithm)
    assert found.mixing.rho == 0
    assert (found.m_1, found.m_2, found.m_4) == (0, 0, 0)
    largest = [
        max(
            np.abs(matrix @ point + offset).max()
            for matrix, offset in conditional_means(problem, algorithm, 0, lag)
        )
        / found.beta
        for lag in (1, 2, 3)
    ]
    assert largest[1] > 0.01
    assert largest[2] < 1e-12
    assert sum(largest[:2]) <= found.lag_sum
    means = [matrix for matrix, _ in conditional_means(problem, algorithm, 0, 3)]
    np.testing.assert_allclose(means, np.broadcast_to(means[0], np.shape(means)), atol=1e-12)


def test_disagreement_between_environments() -> None:
    problem = cases.SMALL.federation(5, "both")
    for algorithm in (fg.OffPolicyTabularTD(2), fg.QLearning()):
        found = assumptions(problem, algorithm)
        assert found.m_3 == pytest.approx(1 + found.contraction)
        assert (
            found.m_2
            == found.m_4
            == pytest.approx(2 * found.B * found.mixing.m * found.mixing.rho**-found.horizon)
        )
        assert math.isnan(found.lag_sum)
        assert found.heterogeneity == pytest.approx(fg.heterogeneity(problem, algorithm))
        assert found.B_cap >= found.B


def test_linear_stochastic_approximation() -> None:
    """d = 1, A(y) in {-1, -3}, fair and independent: A = 2, so beta = 2 and theta* = 5 / 2 for b(y)
    in {2, 8}."""
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=3)
    found = assumptions(noise, fg.LinearSA([[[-1.0]], [[-3.0]]], [[2.0], [8.0]]))
    assert (found.horizon, found.level, found.mixing.rho) == (0, "identity", 0)
    assert found.beta == pytest.approx(2)
    assert found.contraction == pytest.approx(0, abs=1e-6)
    assert pytest.approx((0.5, 0.25)) == (found.A_1, found.B)
    assert found.m_1 == pytest.approx(2 * found.A_2)
    assert found.m_3 == 0
    assert found.start_error == pytest.approx(2.5)


def own_rule(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = y - params[0] / 2


STATED = {"gamma_c": 0.5, "A_1": 0.5, "A_2": 0.25, "B": 2.0}
MIXING = {"m_1": 1.0, "m_2": 2.0, "m_3": 3.0, "m_4": 4.0, "rho": 0.75}


def own(**stated: float) -> Assumptions:
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=3)
    return assumptions(noise, fg.StochasticApproximation(own_rule, dim=1, assumptions=stated))


def test_own_rule_takes_what_it_is_given() -> None:
    found = own(**STATED, **MIXING)
    assert found.level == "given"
    assert (found.contraction, found.A_1, found.A_2, found.B) == (0.5, 0.5, 0.25, 2.0)
    assert (found.m_1, found.m_2, found.m_3, found.m_4, found.mixing.rho) == (1, 2, 3, 4, 0.75)
    assert found.start_error == pytest.approx(1)


def test_own_rule_mixes_as_its_chain_does() -> None:
    found = own(**STATED)
    assert found.mixing.rho == pytest.approx(0.5)
    assert found.m_1 == pytest.approx(2 * 0.5 * found.mixing.m)
    assert found.m_2 == found.m_4 == pytest.approx(2 * 2 * found.mixing.m)
    assert found.m_3 == 0


@pytest.mark.parametrize("missing", [*STATED, *MIXING])
def test_a_missing_constant_is_named(missing: str) -> None:
    with pytest.raises(fg.ProblemError, match=rf"\b{missing}\b"):
        own(**{name: value for name, value in (STATED | MIXING).items() if name != missing})


@pytest.mark.parametrize(
    ("name", "value"),
    [("A_1", -1.0), ("B", math.inf), ("rho", 1.0), ("m_3", math.nan), ("gamma_c", 1.0)],
)
def test_an_impossible_constant_is_named(name: str, value: float) -> None:
    with pytest.raises(fg.ProblemError, match=name):
        own(**(STATED | MIXING | {name: value}))


def test_an_unstable_average_is_reported_not_raised() -> None:
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    fed = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    found = assumptions(fed, fg.OffPolicyLinearTD(int(data["n"])))
    assert found.level == "unstable"
    assert not found.holds
    assert np.isnan([found.contraction, found.B, found.heterogeneity, found.start_error]).all()
    assert np.isfinite([found.A_1, found.m_1, found.m_3]).all()
    assert "diverges" in str(found)
    assert assumptions(fed, fg.OnPolicyTD(int(data["n"]))).level == "identity"


def test_average_only_is_reported() -> None:
    """Two spirals that no ellipse contains; their average is stable."""
    noise = fg.MarkovNoise([[[1.0]], [[1.0]]], num_agents=2)
    spirals = np.array([[[[1.0, 10.0], [-0.1, 1.0]]], [[[1.0, 0.1], [-10.0, 1.0]]]])
    found = assumptions(noise, fg.LinearSA(-spirals, [[[1.0, 0.0]], [[0.0, 1.0]]]))
    assert found.level == "average-only"
    assert not found.holds
    assert math.isnan(found.contraction)
    assert found.start_error > 0
    assert "does not apply" in str(found)


def test_rewards_scale_the_noise_and_nothing_else() -> None:
    one = assumptions(golden.federation(), fg.OffPolicyTabularTD(2))
    scaled = fg.Federation(
        fg.MDP(golden.TRANSITIONS, 7 * golden.REWARDS, golden.DISCOUNT),
        np.array([golden.B1, golden.B2]),
        num_agents=2,
        target_policy=golden.TARGET,
    )
    other = assumptions(scaled, fg.OffPolicyTabularTD(2))
    assert (other.B, other.B_cap, other.lag_sum, other.start_error) == pytest.approx(
        (7 * one.B, 7 * one.B_cap, 7 * one.lag_sum, 7 * one.start_error)
    )
    assert (other.A_1, other.m_1, other.contraction) == (one.A_1, one.m_1, one.contraction)


def test_reports_show_every_constant() -> None:
    found = assumptions(golden.federation(), fg.OffPolicyLinearTD(2))
    text, page = str(found), found._repr_html_()
    for name in ("gamma_c", "A_1, A_2", "m, rho", "m_3, m_4", "heterogeneity", "n threshold"):
        assert name in text
        assert name in page
    assert "The theorem applies" in text
    assert max(map(len, text.splitlines())) <= 100


def test_bad_starts_and_algorithms_are_refused() -> None:
    with pytest.raises(fg.ProblemError, match="initial_params"):
        assumptions(golden.federation(), fg.QLearning(), initial_params=[0.0])
    with pytest.raises(fg.ProblemError, match="LinearSA"):
        assumptions(golden.federation(), fg.LinearSA([[[-1.0]]], [[0.0]]))
