"""Control variates: what is kept of each agent, and the corrections that follow from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fegsam.methods.correction import ControlVariates


@dataclass(frozen=True)
class Variates:
    """The g of each agent or kind, as the last rounds left them.

    Examples
    --------
    >>> import numpy as np
    >>> kinds, weights = np.array([0, 1]), np.full(2, 0.5)
    >>> variates = Variates.start(ControlVariates(), kinds, weights, 2, 1)
    >>> variates = variates.after(np.arange(2), np.array([[1.0], [3.0]]))
    >>> variates.corrections(np.arange(2))
    array([[ 1.],
           [-1.]])
    """

    groups: np.ndarray
    """int64 (N): the row of `values` that belongs to each agent"""
    weights: np.ndarray
    """(N): the agents' weights in the average"""
    values: np.ndarray
    """(N or M, d)"""
    by_agent: bool
    """whether each agent has a row of its own"""

    @staticmethod
    def start(
        correction: ControlVariates,
        kinds: np.ndarray,
        weights: np.ndarray,
        num_kinds: int,
        dimension: int,
    ) -> Variates:
        """All zero, one row for each agent or for each kind."""
        agents = len(kinds)
        by_kind = correction.of == "kind"
        groups = kinds if by_kind else np.arange(agents)
        rows = num_kinds if by_kind else agents
        return Variates(groups, weights, np.zeros((rows, dimension)), not by_kind)

    def mean(self) -> np.ndarray:
        """(d): gbar, the weighted mean over all agents."""
        return np.bincount(self.groups, self.weights, len(self.values)) @ self.values

    def corrections(self, agents: np.ndarray) -> np.ndarray:
        """(m, d): gbar - g_i for some of the agents."""
        return self.mean() - self.values[self.groups[agents]]

    def after(self, agents: np.ndarray, fresh: np.ndarray) -> Variates:
        """With the rows of `agents` replaced by the means of their `fresh` (m, d) ones."""
        totals, sums = np.zeros(len(self.values)), np.zeros_like(self.values)
        np.add.at(totals, self.groups[agents], self.weights[agents])
        np.add.at(sums, self.groups[agents], self.weights[agents, None] * fresh)
        renewed = totals > 0
        values = self.values.copy()
        values[renewed] = sums[renewed] / totals[renewed, None]
        return dataclasses.replace(self, values=values)

    def saved(self, width: int | None) -> dict[str, np.ndarray]:
        """The values as arrays; with a `width`, the at most that many nonzero cells of each row."""
        if width is None:
            return {"variates": self.values, "variate_mean": self.mean()}
        cells = np.zeros((len(self.values), width), np.uint32)
        found = np.zeros((len(self.values), width))
        for row, values in enumerate(self.values):
            places = np.flatnonzero(values)
            cells[row, : len(places)], found[row, : len(places)] = places, values[places]
        return {"variates": found, "variate_cells": cells, "variate_mean": self.mean()}

    def restored(self, saved: Mapping[str, np.ndarray]) -> Variates:
        """The same with the values that `saved` returned."""
        if "variate_cells" not in saved:
            return dataclasses.replace(self, values=saved["variates"])
        values = np.zeros_like(self.values)
        rows = np.arange(len(values))[:, None]
        np.add.at(values, (rows, saved["variate_cells"]), saved["variates"])
        return dataclasses.replace(self, values=values)

    def within(self, agents: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """(m, d): the corrections that follow from the `fresh` ones of some agents alone."""
        weights = self.weights[agents]
        mean = weights @ fresh / weights.sum()
        return mean - self.after(agents, fresh).values[self.groups[agents]]
