"""`plan`: a step size, sync period and number of steps for an accuracy, verified by a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.errors import ProblemError, shown
from fegsam.exact.fixed_points import fixed_point
from fegsam.experiments.estimates import Estimate
from fegsam.methods.method import Method, check_method
from fegsam.planning.measured import verified
from fegsam.planning.proposals import Proposal, proposer
from fegsam.planning.settings import Goal, Setting, frontier
from fegsam.problem.checks import integer, positive
from fegsam.problem.federation import Problem
from fegsam.progress import Progress
from fegsam.run import Engine
from fegsam.text import html_table, text_table

_ATTEMPTS = 5
_MISLED = 3.0
"""If the error exceeds its prediction by this factor, the step size was too large."""
_CAUTION = 0.7
_CURVE = (
    "Trade-off: settings that are predicted to reach it; the plan keeps a margin for the noise of "
    "a run"
)


class OutOfReachError(ProblemError):
    """An accuracy that no setting within the limits reaches."""


class Tradeoff(NamedTuple):
    """A point of the trade-off curve."""

    communications: int
    num_steps: int
    step_size: float
    sync_period: int


@dataclass(frozen=True, eq=False)
class Plan:
    """Settings that reach an accuracy; see `plan`.

    Attributes
    ----------
    step_size : float
    sync_period, num_steps, communications : int
        K, T and T / K: the last step is followed by a communication. A method that communicates
        twice a round has twice as many.
    accuracy, goal, budget : float, str, int or None
        The arguments of `plan`.
    predicted : float
        The predicted E||avg_T - theta*||_2^2, before verification.
    source : str
        The source of the prediction: "exact" moments, the "small_step" law, or "pilot" runs.
    verified : Estimate
        The error in a run: the mean over the seeds, with its 95 percent interval.
    verify_seeds : int
        The number of seeds of that run.
    met : bool
        Whether that mean is at most `accuracy`.
    tradeoff : tuple of Tradeoff
        Settings that are predicted to reach the accuracy, from the fewest communications to the
        fewest steps.
    method : Method or None
        The method, if it is not plain averaging.

    Examples
    --------
    >>> import fegsam as fg
    >>> from fegsam.planning import plan
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> found = plan(coin, average, accuracy=1e-3, goal="samples")
    >>> found.met, found.tradeoff[0].communications <= found.tradeoff[-1].communications
    (True, True)
    """

    step_size: float
    sync_period: int
    num_steps: int
    communications: int
    accuracy: float
    goal: str
    budget: int | None
    predicted: float
    source: str
    verified: Estimate
    verify_seeds: int
    met: bool
    tradeoff: tuple[Tradeoff, ...]
    method: Method | None = None

    @property
    def _title(self) -> str:
        limited = "steps" if self.goal == "communications" else "communications"
        within = "" if self.budget is None else f", within {self.budget} {limited}"
        return f"Squared error (2-norm) {self.accuracy:.4g} with the fewest {self.goal}{within}"

    @property
    def _verdict(self) -> str:
        return "met" if self.met else "not met; plan for a slightly smaller one"

    def _rows(self) -> list[list[str]]:
        said = {"exact": "exact moments", "small_step": "small-step law", "pilot": "pilot runs"}[
            self.source
        ]
        method = [] if self.method is None else [["method", repr(self.method)]]
        return [
            *method,
            ["step size", f"{self.step_size:.4g}"],
            ["sync period", str(self.sync_period)],
            ["steps", str(self.num_steps)],
            ["communications", str(self.communications)],
            ["predicted error", f"{self.predicted:.4g}, by {said}"],
            ["error in a run", f"{self.verified} over {self.verify_seeds} seeds: {self._verdict}"],
        ]

    def _curve(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [*map(str, (p.communications, p.num_steps, p.sync_period)), f"{p.step_size:.4g}"]
            for p in self.tradeoff
        ]
        return ["communications", "steps", "sync period", "step size"], rows

    def __str__(self) -> str:
        first, *others = self._rows()
        return (
            f"{self._title}\n{text_table(first, others)}\n\n{_CURVE}\n{text_table(*self._curve())}"
        )

    def _repr_html_(self) -> str:
        return html_table(self._title, ["", ""], self._rows()) + html_table(_CURVE, *self._curve())


def plan(
    problem: Problem,
    algorithm: Algorithm,
    *,
    accuracy: float,
    goal: str = "communications",
    budget: int | None = None,
    verify_seeds: int = 200,
    engine: str | Engine = "cpu",
    method: Method | None = None,
) -> Plan:
    """Find settings that reach an accuracy with the fewest communications or samples.

    The error is E||avg_T - theta*||_2^2 of the last iterate, from a start at zero. For linear
    algorithms, the search uses the formula of `round_law` and then, near its answer, exact moments
    if these are fast. For all other algorithms it uses pilot runs. A run then verifies the plan,
    which is tightened if it misses the accuracy.

    Parameters
    ----------
    accuracy : float
        The largest squared 2-norm error allowed, `squared_error_2` of a history.
    goal : {"communications", "samples"}
        What to minimise. Among plans with equally many communications, `plan` takes the one with
        the fewest steps; among plans whose steps differ by at most 2 percent, the one with the
        fewest communications.
    budget : int, optional
        The most steps (goal "communications"; by default 16 times as many as are needed) or the
        most communications (goal "samples"; by default any number).
    verify_seeds : int
        The number of seeds that verify the plan.
    engine, method
        As in `fegsam.run`. For a method other than plain averaging the search uses pilot runs.

    Raises
    ------
    ProblemError
        If the accuracy cannot be met within the budget, or is met before the first step.

    Examples
    --------
    Four agents that average the noise of a coin need to synchronise only once:

    >>> import fegsam as fg
    >>> from fegsam.planning import plan
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> found = plan(coin, average, accuracy=1e-3)
    >>> found.communications, found.source, found.met
    (1, 'exact', True)
    """
    check_algorithm(algorithm, problem)
    accuracy, seeds = positive(accuracy, "accuracy"), integer(verify_seeds, "verify_seeds", least=2)
    method = _searchable(method)
    exchanges = 1 if method is None else method.exchanges
    wanted = _goal(goal, budget, exchanges)
    start = fixed_point(problem, algorithm, method=method)
    if accuracy >= start @ start:
        raise ProblemError(
            f"The start already has a squared error of {start @ start:.3g}; ask for an accuracy "
            "below that."
        )
    level, caution, found = accuracy, 1.0, None
    with Progress(None, "settings", "searching") as progress:
        propose = proposer(problem, algorithm, wanted, seeds, engine, method, progress.one_more)
        for attempt in range(_ATTEMPTS):
            proposal = propose(level, caution)
            if isinstance(proposal, Setting):
                if found is None:
                    raise OutOfReachError(_out_of_reach(accuracy, wanted, proposal, exchanges))
                break
            fresh = range(attempt * seeds, (attempt + 1) * seeds)
            estimate = verified(problem, algorithm, proposal.chosen, fresh, engine, method)
            found = _plan(proposal, accuracy, goal, budget, estimate, seeds, method)
            reached = _shown(proposal, estimate)
            if reached <= accuracy:
                break
            if estimate.value <= _MISLED * found.predicted:
                level *= 0.97 * accuracy / reached
            else:
                caution = _CAUTION * proposal.caution
    assert found is not None
    return found


def _shown(proposal: Proposal, estimate: Estimate) -> float:
    """An error that another run over as many seeds would rarely exceed.

    It is the mean plus half a 95 percent interval, about two standard errors. The margin that a
    plan aims at assumes normal errors, and rare large ones need more. Exact moments, where
    available, replace the estimated mean.
    """
    mean = proposal.chosen.error if proposal.source == "exact" else estimate.value
    return max(estimate.value, mean + (estimate.high - estimate.value))


def _searchable(method: Method | None) -> Method | None:
    """The method of a plan, or None for plain averaging."""
    if method is None or check_method(method).is_plain:
        return None
    if method.local_steps is not None:
        raise ProblemError(
            "local_steps fixes the steps of a round, which a plan searches for; plan for a method "
            "without it."
        )
    return method


def _goal(goal: str, budget: int | None, exchanges: int) -> Goal:
    if not isinstance(goal, str) or goal not in ("communications", "samples"):
        raise ProblemError(f'goal is {shown(goal)}; give "communications" or "samples".')
    most = math.inf if budget is None else integer(budget, "budget")
    if goal == "communications":
        return Goal(goal, most_steps=most)
    if most < exchanges:
        raise ProblemError(
            f"budget is {budget}, but the method communicates {exchanges} times in a round; give "
            "at least as many."
        )
    # The search counts rounds.
    return Goal(goal, most_communications=most if math.isinf(most) else most // exchanges)


def _plan(
    proposal: Proposal,
    accuracy: float,
    goal: str,
    budget: int | None,
    estimate: Estimate,
    seeds: int,
    method: Method | None,
) -> Plan:
    chosen, exchanges = proposal.chosen, 1 if method is None else method.exchanges
    curve = frontier([*proposal.settings, chosen])
    return Plan(
        step_size=chosen.step_size,
        sync_period=chosen.sync_period,
        num_steps=chosen.num_steps,
        communications=chosen.communications * exchanges,
        accuracy=accuracy,
        goal=goal,
        budget=budget,
        predicted=chosen.error,
        source=proposal.source,
        verified=estimate,
        verify_seeds=seeds,
        met=estimate.value <= accuracy,
        tradeoff=tuple(
            Tradeoff(s.communications * exchanges, s.num_steps, s.step_size, s.sync_period)
            for s in curve
        ),
        method=method,
    )


def _out_of_reach(accuracy: float, goal: Goal, best: Setting, exchanges: int) -> str:
    limit = (
        f"{goal.most_communications * exchanges} communications"
        if goal.what == "samples"
        else f"{goal.most_steps} steps"
    )
    within = (
        limit
        if math.isfinite(min(goal.most_steps, goal.most_communications))
        else f"{best.num_steps} steps"
    )
    return (
        f"A squared error of {accuracy:.3g} is out of reach within {within}, where about "
        f"{best.error:.3g} is the least found; ask for a larger accuracy or give a larger budget."
    )
