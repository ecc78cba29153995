"""(d) The corollary's choice of alpha and K.

alpha is 8 log(N T) / (phi_2 T), and K is T / N or, for agents that differ, sqrt(T) / N. The
corollary promises an error of order 1 / (N T) up to logarithms, with N communications in all, or
N sqrt(T), which is sqrt(N / accuracy). The step size falls with T, but for practical T it is far
too large unless phi_2 is large, which takes few states and a small discount. Also judged is whether
the theorem that the corollary is derived from admits its choice "for T large enough": by the
smallest such T, or by a proof that there is none (`fegsam.theory.large_enough`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.exact.moments import moments
from fegsam.experiments.estimates import slope_estimate
from fegsam.history import History
from fegsam.problem import examples, policies
from fegsam.problem.federation import Problem
from fegsam.problem.mdp import MDP
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.problems import (
    HAVE_EXACT,
    ingredients,
    small_lake,
    smooth_features,
)
from fegsam.reproduction.runs import sampled
from fegsam.reproduction.thresholds import ClaimSpec, certain, fresh_seeds
from fegsam.run import Engine, run
from fegsam.theory.assumptions.drift import drift
from fegsam.theory.bound.corollary import Schedule, schedule
from fegsam.theory.bound.large_enough import LargeEnough, large_enough


def examine(spec: ClaimSpec, engine: str | Engine | None = None) -> Section:
    """Whether the corollary's schedule has the promised error and communication."""
    verdicts: list[Verdict] = []
    figures: list[FigureData] = []
    unusable: list[str] = []
    for number in spec.sizes.algorithms:
        series: list[Series] = []
        for place in spec.sizes.q_problems if number == 4 else spec.sizes.problems:
            algorithm, federate = setting(number, place, spec.sizes.discount)
            phi_2 = drift(federate(2), algorithm).drift
            if not phi_2 >= spec.claim.drift:
                unusable.append(f"{ALGORITHMS[number]}, {place} (phi_2 = {phi_2:.2g})")
                continue
            found, drawn = _check(number, place, spec, engine)
            verdicts += found
            series += drawn
        if series:
            figures.append(_figure(number, series))
    notes = [
        f"The schedule is usable if phi_2, the theorem's rate of contraction, is at least "
        f"{spec.claim.drift:g}, which holds for small problems with discount "
        f"{spec.sizes.discount:g}. The error is that at the random output time, averaged over its "
        "distribution.",
        "The rate and the number of communications are as promised. What fails is the proof: at "
        "these T the corollary's step size violates the conditions of the theorem that it is "
        "derived from. For larger T it satisfies them. K = √T/N, for agents that differ, then "
        "satisfies them too. K = T/N, for agents that agree, does not at any large T, since "
        "α(K − 1) grows as log T, while the theorem's condition on the sync period bounds it by a "
        "constant. The schedule works nevertheless: the conditions are sufficient, not necessary.",
        "In Q-learning on the original FrozenLake several actions are equally good. The maximum "
        "over noisy values is too large there, by the noise of one agent, since agents hardly "
        "ever average: this error does not fall with N. If each move has its own price, no two "
        "are equally good.",
    ]
    if unusable:
        notes.append(
            "Left out, because the corollary's step size would be too large to use: "
            + "; ".join(unusable)
            + "."
        )
    return Section(
        spec.letter,
        spec.title,
        "With the paper's step size and sync period, the error is inversely proportional to the "
        "number of samples of all agents together, N times T, up to a logarithm, while the agents "
        "communicate about N times in all (N√T times if they differ).",
        tuple(verdicts),
        tuple(figures),
        tuple(notes),
    )


def setting(number: int, place: str, discount: float) -> tuple[Any, Callable[[int], Any]]:
    """An algorithm, and a problem of few states for N agents, which follow two policies.

    >>> setting(4, "River swim", 0.5)[1](2)
    Federation(agents=2, kinds=2, states=2, actions=2, discount=0.5)
    """
    mdp: MDP = {
        "Two states": lambda: examples.two_state(discount=discount),
        "Garnet": lambda: examples.garnet(3, 2, 3, discount=discount, seed=1, connected=True),
        "River swim": lambda: examples.river_swim(2 if number in (3, 4) else 3, discount=discount),
        "FrozenLake 1 x 2": lambda: small_lake(["SG"], discount),
        "FrozenLake 1 x 2 at a price": lambda: small_lake(["SG"], discount, priced=True),
        "FrozenLake 2 x 2": lambda: small_lake(["SF", "FG"], discount),
    }[place]()
    # With as many features as states the fit would be perfect, without noise.
    features = smooth_features(mdp.num_states, min(2, mdp.num_states - 1) if number == 1 else 2)
    if number == 5:
        features = np.linspace(1.0, 0.5, mdp.num_states)[:, None]
    return ingredients(number, mdp, _two_policies(mdp, place), features)


