"""(f) Markov against independent draws, on the paper's illustrative example and on TD.

The example, from the section "Illustrative Example and the Challenge", is scalar: ``theta += alpha
(b(Y_t) - theta)`` with b = +1 or -1, averaged at every step. The noise keeps its sign with
probability (1 + memory) / 2, or is drawn independently at each step. With ``x = (1 - alpha)
memory``,

    E theta^2 = alpha / (N (2 - alpha))                        for independent draws,
    E theta^2 = alpha / (N (2 - alpha)) * (1 + x) / (1 - x)    for Markov draws,

and the term E[theta_t b(Y_t)], which makes the proof difficult, is alpha memory / (N (1 - x)).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.engines.job import Sampling
from fegsam.experiments.estimates import (
    Estimate,
    curve_estimate,
    mean_estimate,
    ratio_estimate,
    slope_estimate,
)
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.problems import Case, cases
from fegsam.reproduction.thresholds import ClaimSpec, exponent, fresh_seeds, widest

SAMPLINGS: tuple[Sampling, ...] = ("markov", "iid")
NAMES = {"markov": "Markov draws", "iid": "independent draws"}


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The cost of memory in the noise."""
    samples = {kind: scalar_runs(spec, kind, engine or "cpu") for kind in SAMPLINGS}
    verdicts, figures = scalar_verdicts(spec, samples), [_scalar_figure(spec, samples)]
    for case in cases(spec.sizes.td_one_problem, (2,)):
        more, figure = _examine_td(spec, case, engine or "cpu")
        verdicts, figures = verdicts + more, [*figures, figure]
    return Section(
        spec.letter,
        spec.title,
        "Agents that learn along a path, where each observation depends on the one before, and "
        "average at every step, gain as much from averaging as agents that draw every observation "
        "independently: the error of N agents is N times smaller, and memory costs a factor that "
        "does not depend on N. If they average rarely, memory leaves a floor besides.",
        tuple(verdicts),
        tuple(figures),
        (
            "The first example is the paper's: a scalar that follows noise of +1 and -1 with step "
            f"size {spec.sizes.step_size}, averaged at every step. Its errors have a closed form, "
            "drawn as lines.",
            "Memory limits the speed-up only with averaging every K > 1 steps in problems whose "
            "noise multiplies the parameters, such as TD: agents then share a bias that no number "
            "of agents removes. Independent draws have none. The paper's bound has a term for it "
            "that is not divided by N.",
        ),
    )


# --- The scalar example ---------------------------------------------------------------------------


class Scalars(NamedTuple):
    """(seeds, numbers of agents) each."""

    square: np.ndarray
    """theta^2, averaged over the recorded times"""
    cross: np.ndarray
    """theta_t b(Y_t), averaged in the same way"""


def scalar_runs(spec: ClaimSpec, sampling: Sampling, engine: Any) -> Scalars:
    """The scalar example, run for each number of agents."""
    sizes, columns = spec.sizes, []
    stay = (1 + sizes.memory) / 2
    follow = fg.LinearSA(np.full((2, 1, 1), -1.0), [[1.0], [-1.0]])
    times = np.arange(sizes.burn_in, sizes.num_steps, sizes.gap)
    for agents in sizes.agents:
        noise = fg.MarkovNoise([[stay, 1 - stay], [1 - stay, stay]], num_agents=agents)
        history = fg.run(
            noise,
            follow,
            step_size=sizes.step_size,
            sync_period=1,
            num_steps=sizes.num_steps,
            seeds=fresh_seeds(sizes.seeds),
            record=np.union1d(times, times + 1),
            record_params=True,
            sampling=sampling,
            engine=engine,
        )
        params = history.data.average_params.isel(param=0)
        now, after = params.sel(time=times).values, params.sel(time=times + 1).values
        noise_now = (after - now) / sizes.step_size + now
        columns.append(((now**2).mean(axis=1), (now * noise_now).mean(axis=1)))
    return Scalars(*(np.stack(each, axis=1) for each in zip(*columns, strict=True)))


def closed_forms(step_size: float, memory: float) -> tuple[float, float, float]:
    """One agent's error under independent and Markov draws, and its correlation with Markov noise.

    >>> [round(x, 4) for x in closed_forms(0.1, 0.5)]
    [0.0526, 0.1388, 0.0909]
    """
    kept = (1 - step_size) * memory
    independent = step_size / (2 - step_size)
    return independent, independent * (1 + kept) / (1 - kept), step_size * memory / (1 - kept)


def scalar_verdicts(spec: ClaimSpec, samples: dict[str, Scalars]) -> list[Verdict]:
    """The verdicts on the runs of `scalar_runs`, against the closed forms."""
    sizes = spec.sizes
    agents = np.array(sizes.agents, dtype=float)
    independent, markov, cross = closed_forms(sizes.step_size, sizes.memory)
    found = [
        spec.verdict(
            "slope",
            f"scalar example, {NAMES[kind]}",
            exponent(agents, samples[kind].square),
            draws=NAMES[kind],
        )
        for kind in SAMPLINGS
    ]
    found.append(
        spec.verdict(
            "cross",
            "scalar example, correlation with the noise",
            exponent(agents, samples["markov"].cross),
            "Earlier proofs could bound this term only by a number that does not shrink with N.",
        )
    )
    share = mean_estimate((samples["iid"].cross * agents).mean(axis=1) / cross)
    found.append(spec.verdict("independent_cross", "scalar example, independent noise", share))
    prices = [
        ratio_estimate(samples["markov"].square[:, j], samples["iid"].square[:, j])
        for j in range(len(agents))
    ]
    relative = [
        Estimate(*(x * independent / markov for x in (each.value, each.low, each.high)))
        for each in prices
    ]
    factor = markov / independent
    found.append(
        spec.verdict(
            "price",
            "scalar example, price of memory",
            widest(relative),
            "Over the closed form.",
            factor=factor,
        )
    )
    return found


