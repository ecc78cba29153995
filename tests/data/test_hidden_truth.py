"""Measures that know no truth, on ten problems whose fixed point is known and hidden from them.

A setting is a step size, and its error the mean over seeds. `distance_to_estimate` must rank five
settings as the true error does, whether they have just begun or have come to rest. `residual` must
rank them as the true error does where they differ by their noise. In the course of learning the
true residual of Q-learning itself ranks settings otherwise: the largest Bellman error of a table
stays the same while errors fall. There the estimated residual must rank as the true one.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from scipy.stats import t as student

import fegsam as fg
from helpers.hidden_truth import hidden_problem

SEEDS = 16
LEARNING = (0.0005, 0.0015, 0.005, 0.015, 0.05), 2000
RESTING = (0.02, 0.05, 0.1, 0.2, 0.4), 40_000
NAMES = ("distance_to_estimate", "residual")


def learned(problem, step_sizes, num_steps) -> np.ndarray:
    """(5 * SEEDS, d)"""
    runs = [
        fg.run(
            problem.federation,
            problem.algorithm,
            step_size=step_size,
            sync_period=10,
            num_steps=num_steps,
            record=[num_steps],
            seeds=range(SEEDS),
        )
        for step_size in step_sizes
    ]
    return np.concatenate([history.data.final_params.values for history in runs])


def ranks(found, truth) -> float:
    by_setting = [values.reshape(5, SEEDS).mean(axis=1) for values in (found, truth)]
    return round(float(spearmanr(*by_setting).statistic), 9)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_five_settings_are_ranked_as_their_true_errors_are(number) -> None:
    problem = hidden_problem(number)
    held_out = problem.held_out(np.random.default_rng([number, 0]), 32, 200)
    for stage in (LEARNING, RESTING):
        params = learned(problem, *stage)
        found = held_out.measure(params)
        errors = np.array([problem.squared_error(row) for row in params])
        residuals = np.array([problem.residual(row) for row in params])
        assert ranks(found["distance_to_estimate"], errors) >= 0.9
        assert ranks(found["residual"], residuals) >= 0.9
        if stage is RESTING or problem.algorithm != fg.QLearning():
            assert ranks(found["residual"], errors) >= 0.9


@pytest.mark.slow
def test_intervals_cover_the_hidden_truth() -> None:
    covered: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for number in range(10):
        problem = hidden_problem(number)
        params = np.concatenate([learned(problem, *LEARNING)[::SEEDS], [problem.fixed_point()]])
        truth = {
            "distance_to_estimate": [problem.squared_error(row) for row in params],
            "residual": [problem.residual(row) for row in params],
        }
        for seed in range(20):
            held_out = problem.held_out(np.random.default_rng([number, seed, 1]), 32, 400)
            found = held_out.measure(params)
            reach = student.ppf(0.975, held_out.sample.num_clusters - 1)
            for name in NAMES:
                off = np.abs(found[name] - truth[name])
                covered[name].append(off <= reach * found[f"{name}_standard_error"])
    for name in NAMES:
        # 200 draws of held-out data; the six parameters of one draw are covered together.
        share = np.array(covered[name]).mean(axis=0)
        assert ((share > 0.88) & (share <= 1.0)).all(), (name, share)
