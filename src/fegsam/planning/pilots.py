"""A search by pilot runs, for Q-learning, users' rules and problems with very many parameters.

For these, only runs show whether a setting reaches an accuracy. A pilot is a run over a few seeds,
the same for all pilots, so that they share their paths. Its curve shows after how many rounds the
upper confidence limit of the error is low enough. The search first finds the fewest steps with a
synchronisation after each step. Then, at that step size and at smaller ones, it finds the fewest
rounds that still reach the accuracy. A method other than plain averaging is searched in the same
way.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.methods.average import ByVisits
from fegsam.methods.method import Method
from fegsam.planning.measured import run_errors
from fegsam.planning.settings import MORE_STEPS, Goal, Setting
from fegsam.problem.federation import Problem
from fegsam.run import Engine

_SEEDS = range(10**6, 10**6 + 128)
_SIGMAS = 2.0
_FIRST_STEPS = 64
_LARGEST_STEP = 2.0
"""Agents that synchronise often tolerate steps above one: their average moves by less than each
of them."""
_SLOWER = tuple(2.0 ** (k / 3) for k in range(13))
"""For long periods, the step size with the fewest steps is divided by these factors; a pilot then
needs as many times the steps."""
_PATIENCE = 4
"""A pilot runs for this many times the steps that its step size needs; by then its error has
reached its floor."""
_ROUNDS_NEAR = 1.1
"""Numbers of rounds are found to within this factor."""
_RECORDS = 300
_METHOD_RECORDS = 60
"""Under a method other than plain averaging a record takes longer than a round."""
_AGENT_STEPS = 10**10
"""The agent-steps of a pilot if there is no budget: some minutes."""


class PilotSearch:
    """Finds settings that reach an accuracy, as `search.Search` does, by pilot runs.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> settings = PilotSearch(fed, fg.QLearning(), accuracy=0.1, engine="cpu").settings(
    ...     Goal("communications")
    ... )
    >>> min(setting.communications for setting in settings)
    1
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        accuracy: float,
        engine: str | Engine,
        caution: float = _LARGEST_STEP,
        method: Method | None = None,
        tried: Callable[[], None] = lambda: None,
    ) -> None:
        self._tried = tried
        """called for every setting that the search looks at"""
        self.problem, self.algorithm, self.accuracy, self.engine = (
            problem,
            algorithm,
            accuracy,
            engine,
        )
        self.caution = caution
        """the largest step size to try, as a multiple of `_LARGEST_STEP`"""
        self.method = method
        by_visits = method is not None and isinstance(method.average, ByVisits)
        self._below = 1.0 if by_visits else math.inf
        """every step size is below this number"""
        self._failed: list[Setting] = []
        """the final settings and errors of pilots that did not reach the accuracy"""

    def settings(self, goal: Goal) -> list[Setting]:
        """Settings that reach the accuracy; an empty list if it is out of reach."""
        affordable = max(_FIRST_STEPS, _AGENT_STEPS // (len(_SEEDS) * int(self.problem.num_agents)))
        limit = int(goal.most_steps if math.isfinite(goal.most_steps) else affordable)
        fewest = self._fewest_steps(limit)
        if fewest is None:
            return []
        limit = min(limit, MORE_STEPS * fewest.num_steps)
        found = [fewest]
        for slower in _SLOWER:
            patience = min(limit, int(_PATIENCE * slower * fewest.num_steps))
            found += self._fewest_rounds(fewest.step_size / slower, patience)
            if found[-1].communications == 1:
                break
        return [setting for setting in found if goal.admits(setting)]

    def within_reach(self, goal: Goal) -> Setting:
        """The best setting seen within the limits."""
        return min(filter(goal.admits, self._failed), key=lambda setting: setting.error)

    def _fewest_steps(self, limit: int) -> Setting | None:
        """With K = 1, double the steps until some step size reaches the accuracy.

        The best step size does not rise with the number of steps.
        """
        largest = self.caution * _LARGEST_STEP
        while largest >= self._below:
            largest /= 2
        steps, tried = min(_FIRST_STEPS, limit), [largest / 2**k for k in range(9)]
        while True:
            found = [
                setting for step in tried if (setting := self._first(step, 1, steps)) is not None
            ]
            if found:
                return min(found, key=lambda setting: setting.num_steps)
            if steps >= limit:
                return None
            best = min(self._failed[-len(tried) :], key=lambda setting: setting.error)
            steps, tried = min(2 * steps, limit), [best.step_size / 2**k for k in range(3)]

    def _fewest_rounds(self, step: float, limit: int) -> list[Setting]:
        """A single round if it is enough; otherwise settings with fewer and fewer rounds.

        All steps are used. The number of rounds is bisected on a logarithmic scale.
        """
        once = self._single_round(step, limit)
        if once is not None:
            return [once]
        # We do not use `bisection`: a run that reaches the accuracy early shortens the bracket
        # further.
        found, bad, good = [], 1, limit + 1
        while good - bad > 1 and good > _ROUNDS_NEAR * bad:
            middle = max(bad + 1, min(good - 1, round(math.sqrt(bad * good))))
            setting = self._first(step, limit // middle, limit)
            if setting is None:
                bad = middle
            else:
                found.append(setting)
                good = min(middle, setting.communications)
        return found

    def _single_round(self, step: float, limit: int) -> Setting | None:
        """One round of at most `limit` steps, if that is enough.

        Plain averaging shows the result of a round of any length within one run: it is the agents'
        mean. For other methods the length is halved for as long as it is enough.
        """
        if self.method is None:
            return self._first(step, None, limit)
        found = None
        while limit and (shorter := self._first(step, limit, limit)) is not None:
            found, limit = shorter, limit // 2
        return found

    def _first(self, step: float, period: int | None, limit: int) -> Setting | None:
        """The first synchronisation up to `limit` at which the error is low enough.

        With no period, the first time at which it is, as a single round.
        """
        rounds = limit // (period or 1)
        records = min(rounds, _RECORDS if self.method is None else _METHOD_RECORDS)
        times = (period or 1) * np.unique(np.linspace(1, rounds, records).astype(np.int64))
        self._tried()
        errors = run_errors(
            self.problem,
            self.algorithm,
            step,
            period or limit + 1,
            times,
            _SEEDS,
            self.engine,
            self.method,
        )
        errors = np.where(np.isfinite(errors).all(axis=0), errors, np.inf)
        with np.errstate(invalid="ignore"):
            mean = errors.mean(axis=0)
            upper = np.nan_to_num(
                mean + _SIGMAS * errors.std(axis=0, ddof=1) / math.sqrt(len(_SEEDS)), nan=np.inf
            )

        def setting(place: int) -> Setting:
            time = int(times[place])
            return Setting(
                step, period or time, time // period if period else 1, float(mean[place])
            )

        low_enough = np.flatnonzero(upper <= self.accuracy)
        if len(low_enough):
            return setting(int(low_enough[0]))
        self._failed.append(setting(-1))
        return None
