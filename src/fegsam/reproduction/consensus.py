"""(j) The spread of the agents between two averagings (Lemma "consensus_error").

With k = t - sK steps since the last averaging, and alpha (K - 1) <= sqrt(ln(5/4) / (2 (1 + A~_1))),
the lemma says

    E Omega_t <= 5 alpha^2 k B~^2 (1 + Lag + 4 m_3 (k - 1) eps / B)
                 + 5 alpha^2 k A~_2 sum_{sK <= t' < t} E||theta_t'||_c^2,

where Omega_t is the mean over the agents of ||theta^i_t - theta_t||_c^2, theta is measured from the
fixed point and eps is the heterogeneity. Errors are known exactly in the 2-norm, so if the c-norm
is another norm the check is conservative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import fegsam as fg
from fegsam.experiments.estimates import curve_estimate, mean_estimate, slope_estimate
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.problems import Case, cases
from fegsam.reproduction.thresholds import ClaimSpec, certain, fresh_seeds
from fegsam.theory import Assumptions
from fegsam.theory.bound.constants import constants_from


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The sync error, exact and sampled, under the lemma's bound."""
    verdicts, figures = _coins(spec)
    for case in cases(spec.sizes.one_problem, spec.sizes.algorithms, kinds=spec.sizes.kinds):
        more, figure = _examine(spec, case, engine or "cpu")
        verdicts, figures = verdicts + more, [*figures, figure]
    return Section(
        spec.letter,
        spec.title,
        "Between two averagings the agents' parameters spread. The spread stays below the paper's "
        "bound. It grows with the square of the step size. For agents that are alike it is "
        "proportional to the number of steps since the last averaging; for agents that are pulled "
        "to different places it grows as fast as the square of that number.",
        tuple(verdicts),
        tuple(figures),
        (
            "The step sizes are as large as the lemma admits, which is far larger than the theorem "
            "itself admits.",
        ),
    )


class Spread(NamedTuple):
    """The lemma's bound at times within rounds."""

    times: np.ndarray
    phase: np.ndarray
    """steps since the last averaging"""
    allowed: np.ndarray
    """what the lemma allows, in the c-norm"""


def longest_step(given: Assumptions, period: int) -> float:
    """The largest step size that the lemma admits."""
    A_tilde = constants_from(given, 1e-6).A_tilde_1
    return math.sqrt(math.log(1.25) / (2 * (1 + A_tilde))) / (period - 1) / given.beta


def allowed_spread(
    given: Assumptions, step_size: float, period: int, squares: np.ndarray
) -> Spread:
    """What the lemma allows, from E||theta_t||_c^2 at the times 0, 1, ..."""
    c = constants_from(given, step_size)
    times = np.arange(len(squares))
    phase = times % period
    since_sync = np.array([squares[t - t % period : t].sum() for t in times])
    disagreement = (
        4 * c.m_3 * np.maximum(phase - 1, 0) * given.heterogeneity / c.B if c.B > 0 else 0.0
    )
    noise = c.B_tilde**2 * (1 + c.Lag + disagreement)
    return Spread(times, phase, 5 * c.alpha**2 * phase * (noise + c.A_tilde_2 * since_sync))


def norm_shares(given: Assumptions) -> tuple[float, float]:
    """The least and the largest ||x||_c^2 / ||x||_2^2."""
    if given.norm == "sup":
        return 1.0 / given.dimension, 1.0
    if given.weight is None:
        return 1.0, 1.0
    values = np.linalg.eigvalsh(given.weight)
    return float(values[0]), float(values[-1])


def _examine(spec: ClaimSpec, case: Case, engine: Any) -> tuple[list[Verdict], FigureData]:
    sizes, period = spec.sizes, spec.sizes.sync_period
    problem, algorithm = case.federate(sizes.agents), case.algorithm
    given = fg.theory.assumptions(problem, algorithm)
    step, last = sizes.share * longest_step(given, period), sizes.rounds * period
    settings: dict[str, Any] = {"step_size": step, "sync_period": period}
    record = np.arange(last) if not case.has_exact else np.arange(last - period, last)
    data = fg.run(
        problem,
        algorithm,
        num_steps=last,
        seeds=fresh_seeds(sizes.seeds),
        record=record,
        engine=engine,
        output_decay=0.5,
        **settings,
    ).data
    least, most = norm_shares(given)
    verdicts, exact = [], None
    if case.has_exact:
        found = fg.exact.moments(problem, algorithm, times=np.arange(last), order=1, **settings)
        spread = allowed_spread(given, step, period, least * found.mse)
        within = spread.phase > 0
        worst = certain((most * found.sync_error[within] / spread.allowed[within]).max())
        exact = found.sync_error[-period:]
        ratio = mean_estimate(data.sync_error.values[:, -1] / exact[-1])
        verdicts.append(spec.verdict("exact", f"{case.name}, sampled", ratio))
    else:
        # The error is in the theorem's norm, but the spread is in the 2-norm, which is no smaller
        # than the sup norm.
        spread = allowed_spread(given, step, period, data.squared_error.mean("seed").values)
        within = np.flatnonzero(spread.phase > 0)
        samples = data.sync_error.values[:, within] / spread.allowed[within]
        at = int(samples.mean(axis=0).argmax())
        worst = mean_estimate(samples[:, at])
    verdicts.insert(
        0,
        spec.verdict(
            "lemma",
            case.name,
            worst,
            f"At its worst time, step size {step:.2g}; the bound is {1 / worst.value:.2g} times "
            "the spread.",
            kind="exact" if case.has_exact else "measured",
        ),
    )
    return verdicts, _figure(
        case,
        spread.phase[-period:],
        data.sync_error.values[:, -period:],
        exact,
        spread.allowed[-period:],
    )


