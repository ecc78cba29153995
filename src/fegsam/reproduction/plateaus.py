"""Whether a run has reached the level at which its error stays."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fegsam.experiments.estimates import mean_estimate

SETTLED = 0.05
"""A fall by less than this share, from one eighth of the run to the next, counts as none."""


def unsettled(errors: ArrayLike) -> bool:
    """Whether (seeds, times) errors, at evenly spaced times, still fall at the end.

    The last eighth of the run is compared with the eighth before it, seed by seed: where the mean fall is known, at 95 %, to
    exceed `SETTLED` of the level, no plateau was reached.

    Examples
    --------
    >>> times, noise = np.arange(80), np.random.default_rng(0).gamma(50.0, 0.02, size=(40, 80))
    >>> unsettled(noise * (0.1 + np.exp(-times / 10))), unsettled(noise * np.exp(-times / 20))
    (False, True)
    """
    table = np.asarray(errors, dtype=float)
    eighth = max(1, table.shape[1] // 8)
    last, before = table[:, -eighth:].mean(axis=1), table[:, -2 * eighth : -eighth].mean(axis=1)
    if not np.isfinite(table).all():
        return True
    return mean_estimate((before - last) / before.mean()).low > SETTLED