def _scalar_figure(spec: ClaimSpec, samples: dict[str, Scalars]) -> FigureData:
    agents, forms = spec.sizes.agents, closed_forms(spec.sizes.step_size, spec.sizes.memory)
    series = []
    for kind, one in zip(("iid", "markov"), forms, strict=False):
        curve = curve_estimate(samples[kind].square, positive=True)
        series.append(Series(f"{NAMES[kind]}, error", agents, curve.value, curve.low, curve.high))
        series.append(
            Series(
                f"{NAMES[kind]}, closed form",
                agents,
                one / np.array(agents),
                style="exact",
                group=f"{NAMES[kind]}, error",
            )
        )
    curve = curve_estimate(samples["markov"].cross)
    series.append(Series("E[θ b], Markov draws", agents, curve.value, curve.low, curve.high))
    exact = forms[2] / np.array(agents)
    series.append(
        Series("E[θ b], closed form", agents, exact, style="exact", group="E[θ b], Markov draws")
    )
    return FigureData(
        "sampling_scalar",
        "Averaging at every step, memory costs a factor, not the speed-up",
        "The error of the paper's scalar example, and the correlation of the average with its next "
        "noise, all fall as 1/N.",
        "agents N",
        "long-run mean",
        series=tuple(series),
    )


# --- TD -------------------------------------------------------------------------------------------


def _examine_td(spec: ClaimSpec, case: Case, engine: Any) -> tuple[list[Verdict], FigureData]:
    sizes, period = spec.sizes, spec.sizes.td_sync_period
    # The start is forgotten, and the recorded times are far enough apart to be nearly independent.
    apart = period * math.ceil(case.relaxation / period)
    times = apart * np.arange(sizes.td_forgotten, sizes.td_forgotten + sizes.td_records)
    many = [*sizes.td_agents, *sizes.td_more_agents]
    series, exact, ratios = [], {}, []
    for kind in SAMPLINGS:
        exact[kind] = _td_exact(spec, case, kind, int(times[0]))
        columns = _td_samples(spec, case, kind, times, engine)
        ratios += [
            mean_estimate(column / truth)
            for column, truth in zip(columns, exact[kind], strict=False)
        ]
        curve = curve_estimate(np.stack(columns, axis=1), positive=True)
        series.append(Series(NAMES[kind], sizes.td_agents, curve.value, curve.low, curve.high))
        series.append(
            Series(f"{NAMES[kind]}, exact", many, exact[kind], style="exact", group=NAMES[kind])
        )
    verdicts = [
        spec.verdict("td_exact", f"{case.name}, sampled against exact", widest(ratios)),
        *(
            spec.verdict(
                check,
                f"{case.name}, {NAMES[kind]}, averaging every {period} steps",
                slope_estimate(many[-2:], exact[kind][-2:]),
                f"from N = {many[-2]:,} to N = {many[-1]:,}, where the exact error is "
                f"{exact[kind][-1]:.3g}",
                period=period,
            )
            for check, kind in (("td_floor", "markov"), ("td_no_floor", "iid"))
        ),
    ]
    figure = FigureData(
        f"sampling_{case.key}",
        f"Averaging every {period} steps, memory leaves a floor",
        "With independent draws the error falls as 1/N without limit; with Markov draws it stops "
        "at the agents' common bias.",
        "agents N",
        "long-run E‖θ − θ*‖²",
        series=tuple(series),
        panel=case.name,
    )
    return verdicts, figure


def _td_exact(spec: ClaimSpec, case: Case, kind: Sampling, time: int) -> list[float]:
    """The exact errors at a time, for all numbers of agents.

    They start at the fixed point: beside the error of millions of agents, even a small remainder of
    another start would be visible.
    """
    sizes, td = spec.sizes, case.algorithm
    settings: dict[str, Any] = {
        "step_size": case.step_size,
        "sync_period": sizes.td_sync_period,
        "times": np.array([time]),
        "sampling": kind,
        "order": 1,
        "initial_params": fg.fixed_point(case.federate(1), td),
    }
    return [
        float(fg.exact.moments(case.federate(n), td, **settings).mse[0])
        for n in (*sizes.td_agents, *sizes.td_more_agents)
    ]


def _td_samples(
    spec: ClaimSpec, case: Case, kind: Sampling, times: np.ndarray, engine: Any
) -> list[np.ndarray]:
    """(seeds,) for each number of agents that is run: the mean error over the recorded times."""
    histories = (
        fg.run(
            case.federate(n),
            case.algorithm,
            step_size=case.step_size,
            sync_period=spec.sizes.td_sync_period,
            num_steps=int(times[-1]),
            seeds=fresh_seeds(spec.sizes.td_seeds),
            record=times,
            sampling=kind,
            engine=engine,
        )
        for n in spec.sizes.td_agents
    )
    return [history.data.squared_error_2.mean("time").values for history in histories]