def _figure(
    case: Case,
    phase: np.ndarray,
    samples: np.ndarray,
    exact: np.ndarray | None,
    allowed: np.ndarray,
) -> FigureData:
    curve = curve_estimate(samples, positive=True)
    series = [Series("spread", phase, curve.value, curve.low, curve.high)]
    if exact is not None:
        series.append(Series("spread, exact", phase, exact, style="exact", group="spread"))
    series.append(Series("the lemma's bound", phase, allowed, style="bound"))
    return FigureData(
        f"consensus_{case.key}",
        "The spread within a round, and the lemma's bound",
        "Spread of the agents within the last round, and what the consensus lemma allows.",
        "steps since the last averaging",
        "sync error Ω",
        "linear",
        "log",
        tuple(series),
        panel=case.name,
    )


# --- Coins ----------------------------------------------------------------------------------------


def coin_spread(offsets: Any, agents: int, step: float, period: int) -> tuple[Spread, np.ndarray]:
    """The lemma's bound and the exact spread for ``x += alpha (X - x)`` with a coin toss X.

    X is one of the kind's two `offsets` (kinds, 2).
    """
    kinds = len(offsets)
    problem = fg.MarkovNoise(np.full((kinds, 2, 2), 0.5), num_agents=agents)
    algorithm = fg.LinearSA(np.full((kinds, 2, 1, 1), -1.0), np.reshape(offsets, (kinds, 2, 1)))
    given = fg.theory.assumptions(problem, algorithm)
    times = np.arange(period)
    found = fg.exact.moments(problem, algorithm, step_size=step, sync_period=period, times=times)
    return allowed_spread(given, step, period, found.mse), found.sync_error


def _coins(spec: ClaimSpec) -> tuple[list[Verdict], list[FigureData]]:
    """Two examples where everything is known: noise alone, and disagreement alone."""
    sizes = spec.sizes
    step, period = sizes.coin_step, sizes.coin_period
    noise, noisy = coin_spread([[1.0, -1.0]], 100, step, period)
    pull, pulled = coin_spread([[1.0, 1.0], [-1.0, -1.0]], 2, step, period)
    steps = step * np.array([1, 2, 4, 8]) / 8
    ends = [coin_spread([[1.0, -1.0]], 100, each, period)[1][-1] for each in steps]
    later = slice(1, None)

    loose = float((noise.allowed[later] / noisy[later]).max())
    verdicts = [
        spec.verdict(
            "alike_exponent", "coins, like agents", slope_estimate(noise.phase[later], noisy[later])
        ),
        spec.verdict(
            "apart_exponent",
            "coins, agents pulled apart",
            slope_estimate(pull.phase[later], pulled[later]),
        ),
        spec.verdict("step_exponent", "coins, step size", slope_estimate(steps, ends)),
        spec.verdict("loose", "coins, bound", certain(loose)),
    ]
    series = []
    for name, spread, exact in (
        ("like agents", noise, noisy),
        ("agents pulled apart", pull, pulled),
    ):
        series.append(
            Series(f"{name}, exact", spread.phase[later], exact[later], style="exact", group=name)
        )
        series.append(
            Series(
                f"{name}, the lemma's bound",
                spread.phase[later],
                spread.allowed[later],
                style="bound",
                group=name,
            )
        )
    return verdicts, [
        FigureData(
            "consensus_coins",
            "Noise and disagreement",
            "The spread of agents with noise alone is proportional to the steps taken, that of "
            "agents pulled apart to their square.",
            "steps since the last averaging",
            "sync error Ω",
            series=tuple(series),
        )
    ]
