"""Algorithm 1 with your own operator: four hospitals fit one logistic regression together.

Each hospital uses only its own patients.
"""

from __future__ import annotations

import math

import numpy as np

import fegsam as fg

CASES = np.array([[1.0, 0.2], [1.0, 1.5]])
"""features of a mild and of a severe case"""
RECOVERS = np.array([[0.8, 0.3], [0.7, 0.4]])
"""by kind of hospital and case"""


def rule(params, y, kind, out):
    """The gradient of the log-likelihood of one patient, minus a ridge penalty."""
    score = 0.0
    for j in range(2):
        score += CASES[y, j] * params[j]
    residual = RECOVERS[kind, y] - 1.0 / (1.0 + math.exp(-score))
    for j in range(2):
        out[j] = residual * CASES[y, j] - 0.1 * params[j]


def main() -> None:
    mostly_mild, mostly_severe = [[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.1, 0.9]]
    hospitals = fg.MarkovNoise([mostly_mild, mostly_severe], num_agents=4)
    regression = fg.StochasticApproximation(rule, dim=2)
    history = fg.run(
        hospitals, regression, step_size=0.05, sync_period=20, num_steps=20_000, seeds=range(4)
    )
    print(f"found together: {history.data.final_params.mean('seed').values.round(3)}")
    print(f"exact:          {fg.fixed_point(hospitals, regression).round(3)}")
    for kind, own in enumerate(fg.agent_fixed_points(hospitals, regression)):
        print(f"hospitals of kind {kind} alone would find {own.round(3)}")


if __name__ == "__main__":
    main()
