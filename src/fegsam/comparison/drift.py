"""(b) Control variates remove the drift of local steps, but not the bias of Markov draws.

The bias of a round of K local steps has two parts of order alpha K and alpha: the drift of agents
towards their own fixed points, and the correlation of an agent's parameters with its next
observation. Control variates remove the first. The two parts may have opposite signs.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import fegsam as fg
from fegsam.comparison.contestants import PLAIN, by_kind
from fegsam.comparison.suite import SuiteProblem, entry
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series
from fegsam.reproduction.thresholds import ClaimSpec, certain

VARIATES = "SCAFFLSA by kind"
_LEAST_ROUNDS = 800
"""Long rounds make control variates forget slowly, round by round."""


def bias(
    one: SuiteProblem,
    agents: int,
    method: Method,
    step_size: float,
    sync_period: int,
    *,
    relaxations: float,
    sampling: Literal["markov", "iid"] = "markov",
) -> np.ndarray:
    """(d,): the long-run mean of the average minus theta*, exactly."""
    problem = one.problem(agents)
    star = fg.fixed_point(problem, one.algorithm)
    rounds = max(int(np.ceil(relaxations / step_size / sync_period)), _LEAST_ROUNDS)
    found = fg.exact.moments(
        problem,
        one.algorithm,
        step_size=step_size,
        sync_period=sync_period,
        times=np.array([rounds * sync_period]),
        method=method,
        sampling=sampling,
        initial_params=star,
        order=1,
    )
    return found.mean[0] - star


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """All biases are exact, so `engine` is not used."""
    verdicts = []
    for check in ("independent", "markov", "agents"):
        for key in spec.sizes.problems:
            for step_size, period in spec.sizes.settings:
                verdicts.append(_verdict(spec, check, entry(key), step_size, int(period)))
    return Section(
        spec.letter,
        spec.title,
        "Agents that differ drift apart between communications, which moves the long-run mean. "
        "Control variates remove that drift to the last digit. The bias of Markov draws is not "
        "drift: it stays, no number of agents removes it, and where drift happened to cancel a "
        "part of it, removing the drift makes the bias larger.",
        tuple(verdicts),
        (_figure(spec),),
        (
            "The bias is the norm of the long-run mean of the average minus the fixed point, "
            "computed without sampling. The variates are by kind; by agent the means are the same.",
        ),
    )


def _verdict(spec: ClaimSpec, check: str, one: SuiteProblem, step_size: float, period: int) -> Any:
    sizes = spec.sizes
    sampling: Literal["markov", "iid"] = "iid" if check == "independent" else "markov"

    def norm(agents: int, method: Method) -> float:
        found = bias(
            one,
            agents,
            method,
            step_size,
            period,
            relaxations=sizes.relaxations,
            sampling=sampling,
        )
        return float(np.linalg.norm(found))

    corrected = norm(sizes.agents, by_kind(sizes.agents))
    many = check == "agents"
    base = norm(sizes.many_agents, by_kind(2)) if many else norm(sizes.agents, Method())
    other = f"with {sizes.many_agents} agents" if many else PLAIN
    value = base / corrected if many else corrected / base
    return spec.verdict(
        check,
        f"{one.title}, α = {step_size:g}, K = {period}",
        certain(value),
        f"bias {corrected:.3g}; {other}: {base:.3g}",
        column=one.title,
        agents=sizes.agents,
        many=sizes.many_agents,
    )


def _figure(spec: ClaimSpec) -> FigureData:
    sizes, series = spec.sizes, []
    one = entry(sizes.drawn)
    draws: dict[str, Literal["markov", "iid"]] = {"Markov": "markov", "independent": "iid"}
    for draw, sampling in draws.items():
        for name, method in ((PLAIN, Method()), (VARIATES, by_kind(sizes.agents))):
            norms = [
                np.linalg.norm(
                    bias(
                        one,
                        sizes.agents,
                        method,
                        sizes.drawn_step,
                        period,
                        relaxations=sizes.relaxations,
                        sampling=sampling,
                    )
                )
                for period in sizes.periods
            ]
            # Nothing but rounding is left below this.
            seen = np.where(np.array(norms) > 1e-6, norms, np.nan)
            if np.isfinite(seen).any():
                series.append(Series(f"{name}, {draw} draws", sizes.periods, seen, style="exact"))
    return FigureData(
        "drift-bias",
        f"{one.title}: bias against the sync period",
        f"The long-run bias at the step size {sizes.drawn_step:g}. With independent draws the "
        "variates leave none, so they have no curve there.",
        "sync period K",
        "bias ‖E θ − θ*‖",
        series=tuple(series),
    )
