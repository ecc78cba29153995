"""A setting (step size, sync period and rounds), and the choice among several."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MORE_STEPS = 16
"""With no budget, a plan with few communications may take up to this many times the fewest steps;
more steps hardly save rounds."""
MOST_STEPS = 10**9
NEARLY = 1.02
"""A plan may take up to this many times the fewest steps if that saves communications."""


@dataclass(frozen=True)
class Setting:
    """R rounds of K steps each; the R-th communication follows the last step.

    Examples
    --------
    >>> Setting(step_size=0.1, sync_period=20, communications=3, error=0.01).num_steps
    60
    """

    step_size: float
    sync_period: int
    communications: int
    error: float
    """The predicted E||avg_T - theta*||_2^2, with or without a margin."""

    @property
    def num_steps(self) -> int:
        return self.sync_period * self.communications


@dataclass(frozen=True)
class Goal:
    """What to minimise, and the limits; an infinite limit means none."""

    what: str
    """"communications" or "samples"."""
    most_steps: float = math.inf
    most_communications: float = math.inf

    def admits(self, setting: Setting) -> bool:
        return (
            setting.num_steps <= self.most_steps
            and setting.communications <= self.most_communications
        )

    def best(self, settings: Iterable[Setting]) -> Setting:
        """The best of the settings that are within the limits.

        >>> many, few = Setting(0.1, 1, 100, 0.1), Setting(0.1, 101, 1, 0.1)
        >>> Goal("samples").best([many, few]) is few and Goal(
        ...     "communications", most_steps=100
        ... ).best([many, few]) is many
        True
        """
        allowed = [setting for setting in settings if self.admits(setting)]
        if self.what == "samples":
            enough = NEARLY * min(setting.num_steps for setting in allowed)
            allowed = [setting for setting in allowed if setting.num_steps <= enough]
        return min(allowed, key=lambda setting: (setting.communications, setting.num_steps))


def frontier(settings: Iterable[Setting]) -> list[Setting]:
    """The settings that no other beats in both communications and steps.

    They are sorted from few communications to many.

    >>> [
    ...     s.communications
    ...     for s in frontier(
    ...         [Setting(0.1, 9, 1, 0.1), Setting(0.1, 5, 2, 0.1), Setting(0.1, 1, 4, 0.1)]
    ...     )
    ... ]
    [1, 4]
    """
    kept: list[Setting] = []
    for setting in sorted(settings, key=lambda s: (s.communications, s.num_steps)):
        if not kept or setting.num_steps < kept[-1].num_steps:
            kept.append(setting)
    return kept
