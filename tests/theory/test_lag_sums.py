"""Sums over lags against plain sums term by term and against closed forms, for fast, slow and
nearly periodic chains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, sparse

from fegsam.theory.small_step import lag_sums as module
from fegsam.theory.small_step import lyapunov
from fegsam.theory.small_step.lag_sums import lag_sums, triangle_by_squaring
from fegsam.theory.small_step.lyapunov import slowest_rate, stationary_covariance


def walk_on_a_line(states: int) -> sparse.csr_array:
    kernel = np.zeros((states, states))
    line = np.arange(states)
    kernel[line[:-1], line[1:]] = 0.3
    kernel[line[1:], line[:-1]] = 0.3
    kernel[line, line] = 1 - kernel.sum(axis=1)
    return sparse.csr_array(kernel)


def walk_around(states: int, pause: float) -> sparse.csr_array:
    line = np.arange(states)
    forward = sparse.coo_array(
        (np.full(states, 1 - pause), (line, (line + 1) % states)), shape=(states, states)
    )
    return sparse.csr_array(forward + pause * sparse.eye_array(states))


def two_parts(states: int, exchange: float) -> sparse.csr_array:
    """Symmetric and fast in each part; the parts exchange `exchange` of their weight."""
    half = states // 2
    ring = sum(
        0.2 * sparse.eye_array(half, k=k % half) + 0.2 * sparse.eye_array(half, k=k % half - half)
        for k in (1, -1, 7, -7)
    )
    part = ring + 0.2 * sparse.eye_array(half)
    crossing = sparse.kron(np.array([[-1, 1], [1, -1]]), sparse.eye_array(half)) * exchange
    return sparse.csr_array(sparse.block_diag([part, part]) + crossing)


def disturbances(law: np.ndarray, columns: int = 2) -> np.ndarray:
    block = np.random.default_rng(0).normal(size=(len(law), columns)) * law[:, None]
    return block - np.outer(law, block.sum(axis=0))


SLOW = {
    "line": walk_on_a_line(200),
    "round": walk_around(200, 0.3),
    "nearly periodic": walk_around(200, 1e-3),
    "two parts": two_parts(200, 1e-5),
    "fast": two_parts(20, 0.1),
}


@pytest.mark.parametrize("length", [0, 1, 2, 3, 10, 31])
def test_squaring_gives_the_sum_term_by_term(length: int) -> None:
    rng = np.random.default_rng(1)
    matrix, block = rng.normal(size=(4, 4)) / 4, rng.normal(size=(4, 2))
    expected = sum(
        ((length - i) * np.linalg.matrix_power(matrix, i) @ block for i in range(length)),
        np.zeros((4, 2)),
    )
    np.testing.assert_allclose(
        triangle_by_squaring(matrix, block, length), expected, rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("rate", [0.5, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("length", [1, 5, 10**3, 10**6])
def test_two_states_give_geometric_sums(rate: float, length: int) -> None:
    """Eigenvalue x = 1 - rate: sum_{i<k} (k - i) x^i, in whole numbers where it is short and
    integrated where it is long."""
    kernel = sparse.csr_array([[1 - rate / 2, rate / 2], [rate / 2, 1 - rate / 2]])
    total, triangle = lag_sums(kernel, np.array([0.5, 0.5]), np.array([[1.0], [-1.0]]), length)
    i = np.arange(length)
    assert total[0, 0] == pytest.approx(1 / rate, rel=1e-6)
    assert triangle[0, 0] == pytest.approx(
        float(np.sum((length - i) * np.exp(i * np.log1p(-rate)))), rel=1e-7
    )


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("length", [0, 300, 1000, 10**4, 10**6])
def test_sparse_and_dense_ways_agree(
    name: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = SLOW[name]
    states = kernel.shape[0]
    law = np.full(states, 1 / states)  # all are doubly stochastic
    block = disturbances(law)
    dense_sums = lag_sums(kernel, law, block, length)
    monkeypatch.setattr(module, "DENSE_STATES", 0)
    sparse_sums = lag_sums(kernel, law, block, length)
    for found, expected in zip(sparse_sums, dense_sums, strict=True):
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=1e-9 * np.abs(expected).max() + 1e-300
        )


def test_a_large_chain_of_two_parts_is_summed_without_factorisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("scipy.sparse.linalg.splu", refuse)
    law = np.full(4000, 1 / 4000)
    parts = np.repeat(
        [[1.0], [-1.0]], 2000, axis=0
    )  # an eigenvector: it shrinks by 1 - 2e-5 a step
    total, triangle = lag_sums(two_parts(4000, 1e-5), law, parts, 10**6)
    np.testing.assert_allclose(total, parts / 2e-5, rtol=1e-9)
    i = np.arange(10**6)
    np.testing.assert_allclose(triangle, parts * np.sum((10**6 - i) * (1 - 2e-5) ** i), rtol=1e-9)


def test_covariance_of_many_parameters_solves_the_lyapunov_equation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lyapunov, "SCHUR_PARAMETERS", 10)
    rng = np.random.default_rng(3)
    dimension = 60
    rare = rng.dirichlet(np.ones(dimension))[:, None]
    stable = -rare * (np.eye(dimension) - 0.9 * rng.dirichlet(np.ones(dimension), size=dimension))
    factor = rng.normal(size=(dimension, 20))
    noise = factor @ factor.T
    found = stationary_covariance(stable, noise)
    np.testing.assert_allclose(
        found, linalg.solve_continuous_lyapunov(stable, -noise), rtol=1e-7, atol=1e-9 * found.max()
    )
    assert slowest_rate(stable) == pytest.approx(np.linalg.eigvals(-stable).real.min(), rel=1e-8)
    rotated = stable - 10 * rare * (
        factor[:, :1] @ factor[:, 1:2].T - factor[:, 1:2] @ factor[:, :1].T
    )
    assert slowest_rate(rotated) == pytest.approx(np.linalg.eigvals(-rotated).real.min(), rel=1e-12)
