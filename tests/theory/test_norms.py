"""The norm ladder of the linear algorithms, against grids over all norms, generalized eigenvalues
and planted answers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import fegsam as fg
from fegsam.exact.chains import kind_weights
from fegsam.exact.linear_field import LinearField
from fegsam.exact.mean_fields import mean_field
from fegsam.theory.assumptions.horizons import horizon_threshold, scan_horizons
from fegsam.theory.assumptions.norms import (
    Contraction,
    Norm,
    can_search,
    common_weight,
    linear_contraction,
)
from fegsam.theory.assumptions.sharp import rank_one_norm


def off_policy(
    seed: int, states: int = 8, dim: int = 6, discount: float = 0.99, skew: float = 0.3
) -> fg.Federation:
    """Four kinds of agents that follow policies far from the target."""
    rng = np.random.default_rng(seed)
    mdp = fg.MDP(
        rng.dirichlet(np.full(states, skew), (states, 3)), rng.uniform(-1, 1, (states, 3)), discount
    )
    behavior = 0.98 * rng.dirichlet(np.full(3, 0.5), (4, states)) + 0.02 / 3
    target = rng.dirichlet(np.full(3, 0.3), states)
    features = rng.normal(size=(states, dim))
    return fg.Federation(mdp, behavior, num_agents=4, target_policy=target, features=features)


def ladder(problem: fg.Federation, algorithm: Any) -> tuple[Contraction, np.ndarray]:
    field = mean_field(algorithm, problem)
    assert isinstance(field, LinearField)
    return linear_contraction(field, kind_weights(problem, len(field))), field.matrices


def weighted_norm(matrix: np.ndarray, weight: np.ndarray) -> float:
    """The largest ``||X x|| / ||x||``, as a generalized eigenvalue rather than through a square
    root of the weight."""
    return math.sqrt(linalg.eigh(matrix.T @ weight @ matrix, weight, eigvals_only=True)[-1])


def lyapunov(matrices: np.ndarray, weight: np.ndarray) -> float:
    """The smallest eigenvalue of any A' Lambda + Lambda A."""
    return float(np.linalg.eigvalsh(matrices.transpose(0, 2, 1) @ weight + weight @ matrices).min())


def test_default_output_decay_is_the_theorems_at_every_level() -> None:
    """c = 1 - alpha phi_2 / 2 in the norm that the assumptions report, 1 - 1/T where there is
    none."""
    step, steps, levels = 1e-3, 1000, set()
    for seed in (*range(15), 40):
        problem, algorithm = off_policy(seed), fg.OffPolicyLinearTD()
        found = fg.theory.assumptions(problem, algorithm)
        levels.add(found.level)
        expected = 1 - 1 / steps
        if found.level in ("identity", "common"):
            weight = np.eye(6) if found.weight is None else found.weight
            matrices = ladder(problem, algorithm)[1]
            gamma_c = max(
                weighted_norm(np.eye(6) - matrix / found.beta, weight) for matrix in matrices
            )
            expected = 1 - step * found.beta * (1 - gamma_c) / 2
            theorem = fg.theory.constants(problem, algorithm, step_size=step)
            assert 1 - theorem.alpha * theorem.phi_2 / 2 == pytest.approx(expected, abs=1e-15)
        assert fg.theory.default_output_decay(problem, algorithm, step, steps) == pytest.approx(
            expected, abs=1e-15
        )
    assert levels == {"identity", "common", "average-only", "unstable"}


def test_every_level_occurs_and_means_what_it_says() -> None:
    seen = set()
    for seed in range(60):
        found, matrices = ladder(off_policy(seed), fg.OffPolicyLinearTD())
        seen.add(found.level)
        weight = np.eye(6) if found.norm.weight is None else found.norm.weight
        assert (lyapunov(matrices, np.eye(6)) > 0) == (found.level == "identity")
        if found.level in ("identity", "common"):
            measured = max(
                weighted_norm(np.eye(6) - matrix / found.beta, weight) for matrix in matrices
            )
            assert found.factor == pytest.approx(measured, rel=1e-9)
            assert found.factor < 1
            assert lyapunov(matrices, weight) > 0
        else:
            assert math.isnan(found.factor)
            stable = np.linalg.eigvals(matrices.mean(axis=0)).real.min() > 0
            assert found.level == ("average-only" if stable else "unstable")
    assert seen == {"identity", "common", "average-only", "unstable"}


