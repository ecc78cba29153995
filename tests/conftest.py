"""Comparisons that many tests make, as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def assert_same_bits() -> Callable[[Any, Any], None]:
    """Two histories hold the same variables with the same bits, and the same times and seeds."""

    def check(one: Any, other: Any) -> None:
        assert set(one.data.variables) == set(other.data.variables)
        for name in one.data.variables:
            np.testing.assert_array_equal(
                one.data[name].values, other.data[name].values, err_msg=str(name)
            )

    return check


@pytest.fixture(scope="session")
def assert_mean() -> Callable[..., None]:
    """The mean of samples (along their first axis) is `expected` within 4 standard errors and a
    stated allowance."""

    def check(samples: Any, expected: Any, allowance: Any = 0.0) -> None:
        samples = np.asarray(samples, dtype=float)
        error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
        # The last term is for what is the same in every sample, up to rounding.
        tolerance = 4 * error + allowance + 1e-12 * np.maximum(1.0, np.abs(expected))
        gap = np.abs(samples.mean(axis=0) - expected)
        assert np.all(gap <= tolerance), (
            f"off by {gap}, where {tolerance} is tolerated; 4 standard errors are {4 * error}"
        )

    return check