def _two_policies(mdp: MDP, place: str) -> np.ndarray:
    """(2, S, A): each prefers an action of its own, but no state-action pair is rare."""
    both = np.tile(policies.uniform(mdp.num_states, mdp.num_actions), (2, 1, 1))
    if place.startswith("FrozenLake 1 x 2"):
        # Moving left never leads to the goal, so every other move makes the goal less rare.
        both[:, 0] = [[0.08, 0.5, 0.21, 0.21], [0.08, 0.21, 0.21, 0.5]]
        return both
    middle = mdp.num_actions // 2
    return 0.75 * both + 0.25 * np.eye(mdp.num_actions)[[middle - 1, middle], None, :]


def _check(
    number: int, place: str, spec: ClaimSpec, engine: str | Engine | None
) -> tuple[list[Verdict], list[Series]]:
    name = f"{ALGORITHMS[number]}, {place}"
    chosen = sorted(spec.sizes.runs, key=lambda pair: pair[0] * pair[1])
    product = np.array([agents * steps for agents, steps in chosen], float)
    algorithm, federate = setting(number, place, spec.sizes.discount)
    plans, samples, truth = [], [], []
    for agents, steps in chosen:
        problem = federate(agents)
        plan = schedule(problem, algorithm, num_steps=steps)
        plans.append(plan)
        history = _run(problem, algorithm, plan, spec, engine)
        samples.append(
            _at_output(
                history,
                history.data.time.values,
                history.data.squared_error_2.transpose("seed", "time").values,
            )
        )
        if number in HAVE_EXACT:
            times = np.unique(np.linspace(0.8 * steps, steps - 1, 20).astype(int))
            at_times = moments(
                problem,
                algorithm,
                step_size=plan.step_size,
                sync_period=plan.sync_period,
                times=times,
                order=1,
            )
            truth.append(_at_output(history, times, at_times.mse))
    slope = slope_estimate(product, np.stack(samples, axis=1) / np.log(product))
    last, (agents, steps) = plans[-1], chosen[-1]
    detail = f"step sizes {plans[0].step_size:.3g} to {last.step_size:.3g}"
    verdicts = [
        spec.verdict("slope", name, slope, detail),
        _communications(name, last, agents, steps, spec),
        admitted_verdict(name, large_enough(federate(agents), algorithm), spec),
    ]
    drawn = [sampled(place, list(product), samples, place)]
    if truth:
        drawn.append(Series(f"{place}, exact", product, truth, style="exact", group=place))
    return verdicts, drawn


def _run(
    problem: Problem,
    algorithm: Algorithm,
    plan: Schedule,
    spec: ClaimSpec,
    engine: str | Engine | None,
) -> History:
    """A run recorded in its last fifth, which contains nearly all of the output times."""
    times = np.unique(
        np.linspace(0.8 * plan.num_steps, plan.num_steps - 1, spec.sizes.points).astype(int)
    )
    return run(
        problem,
        algorithm,
        step_size=plan.step_size,
        sync_period=plan.sync_period,
        num_steps=plan.num_steps,
        seeds=fresh_seeds(spec.sizes.seeds),
        record=times,
        engine="cpu" if engine is None else engine,
    )


def _at_output(history: History, times: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The mean of (..., time) errors under the output time's distribution."""
    weights = np.exp(
        (times - history.settings.num_steps) * -math.log(history.settings.output_decay)
    )
    return errors @ weights / weights.sum()


def admitted_verdict(name: str, found: LargeEnough, spec: ClaimSpec) -> Verdict:
    """The verdict on whether some T is large enough.

    If none was found and nothing is proved, the number is not known.
    """
    known = found.holds or math.isfinite(found.log_fails_from)
    steps = certain(found.num_steps if known else math.nan)
    return spec.verdict("admitted", name, steps, f"N = {found.num_agents}: {found.why}")


def _communications(name: str, plan: Schedule, agents: int, steps: int, spec: ClaimSpec) -> Verdict:
    unit, words = (agents * math.sqrt(steps), "N√T") if plan.heterogeneous else (agents, "N")
    detail = f"{plan.communications} times for N = {agents}, T = {steps}; judged over {words}"
    return spec.verdict("communications", name, certain(plan.communications / unit), detail)


def _figure(number: int, series: list[Series]) -> FigureData:
    x = series[0].x
    line = series[0].y[0] * (np.log(x) / x) / (np.log(x[0]) / x[0])
    return FigureData(
        key=f"corollary-{number}",
        title="The error under the corollary's schedule",
        panel=ALGORITHMS[number],
        caption="With the corollary's step size and sync period, the error is proportional to "
        "log(NT)/(NT).",
        x_label="samples of all agents, N T",
        y_label="squared error at the output time",
        series=(*series, Series("proportional to log(NT)/(NT)", x, line, style="reference")),
    )