def test_stable_agents_with_an_unstable_average() -> None:
    data = np.load(Path(__file__).parents[1] / "fixtures" / "average_unstable.npz")
    mdp = fg.MDP(data["P"], data["R"], float(data["gamma"]))
    fed = fg.Federation(
        mdp, data["behaviours"], num_agents=4, target_policy=data["pi"], features=data["Phi"]
    )
    found, matrices = ladder(fed, fg.OffPolicyLinearTD(int(data["n"])))
    assert found.level == "unstable"
    np.testing.assert_allclose(
        np.linalg.eigvals(matrices).real.min(axis=1), [0.0013, 0.0014, 0.0043, 0.0013], atol=5e-5
    )
    assert np.linalg.eigvals(matrices.mean(axis=0)).real.min() == pytest.approx(-0.0009, abs=5e-5)


def stable_pair(seed: int) -> np.ndarray:
    """Two stable 2 x 2 matrices: spirals along ellipses of different shapes."""
    rng = np.random.default_rng(seed)
    shapes = np.eye(2) + 0.6 * rng.normal(size=(2, 2, 2))
    spiral = np.array([[0.5, 1.0], [-1.0, 0.5]])
    return np.stack([np.linalg.solve(shape, spiral @ shape) for shape in shapes])


def weights_2d() -> np.ndarray:
    """(P, 2, 2): a fine grid over all positive definite matrices of trace two."""
    x, y = np.meshgrid(np.linspace(-1, 1, 201), np.linspace(-1, 1, 201))
    inside = x**2 + y**2 < 1
    x, y = x[inside], y[inside]
    return np.stack([np.stack([1 + x, y], axis=-1), np.stack([y, 1 - x], axis=-1)], axis=-2)


def test_the_search_agrees_with_a_grid_over_all_norms_of_the_plane() -> None:
    grid = weights_2d()
    answers = []
    for seed in range(50):
        pair = stable_pair(seed)
        scaled = pair / np.linalg.norm(pair, 2, axis=(1, 2))[:, None, None]
        blocks = scaled.transpose(0, 2, 1)[:, None] @ grid + grid @ scaled[:, None]
        # The smallest eigenvalue of a symmetric 2 x 2 matrix.
        half, gap = (
            (blocks[..., 0, 0] + blocks[..., 1, 1]) / 2,
            (blocks[..., 0, 0] - blocks[..., 1, 1]) / 2,
        )
        best = (half - np.hypot(gap, blocks[..., 0, 1])).min(axis=0).max()
        found = common_weight(pair)
        if abs(best) > 0.02:  # the mesh is 0.01
            assert (found is not None) == (best > 0), f"seed {seed}: {best}"
            answers.append(best > 0)
        if found is not None:
            assert lyapunov(pair, found) > 0
            assert np.trace(found) == pytest.approx(2)
    assert 5 < sum(answers) < len(answers) - 5


@pytest.mark.parametrize(("kinds", "dim"), [(1, 3), (4, 5), (10, 7)])
def test_a_planted_norm_is_found(kinds: int, dim: int) -> None:
    rng = np.random.default_rng(dim)
    shape = rng.normal(size=(dim, dim))
    planted = shape @ shape.T + 0.1 * np.eye(dim)
    raw = rng.normal(size=(kinds, dim, dim))
    matrices = np.linalg.solve(
        planted,
        raw @ raw.transpose(0, 2, 1) / dim + 0.1 * np.eye(dim) + 2 * (raw - raw.transpose(0, 2, 1)),
    )
    assert lyapunov(matrices, np.eye(dim)) < 0 < lyapunov(matrices, planted)
    found = common_weight(matrices)
    assert found is not None
    assert lyapunov(matrices, found) > 0
    assert np.linalg.eigvalsh(found).min() > 0


def test_scaling_an_agent_does_not_change_the_answer() -> None:
    for seed in range(10):
        pair = stable_pair(seed)
        scaled = pair * np.array([1e6, 1e-6])[:, None, None]
        assert (common_weight(pair) is None) == (common_weight(scaled) is None)


