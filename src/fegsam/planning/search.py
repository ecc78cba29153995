"""The settings that reach an accuracy, where the error of any setting can be computed in
milliseconds.

With R rounds fixed, more steps a round never hurt if the step size is chosen anew: the same mean
path at a smaller noise. So the least K for R rounds is found by bisection, the best step size
inside; and the least R for a budget T of steps likewise, at ``K = T // R``.
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
_STEPS_NEAR = 1.1
"""And step sizes to within this one, for the error is flat at its least."""


class Search:
    """The settings that reach an accuracy by the law, even in a mean over seeds that is too large
    by chance.

    Parameters
    ----------
    law : RoundLaw
    accuracy : float
        Of the error and `deviations` times its standard deviation.
    caution : float
        Steps are at most so many times the largest that the law vouches for.

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
        self, law: RoundLaw, accuracy: float, deviations: float = 0.0, caution: float = 1.0
    ) -> None:
        self.law, self.accuracy, self.deviations, self.caution = law, accuracy, deviations, caution
        self._known: dict[tuple[int, int], Setting] = {}
        self._flow = self._least_flow = 8 * law.time_scale
        """alpha T of the last best step: much the same for all, but never small, where not to move
        at all may look best"""
        self.most_steps = MOST_STEPS
        """what the settings found may take"""

    def settings(self, goal: Goal) -> list[Setting]:
        """One for each of some numbers of rounds; none where the accuracy is out of reach."""
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
        """What the limits allow at most."""
        limit = int(min(goal.most_steps, MOST_STEPS))
        rounds = int(min(goal.most_communications, limit))
        return self.best(limit // rounds, rounds)

    def _least(self, setting: Callable[[int], Setting], limit: int) -> Setting | None:
        """The least number up to `limit` whose setting is good enough, to 1 percent; what is good
        enough comes last."""

        def passes(number: int) -> bool:
            return setting(number).error <= self.accuracy

        bad, good = 0, 1
        while not passes(good):
            if good >= limit:
                return None
            bad, good = good, min(2 * good, limit)
        return setting(last_whole(passes, good, bad, near=_NEAR))

    def best(self, period: int, rounds: int) -> Setting:
        """The step size with the least error."""
        if (period, rounds) not in self._known:
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
    """The best step up to `top` and its error: double or halve from `first` while that helps, then
    search between."""
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
        options={"xatol": math.log(_STEPS_NEAR)},
    )
    step = min(known, key=lambda each: known[each])
    return step, known[step]


def _doubling(first: int, last: int) -> list[int]:
    """Whole numbers from first to below last, each twice the one before.

    >>> _doubling(3, 20)
    [3, 6, 12]
    """
    return [first * 2**k for k in range(max(0, math.ceil(math.log2(last / first))))]
