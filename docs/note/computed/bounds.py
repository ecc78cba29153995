"""Section 3: the theorem's bound, printed, corrected and sharper, against the exact error."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import fegsam as fg
from computed.problems import FIRST, garnet, two_states
from fegsam.bisection import last_real
from fegsam.theory.assumptions.assumptions import assumptions
from fegsam.theory.bound.bound import bound_from

AGENTS, STEPS, PERIOD = 10, 10**18, 20


def coins(agents: int) -> tuple[fg.MarkovNoise, fg.LinearSA]:
    """theta += alpha (X - theta) with X = +1 or -1, independent from step to step."""
    noise = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=agents)
    return noise, fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[1.0], [-1.0]])


def cases(agents: int = AGENTS) -> dict[str, tuple[Any, Any]]:
    """The problems of the section's table by name."""
    return {
        "coins": coins(agents),
        "on_policy": (two_states(agents, FIRST[None]), fg.OnPolicyTD()),
        "linear": (two_states(agents), fg.OffPolicyLinearTD()),
        "garnet": (garnet.problem(agents), garnet.algorithm),
        "tabular": (two_states(agents), fg.OffPolicyTabularTD()),
    }


def numbers() -> dict[str, float]:
    """All numbers of the section by name."""
    found: dict[str, float] = {
        "bounds.agents": AGENTS,
        "bounds.period": PERIOD,
        "bounds.steps": STEPS,
    }
    for name, (problem, algorithm) in cases().items():
        found |= {f"bounds.{name}.{key}": value for key, value in row(problem, algorithm).items()}
    for bound in ("corrected", "sharper"):
        ratios = [found[f"bounds.{name}.{bound}"] for name in cases()]
        found |= {f"bounds.{bound}_least": min(ratios), f"bounds.{bound}_most": max(ratios)}
    gains = [
        found[f"bounds.{name}.corrected"] / found[f"bounds.{name}.sharper"] for name in cases()
    ]
    return found | {"bounds.least_gain": min(gains), "bounds.most_gain": max(gains)}


def row(problem: Any, algorithm: Any) -> dict[str, float]:
    """Ratios of bounds to the exact error at the largest step size that the theorem admits."""
    found: dict[str, float] = {}
    for period, name in ((1, ""), (PERIOD, "_local")):
        step = fg.theory.largest_step(problem, algorithm, sync_period=period)
        given = {"step_size": step, "sync_period": period, "num_steps": STEPS}
        decay = fg.theory.default_output_decay(problem, algorithm, step, STEPS)
        # The theorem's norm may be a weighted one, which is at least the 2-norm.
        exact = fg.exact.weighted_error(problem, algorithm, decay=decay, order=1, **given)
        bound = fg.theory.error_bound(problem, algorithm, **given)
        assert bound.holds
        smaller = 1.0 if bound.norm == "sup" else bound.two_norm_factor
        error = float(exact) / smaller
        found |= {
            f"step{name}": step,
            f"exact{name}": error,
            f"corrected{name}": bound.total / error,
            f"printed{name}": printed(problem, algorithm, **given) / error,
            f"sharper{name}": fg.theory.sharper_error_bound(problem, algorithm, **given).total
            / error,
        }
    largest = fg.theory.largest_sharper_step(problem, algorithm)
    found["admitted"] = largest / found["step"]
    found["stable"] = stable_step(problem, algorithm)
    found["tested"] = found["stable"] / found["step"]
    return found


def printed(
    problem: Any, algorithm: Any, *, step_size: float, sync_period: int, num_steps: int
) -> float:
    """The bound with the constants as printed, and the window of the appendix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        c = fg.theory.constants(problem, algorithm, step_size=step_size, printed=True)
    far = float(fg.heterogeneity(problem, algorithm)) if problem.num_kinds > 1 else 0.0
    # The printed tau of the theorem is negative (erratum 2): its size is that of the appendix.
    alpha, local = c.alpha, sync_period - 1
    tau = max(1, math.ceil(2 * math.log(1 / alpha) / math.log(1 / c.rho))) if c.rho > 0 else 1
    rate = math.log1p(-alpha * c.phi_2 / 2)
    return (
        c.S_1 / alpha * math.exp((num_steps - 2 * tau + 1) * rate)
        + c.S_2 * alpha * tau**2 / problem.num_agents
        + c.S_3 * local * alpha**2 * tau
        + c.S_4 * local**2 * far * alpha**2 * tau
        + c.S_5 * alpha**3 * tau**2
    )


def stable_step(problem: Any, algorithm: Any, period: int = 1) -> float:
    """The largest step size at which the mean squared error converges, to half a percent."""

    def converges(step: float) -> bool:
        try:
            fg.exact.stationary_error(
                problem, algorithm, step_size=step, sync_period=period, order=1
            )
        except fg.ProblemError:
            return False
        return True

    return last_real(converges, 1e-3, 1e3, 1.005)


def _stationary(problem: Any, algorithm: Any, setting: dict[str, Any]) -> float:
    """The exact long-run error; NaN where it diverges or is lost in rounding."""
    try:
        return float(fg.exact.stationary_error(problem, algorithm, order=1, **setting))
    except fg.ProblemError:
        return math.nan


def curves(steps: np.ndarray) -> dict[str, np.ndarray]:
    """For Figure 1: the long-run error of on-policy TD on Problem A and its bounds at step sizes.

    NaN where a theorem does not apply.
    """
    problem, algorithm = cases()["on_policy"]
    given = assumptions(problem, algorithm)
    found: dict[str, list[float]] = {name: [] for name in ("exact", "law", "sharper", "corrected")}
    sharpest = fg.theory.largest_sharper_step(problem, algorithm)
    for step in steps:
        setting: dict[str, Any] = {"step_size": float(step), "sync_period": 1}
        law = fg.theory.small_step_law(problem, algorithm, **setting)
        found["law"].append(law.mse)
        found["exact"].append(_stationary(problem, algorithm, setting))
        bound = bound_from(given, num_steps=STEPS, **setting)
        found["corrected"].append(bound.total - bound.terms["initial"] if bound.holds else math.nan)
        found["sharper"].append(
            fg.theory.sharper_error_bound(problem, algorithm, num_steps=STEPS, **setting).stationary
            if step < sharpest
            else math.nan
        )
    return {name: np.array(values) for name, values in found.items()}