def test_no_search_where_there_is_no_choice_or_too_much() -> None:
    assert common_weight(np.ones((3, 1, 1))) is None
    assert not can_search(kinds=2, dim=60)
    assert common_weight(np.broadcast_to(np.eye(60), (2, 60, 60))) is None


def test_beta_is_the_best_in_the_weighted_norm() -> None:
    found, matrices = next(
        pair
        for pair in (ladder(off_policy(seed), fg.OffPolicyLinearTD()) for seed in range(120))
        if pair[0].level == "common"
    )
    others = found.beta * np.geomspace(0.1, 10, 400)
    factors = [found.norm.of_matrices(np.eye(6) - matrices / beta).max() for beta in others]
    assert found.factor <= min(factors) + 1e-9


def test_norms_are_dual_to_each_other() -> None:
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(3, 3))
    for norm in (Norm("2"), Norm("sup"), Norm("weighted", raw @ raw.T + np.eye(3))):
        directions = rng.normal(size=(50_000, 3))
        unit = directions / norm.of(directions)[:, None]
        w, matrix = rng.normal(size=3), rng.normal(size=(3, 3))
        assert (unit @ w).max() == pytest.approx(norm.dual(w), rel=1e-2)
        assert (unit @ w).max() <= norm.dual(w) * (1 + 1e-12)
        assert norm.of(unit @ matrix.T).max() == pytest.approx(norm.of_matrices(matrix), rel=1e-2)
        assert norm.of(unit @ matrix.T).max() <= norm.of_matrices(matrix) * (1 + 1e-12)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_rank_one_norm_is_the_largest_singular_value(dim: int) -> None:
    rng = np.random.default_rng(dim)
    u, w = rng.normal(size=(2, 500, dim)) * np.geomspace(1e-3, 30, 500)[:, None]
    w[::3] = -u[::3] * rng.uniform(0, 3, (len(u[::3]), 1))  # parallel ones
    expected = np.linalg.norm(np.eye(dim) + u[:, :, None] * w[:, None, :], 2, axis=(1, 2))
    products, sizes = (u * w).sum(axis=1), (u**2).sum(axis=1) * (w**2).sum(axis=1)
    np.testing.assert_allclose(rank_one_norm(products, sizes, dim), expected, rtol=1e-7)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_looking_far_enough_ahead_gives_a_common_norm(preconditioned: bool) -> None:
    fed = off_policy(4, discount=0.9)
    algorithm = fg.OffPolicyLinearTD(preconditioned=preconditioned)
    threshold = horizon_threshold(fed, algorithm)
    assert threshold > 3
    scan = scan_horizons(fed, algorithm, range(1, threshold + 3))
    assert scan.threshold == threshold
    for n, level, norm in zip(scan.horizons, scan.levels, scan.operator_norms, strict=True):
        assert norm >= 1 or level == "identity"
        assert n < threshold or norm < 1
    assert scan.levels[0] != "identity"
    assert scan.operator_norms[0] > 1


def test_the_threshold_is_the_first_horizon_that_passes() -> None:
    fed = off_policy(5, discount=0.95)
    law = fg.exact.kind_stationary_laws(fed, fg.OffPolicyLinearTD())
    n = horizon_threshold(fed, fg.OffPolicyLinearTD())
    assert 0.95**n < math.sqrt(law.min()) <= 0.95 ** (n - 1)
    assert horizon_threshold(fed, fg.OnPolicyTD()) == 1


def test_operator_norms_are_those_of_the_weighted_spaces() -> None:
    fed = off_policy(7, discount=0.9)
    laws = fg.exact.kind_stationary_laws(fed, fg.OffPolicyLinearTD())
    assert fed.target_policy is not None
    chain = np.linalg.matrix_power(fed.mdps[0].policy_chain(fed.target_policy).toarray(), 3)
    scan = scan_horizons(fed, fg.OffPolicyLinearTD(), [3])
    expected = max(weighted_norm(0.9**3 * chain, np.diag(law)) for law in laws)
    assert scan.operator_norms[0] == pytest.approx(expected, rel=1e-9)
    assert "identity for every n" in str(scan)


def test_only_linear_temporal_differences_have_horizons_to_scan() -> None:
    with pytest.raises(fg.ProblemError, match="QLearning"):
        scan_horizons(off_policy(0), fg.QLearning(), [1])  # type: ignore[arg-type]
