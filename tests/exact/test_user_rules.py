"""Fixed points of the user's own rule: iterated to a certificate, or an error that says what to
do."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest

import fegsam as fg
from fegsam.exact import rule_field

KERNELS = [[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.5, 0.5]]]
LAWS = np.array([[0.75, 0.25], [0.5, 0.5]])


def noise() -> fg.MarkovNoise:
    return fg.MarkovNoise(KERNELS, num_agents=3)


def bent(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = 0.5 * math.tanh(params[1]) - params[0] + y * (kind + 1)
    out[1] = 0.4 * params[0] - params[1] - y


@pytest.mark.parametrize("norm", [2, math.inf])
@pytest.mark.parametrize("assumptions", [None, {"gamma_c": 0.5}])
def test_mean_increment_vanishes(norm: float, assumptions: dict[str, float] | None) -> None:
    algorithm = fg.StochasticApproximation(bent, dim=2, norm=norm, assumptions=assumptions)

    def mean(theta: np.ndarray, weights: Any) -> np.ndarray:
        total, out = np.zeros(2), np.zeros(2)
        for kind in range(2):
            for y in range(2):
                bent(theta, y, kind, out)
                total += weights[kind] * LAWS[kind, y] * out
        return total

    common, own = fg.fixed_point(noise(), algorithm), fg.agent_fixed_points(noise(), algorithm)
    np.testing.assert_allclose(mean(common, [2 / 3, 1 / 3]), 0, atol=1e-10)
    np.testing.assert_allclose(mean(own[0], [1, 0]), 0, atol=1e-10)
    np.testing.assert_allclose(mean(own[1], [0, 1]), 0, atol=1e-10)
    distances = np.linalg.norm(own - common, norm, axis=1)
    assert fg.heterogeneity(noise(), algorithm) == pytest.approx(
        (2 * distances[0] + distances[1]) / 3, abs=1e-9
    )


def test_linear_rule_agrees_with_linear_sa() -> None:
    rng = np.random.default_rng(0)
    matrices = 0.2 * rng.normal(size=(2, 2, 3, 3)) - np.eye(3)
    offsets = rng.normal(size=(2, 2, 3))

    def rule(params: Any, y: Any, kind: Any, out: Any) -> None:
        for i in range(3):
            out[i] = offsets[kind, y, i]
            for j in range(3):
                out[i] += matrices[kind, y, i, j] * params[j]

    theta = fg.fixed_point(noise(), fg.StochasticApproximation(rule, dim=3))
    np.testing.assert_allclose(
        theta, fg.fixed_point(noise(), fg.LinearSA(matrices, offsets)), atol=1e-9
    )


def test_long_loop_is_compiled_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"rate": "0.5"}

    def in_plain_python(params: Any, y: Any, kind: Any, out: Any) -> None:
        out[0] = float(names.get("rate", "0")) - params[0]
        out[1] = -params[1]

    rules = (bent, numba.njit(bent), in_plain_python)
    algorithms = [fg.StochasticApproximation(rule, dim=2) for rule in rules]
    interpreted = [fg.fixed_point(noise(), algorithm) for algorithm in algorithms]
    monkeypatch.setattr(rule_field, "COMPILE_FROM", 0)
    for algorithm, expected in zip(algorithms, interpreted, strict=True):
        np.testing.assert_allclose(fg.fixed_point(noise(), algorithm), expected, atol=1e-14)
    np.testing.assert_array_equal(interpreted[2], [0.5, 0.0])


@pytest.mark.parametrize("factor", [3.0, 2.0])
def test_rule_that_does_not_contract_is_refused(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With factor 3 the iteration runs away, with 2 it swings for ever."""

    def rule(params: Any, y: Any, kind: Any, out: Any) -> None:
        out[0] = 1.0 - factor * params[0]

    monkeypatch.setattr(rule_field, "MAX_ITERATIONS", 5000)
    with pytest.raises(fg.ProblemError, match=r"not found.*norm.*fixed_point="):
        fg.fixed_point(noise(), fg.StochasticApproximation(rule, dim=1))


@pytest.mark.parametrize("gamma_c", [1.0, -0.1, math.nan])
def test_contraction_that_is_none_is_refused(gamma_c: float) -> None:
    with pytest.raises(fg.ProblemError, match="gamma_c"):
        fg.fixed_point(
            noise(), fg.StochasticApproximation(bent, dim=2, assumptions={"gamma_c": gamma_c})
        )


def returned(params: Any, y: Any, kind: Any, out: Any) -> Any:
    return y - params


def half_set(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = y - params[0]


def added_to(params: Any, y: Any, kind: Any, out: Any) -> None:
    for i in range(2):
        out[i] += y - params[i]


def set_in_one_state(params: Any, y: Any, kind: Any, out: Any) -> None:
    out[0] = -params[0]
    if y == 0:
        out[1] = -params[1]


def moved(params: Any, y: Any, kind: Any, out: Any) -> None:
    for i in range(2):
        params[i] += 0.1
        out[i] = y - params[i]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            returned,
            r"'returned' does not set out\[0\] from params, y and kind alone; assign every entry "
            r"of out, with =",
        ),
        (half_set, r"'half_set' does not set out\[1\] from params"),
        (added_to, r"'added_to' does not set out\[0\] from params"),
        (set_in_one_state, r"'set_in_one_state' does not set out\[1\] from params"),
        (moved, "'moved' writes to params; write only to out"),
    ],
)
def test_a_rule_that_does_not_set_its_answer_is_refused(rule: Any, said: str) -> None:
    algorithm = fg.StochasticApproximation(rule, dim=2)
    with pytest.raises(fg.ProblemError, match=said):
        fg.fixed_point(noise(), algorithm)
    with pytest.raises(fg.ProblemError, match=said):
        fg.run(
            noise(), algorithm, step_size=0.1, sync_period=2, num_steps=4, fixed_point=[0.0, 0.0]
        )


def test_a_rule_that_is_not_a_number_at_the_start_is_no_fault_of_its_answer() -> None:
    def undefined_at_zero(params: Any, y: Any, kind: Any, out: Any) -> None:
        out[0] = y - params[0] + params[0] / np.float64(params[0])

    fg.StochasticApproximation(undefined_at_zero, dim=1).check(noise())


def test_a_rule_that_expands_has_no_fixed_point() -> None:
    def expand(params: Any, y: Any, kind: Any, out: Any) -> None:
        for i in range(2):
            out[i] = y + params[i]

    with pytest.raises(fg.ProblemError, match="fixed point of your rule was not found"):
        fg.fixed_point(noise(), fg.StochasticApproximation(expand, dim=2))
