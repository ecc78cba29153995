"""A local search by exact moments, which refines the plan of a linear algorithm.

The search starts from the answer of the round law (`round_law`). That formula is accurate only for
small steps, and it leaves out the noise of the matrices while theta is far from theta*. Exact
moments take some hundredths of a second per setting, so we can try about a hundred settings, but
not all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fegsam.algorithms.rule import Algorithm
from fegsam.planning.measured import exact_error, seconds
from fegsam.planning.round_law import RoundLaw
from fegsam.planning.settings import Goal, Setting
from fegsam.problem.federation import Problem

_STRIDES = (1.5, 1.2, 1.08)
"""The step size changes by the first factor while that helps, then by the next."""
_QUICK = 0.1
"""If a setting takes more seconds than this, only the first factor is used."""
_NEAR = 1.02
"""Numbers of rounds and periods are found to within this factor."""
_GALLOP = 1.15
_MOST_DOUBLINGS = 4
"""A limit on the steps that the round law set too low is doubled at most this many times."""


class ExactSearch:
    """Finds settings that reach an accuracy, by exact moments.

    Parameters
    ----------
    accuracy : float
        An upper limit on the error plus `deviations` times its standard deviation, which comes from
        the round law. The margin allows for a mean over seeds that is too large by chance.
    tried : callable
        Called for every setting that the search looks at.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> search = ExactSearch(coin, average, RoundLaw(coin, average), accuracy=1e-3)
    >>> found = search.fewest(Goal("communications"), Setting(0.05, 20, 5, 1e-3), most_steps=100)
    >>> found.communications, found.error <= 1e-3
    (1, True)
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        law: RoundLaw,
        accuracy: float,
        deviations: float = 0.0,
        tried: Callable[[], None] = lambda: None,
    ) -> None:
        self._tried = tried
        self.problem, self.algorithm, self.law = problem, algorithm, law
        self.accuracy, self.deviations = accuracy, deviations
        self._known: dict[tuple[float, int, int], float] = {}

    def nearest_known(self, goal: Goal, start: Setting, most_steps: int) -> Setting | None:
        """`start`, with fewer rounds if exact moments take too long; None if they always do."""
        rounds = start.communications
        while rounds:
            period = most_steps // rounds if goal.what == "communications" else start.sync_period
            # Keep alpha T of the start.
            setting = Setting(
                start.step_size * start.num_steps / (period * rounds), period, rounds, start.error
            )
            if exact_error(self.problem, self.algorithm, self.law, setting) is not None:
                return setting
            rounds = int(rounds / _GALLOP)
        return None

    def fewest(self, goal: Goal, start: Setting, most_steps: int) -> Setting | None:
        """The goal's best setting near `start`, or None if none reaches the accuracy.

        Its error is without the margin.
        """
        rounds = start.communications
        if goal.what == "communications":
            for doubling in range(_MOST_DOUBLINGS if math.isinf(goal.most_steps) else 1):
                limit = most_steps * 2**doubling
                found = self._least(
                    lambda many, limit=limit: (limit // many, many), rounds, limit, start
                )
                found = self._with_other_periods(found, start, limit)
                if found is not None:
                    return self._shortest(found)
            return None
        if rounds < goal.most_communications:
            most = int(
                min(goal.most_communications, most_steps * 2**_MOST_DOUBLINGS // start.sync_period)
            )
            found = self._least(lambda many: (start.sync_period, many), rounds, most, start)
            if found is not None or math.isinf(goal.most_communications):
                # Whole rounds overshoot, so shorten them.
                return found and self._shortest(found)
            rounds = int(goal.most_communications)
        most = max(1, most_steps * 2**_MOST_DOUBLINGS // rounds)
        return self._least(lambda period: (period, rounds), start.sync_period, most, start)

    def _with_other_periods(
        self, found: Setting | None, start: Setting, limit: int
    ) -> Setting | None:
        """The best of `found` and of settings with fewer rounds and periods 1, 2, 3, 4, 6, 8, ...

        Settings that use the whole budget leave gaps, since ``limit // R`` is an integer. And long
        periods with small steps are not always best: a few large steps, each followed by a
        synchronisation, bring the agents to theta* without any drift.
        """
        near, fewer = (found, found.communications - 1) if found else (start, start.communications)
        for period in sorted({k * 2**j for j in range(limit.bit_length()) for k in (1, 3)}):
            most = min(fewer, limit // period)
            if most < 1:
                break
            tried = self._least(lambda many, period=period: (period, many), most, most, near)
            if tried is not None:
                found, near, fewer = tried, tried, tried.communications - 1
        return found

    def _shortest(self, found: Setting) -> Setting:
        """The setting with the same number of rounds and the shortest period."""
        period = found.sync_period
        return (
            self._least(lambda period: (period, found.communications), period, period, found)
            or found
        )

    def best_seen(self) -> Setting:
        """The setting with the least error of all that were tried."""
        place = min(self._known, key=lambda each: self._known[each])
        return Setting(*place, self._known[place])

    def _least(
        self, setting: Callable[[int], tuple[int, int]], guess: int, most: int, start: Setting
    ) -> Setting | None:
        """The best setting for the least number, up to `most`, that reaches the accuracy.

        ``setting(number)`` gives the period and the rounds. The search goes from the guess in
        growing strides, then narrows the bracket. We do not use `bisection`: strides from a good
        guess take fewer trials, and each trial starts from the previous step size.
        """
        place, near = min(guess, most), start
        good, bad = most + 1, 0
        stride, found = _GALLOP, None
        while good - bad > 1 and (found is None or good > _NEAR * bad):
            tried = self._best_step(*setting(place), near)
            if tried.error * self._margin(tried) <= self.accuracy:
                good, found, near = place, tried, tried
                place = max(bad + 1, min(good - 1, int(good / stride)))
            elif place == most:
                return found
            else:
                bad = place
                place = min(good - 1, max(bad + 1, math.ceil(bad * stride)))
            stride *= stride
            if found is not None and bad:
                place = max(bad + 1, min(good - 1, round(math.sqrt(good * bad))))
        return found

    def _best_step(self, period: int, rounds: int, near: Setting) -> Setting:
        """The first step size that reaches the accuracy, or about the best if none does.

        The search starts from the ``alpha T`` of the setting `near`.
        """
        step = near.step_size * near.num_steps / (period * rounds)

        def at(step: float) -> float:
            error = self._error(step, period, rounds)
            return error * self._margin(Setting(step, period, rounds, error))

        least = at(step)
        while math.isinf(least) and step * period * rounds > 1e-3 * near.step_size * near.num_steps:
            step /= 2
            least = at(step)
        quick = seconds(self.law, Setting(step, period, rounds, math.nan)) <= _QUICK
        for stride in _STRIDES if quick else _STRIDES[:1]:
            for factor in (1 / stride, stride):
                while least > self.accuracy and (tried := at(step * factor)) < least:
                    step, least = step * factor, tried
        return Setting(step, period, rounds, self._error(step, period, rounds))

    def _margin(self, setting: Setting) -> float:
        """The factor on the error that allows for chance in the verification."""
        place = setting.step_size, setting.sync_period, setting.communications
        bare, cautious = self.law.error(*place), self.law.cautious_error(*place, self.deviations)
        return cautious / bare if math.isfinite(cautious) else 1 + self.deviations

    def _error(self, step: float, period: int, rounds: int) -> float:
        place = (step, period, rounds)
        if place not in self._known:
            self._tried()
            found = exact_error(self.problem, self.algorithm, self.law, Setting(*place, math.nan))
            self._known[place] = math.inf if found is None else found
        return self._known[place]
