"""An engine against the pseudo-code of an algorithm."""

from __future__ import annotations

import numpy as np

from cases import Case

SEEDS = (3, 2**63 + 11)
ALPHA = 0.1


def assert_agrees(
    case: Case,
    *,
    engine,
    K: int,
    T: int,
    alpha: float = ALPHA,
    seeds=SEEDS,
    sampling: str = "markov",
) -> None:
    """Averages, sync errors and final parameters are the oracle's, to 1e-12 of max(1,
    max|theta|)."""
    data = case.run(alpha=alpha, K=K, T=T, seeds=seeds, engine=engine, sampling=sampling).data
    np.testing.assert_array_equal(data.time, np.arange(T + 1))
    for row, seed in enumerate(seeds):
        trace = case.trace(seed, alpha=alpha, K=K, T=T, sampling=sampling)
        size = max(1.0, np.abs(trace.params).max())
        assert np.isfinite(size)
        np.testing.assert_allclose(
            data.average_params[row], trace.average, rtol=0, atol=1e-12 * size
        )
        np.testing.assert_allclose(
            data.final_params[row], trace.average[-1], rtol=0, atol=1e-12 * size
        )
        np.testing.assert_allclose(
            data.sync_error[row], trace.sync_error, rtol=0, atol=1e-12 * size**2
        )
