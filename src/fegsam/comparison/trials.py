"""The errors of a contestant on a problem of the suite: sampled over seeds, or exact."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.comparison.contestants import TAIL, ComparedMethod
from fegsam.comparison.frontier import GridPoint
from fegsam.comparison.suite import SuiteProblem
from fegsam.errors import DivergenceWarning
from fegsam.history import History
from fegsam.problem.federation import Federation
from fegsam.run import Engine

_ANY_DECAY = 0.5
"""The output time is not used, and its default decay would need the theorem's norm."""


@dataclass(frozen=True, eq=False)
class Trials:
    """A contestant on a problem with N agents.

    Examples
    --------
    >>> from fegsam.comparison.contestants import contestant
    >>> from fegsam.comparison.suite import entry
    >>> trials = Trials(entry("alike"), contestant("plain"), 2, "cpu")
    >>> trials.errors([GridPoint(0.1, 4, 8)], range(3)).shape
    (1, 3)
    """

    entry: SuiteProblem
    contestant: ComparedMethod
    agents: int
    engine: str | Engine

    def errors(self, settings: Iterable[GridPoint], seeds: Iterable[int]) -> np.ndarray:
        """(settings, seeds): the squared error at the end; NaN where a run diverged."""
        wanted, chosen = list(settings), tuple(seeds)
        found: dict[GridPoint, np.ndarray] = {}
        families: dict[tuple[float, int], set[int]] = {}
        for each in wanted:
            families.setdefault((each.step_size, each.sync_period), set()).add(each.num_steps)
        for (size, period), lengths in families.items():
            # Only a run that reports its last average has the shorter ones in its records.
            runs = [{n} for n in sorted(lengths)] if self.contestant.has_tail else [lengths]
            for ends in runs:
                times = sorted(ends)
                table = self._run(size, period, times, chosen)
                for n, errors in zip(times, table, strict=True):
                    found[GridPoint(size, period, n)] = errors
        return np.array([found[each] for each in wanted])

    def _run(
        self, step_size: float, period: int, times: list[int], seeds: tuple[int, ...]
    ) -> np.ndarray:
        """(times, seeds): the squared errors of the output at some times."""
        output = self.contestant.output
        history = self._history(step_size, period, times, seeds)
        if output == "last":
            return history.data.squared_error_2.transpose("time", "seed").values
        if output == "tail":
            gaps = history.data.tail_params.transpose("seed", "param").values - self.star
            return np.square(gaps).sum(axis=1)[None]
        fine = self._history(step_size / 2, period, times, seeds)
        found = fg.extrapolated(history, fine, fixed_point=self.star)
        return found.tail_squared_error_2.transpose("seed").values[None]

    @cached_property
    def problem(self) -> Federation:
        return self.entry.problem(self.agents)

    @cached_property
    def star(self) -> np.ndarray:
        """The fixed point from which errors are measured."""
        return fg.fixed_point(self.problem, self.entry.algorithm)

    def _history(
        self, step_size: float, period: int, times: list[int], seeds: tuple[int, ...]
    ) -> History:
        contestant = self.contestant
        with warnings.catch_warnings():
            # A step size that is too large for a method is a trial that it loses.
            warnings.simplefilter("ignore", DivergenceWarning)
            return fg.run(
                self.problem,
                self.entry.algorithm,
                step_size=step_size,
                sync_period=period,
                num_steps=times[-1],
                method=contestant.method(self.agents),
                schedule=contestant.schedule,
                tail=TAIL if contestant.has_tail else None,
                seeds=seeds,
                record=np.array(times),
                engine=self.engine,
                output_decay=_ANY_DECAY,
                fixed_point=self.star,
            )

    def exact(self, setting: GridPoint, most_rounds: int) -> float:
        """The exact expectation of the squared error.

        NaN where none is known, or where the run has more than `most_rounds` rounds.
        """
        known = self.entry.has_exact and self.contestant.has_exact
        if not known or setting.communications() > most_rounds:
            return float("nan")
        options: dict[str, Any] = {"method": self.contestant.method(self.agents), "order": 1}
        found = fg.exact.moments(
            self.problem,
            self.entry.algorithm,
            step_size=setting.step_size,
            sync_period=setting.sync_period,
            times=np.array([setting.num_steps]),
            **options,
        )
        return float(found.mse[0])
