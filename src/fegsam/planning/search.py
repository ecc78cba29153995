"""A search by the round law, which gives the error of any setting in milliseconds.

For fixed R, more steps per round never hurt if the step size is chosen anew, since a smaller step
size gives the same mean path with less noise. So bisection finds the least K for R rounds, with the
best step size for each K. In the same way it finds the least R for a budget of T steps, with ``K =
T // R``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize

from fegsam.bisection import last_whole
from fegsam.planning.round_law import RoundLaw
from fegsam.planning.settings import MORE_STEPS, MOST_STEPS, Goal, Setting

_NEAR = 0.01
"""Numbers of steps are found to within this fraction."""
_STEP_SIZES_NEAR = 1.1
"""Step sizes are found to within this factor, since the error is flat near its minimum."""


class Search:
    """Finds settings that reach an accuracy, by the round law.

    Parameters
    ----------
    law : RoundLaw
    accuracy : float
        An upper limit on the error plus `deviations` times its standard deviation. The margin
        allows for a mean over seeds that is too large by chance.
    caution : float
        The largest step size, as a multiple of the largest for which the law is reliable.
    tried : callable
        Called for every setting that the search looks at.

    Examples
    --------
    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> law = RoundLaw(coin, fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]]))
    >>> settings = Search(law, accuracy=1e-3).settings(Goal("communications"))
    >>> min(setting.communications for setting in settings)
    1
    """

    def __init__(
        self,
        law: RoundLaw,
        accuracy: float,
        deviations: float = 0.0,
        caution: float = 1.0,
        tried: Callable[[], None] = lambda: None,
    ) -> None:
        self._tried = tried
        self.law, self.accuracy, self.deviations, self.caution = law, accuracy, deviations, caution
        self._known: dict[tuple[int, int], Setting] = {}
        self._flow = self._least_flow = 8 * law.time_scale
        """``alpha T`` of the last best step size, about the same for all settings; never small,
        since not moving at all may look best there"""
        self.most_steps = MOST_STEPS
        """the most steps that a setting may take"""

    def settings(self, goal: Goal) -> list[Setting]:
        """One setting for each of several numbers of rounds; none if none reaches the accuracy."""
        limit = self.most_steps = int(min(goal.most_steps, MOST_STEPS))
        rounds = int(min(goal.most_communications, limit))
        if rounds == limit:
            fewest = self._least(lambda steps: self.best(1, steps), limit)
        else:
            fewest = self._least(lambda period: self.best(period, rounds), limit // rounds)
        if fewest is None:
            return []
        if not math.isfinite(goal.most_steps):
            limit = self.most_steps = min(limit, MORE_STEPS * fewest.num_steps)
        rarest = (
            self._least(lambda rounds: self.best(limit // rounds, rounds), fewest.communications)
            or fewest
        )
        found = [fewest, rarest]
        for rounds in _doubling(rarest.communications, fewest.communications):
            setting = self._least(
                lambda period, rounds=rounds: self.best(period, rounds), limit // rounds
            )
            if setting is not None:
                found.append(setting)
        return found

    def within_reach(self, goal: Goal) -> Setting:
        """The best setting that uses all that the limits allow."""
        limit = int(min(goal.most_steps, MOST_STEPS))
        rounds = int(min(goal.most_communications, limit))
        return self.best(limit // rounds, rounds)

    def _least(self, setting: Callable[[int], Setting], limit: int) -> Setting | None:
        """The setting of the least number up to `limit` that is good enough, to 1 percent.

        All numbers above a good one must be good too.
        """

        def passes(number: int) -> bool:
            return setting(number).error <= self.accuracy

        bad, good = 0, 1
        while not passes(good):
            if good >= limit:
                return None
            bad, good = good, min(2 * good, limit)
        return setting(last_whole(passes, good, bad, near=_NEAR))

    def best(self, period: int, rounds: int) -> Setting:
        """The setting with the best step size for this period and number of rounds."""
        if (period, rounds) not in self._known:
            self._tried()
            top = self.caution * self.law.largest_step(period)
            first = min(top, self._flow / (period * rounds))
            step, error = _least_error(
                lambda step: self.law.cautious_error(step, period, rounds, self.deviations),
                first,
                top,
            )
            self._flow = max(step * period * rounds, self._least_flow)
            self._known[period, rounds] = Setting(step, period, rounds, error)
        return self._known[period, rounds]


def _least_error(error: Callable[[float], float], first: float, top: float) -> tuple[float, float]:
    """The best step size up to `top`, and its error.

    Double or halve `first` while that helps, then search between.
    """
    known = {first: error(first)}

    def at(step: float) -> float:
        if step not in known:
            known[step] = error(step)
        return known[step]

    step = first
    while 2 * step <= top and at(2 * step) <= at(step):
        step *= 2
    while at(step / 2) < at(step) or math.isinf(at(step)):
        step /= 2
    optimize.minimize_scalar(
        lambda log_step: at(math.exp(log_step)),
        bounds=(math.log(step / 2), math.log(min(2 * step, top))),
        options={"xatol": math.log(_STEP_SIZES_NEAR)},
    )
    step = min(known, key=lambda each: known[each])
    return step, known[step]


def _doubling(first: int, last: int) -> list[int]:
    """Integers from `first` to below `last`, each twice the previous one.

    >>> _doubling(3, 20)
    [3, 6, 12]
    """
    return [first * 2**k for k in range(max(0, math.ceil(math.log2(last / first))))]
