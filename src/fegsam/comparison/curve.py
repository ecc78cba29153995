"""The frontier of one contestant on one problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fegsam.comparison.frontier import GridPoint


@dataclass(frozen=True, eq=False)
class Curve:
    """The frontier of a contestant along one axis.

    Attributes
    ----------
    budgets : (points,) array
        The budgets within which some setting runs.
    settings : tuple of GridPoint
        The setting that the pilots chose for each.
    errors : (points, seeds) array
        Squared errors on fresh seeds.
    exact : (points,) array
        Their exact expectations; NaN where they are not computed.
    """

    budgets: np.ndarray
    settings: tuple[GridPoint, ...]
    errors: np.ndarray
    exact: np.ndarray

    def at(self, budget: float) -> tuple[GridPoint, np.ndarray] | None:
        """The setting and its errors at the largest budget that is at most `budget`."""
        places = np.flatnonzero(self.budgets <= budget)
        if not places.size:
            return None
        return self.settings[places[-1]], self.errors[places[-1]]
