"""Section 2: counterexamples to what the paper prints."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

import fegsam as fg
from computed.problems import FIRST, two_states
from fegsam.reproduction.errata import errata
from fegsam.reproduction.problem_size import EXAMINED, growths
from fegsam.reproduction.thresholds import claim_spec
from fegsam.theory.assumptions.drift import sup_norm_drift
from fegsam.theory.bound.large_enough import large_enough

TABULAR = fg.OffPolicyTabularTD


def numbers() -> dict[str, float]:
    """All numbers of the section by name."""
    found: dict[str, float] = {}
    for group in (severities, window, output, tabular, limit_points, lags, drift, orders, periods):
        found |= group()
    return found


def severities() -> dict[str, float]:
    count = Counter(each.severity for each in errata())
    return {"errata": count.total()} | {f"errata.{name}": many for name, many in count.items()}


def window() -> dict[str, float]:
    rho, alpha = 0.8, 0.01
    log = math.log(alpha) / math.log(rho)
    return {
        "window.rho": rho,
        "window.alpha": alpha,
        "window.printed": math.ceil(-2 * log),
        "window.right": math.ceil(2 * log),
    }


def output() -> dict[str, float]:
    """The output time's mean, and the error of the output, with c and with 1/c.

    Here c < 1, and the probability of time t is proportional to c^-t or, inverted, to c^t.
    """
    problem, step, steps = two_states(1, FIRST[None], features=np.eye(2)), 1e-9, 2**44
    td = fg.OnPolicyTD()
    bound = fg.theory.error_bound(problem, td, step_size=step, sync_period=1, num_steps=steps)
    assert bound.holds
    c = 1 - bound.constants.alpha * bound.constants.phi_2 / 2
    settings: dict[str, Any] = {"step_size": step, "sync_period": 1}
    right = fg.exact.weighted_error(problem, td, num_steps=steps, decay=c, **settings)
    # The error changes over times of the order of 1/step, so a grid of some thousand times is fine.
    times = np.unique(np.r_[0, np.geomspace(1e4, steps - 1, 3000).astype(np.int64)])
    errors = fg.exact.moments(problem, td, times=times, order=1, **settings).mse
    weights = np.exp(times * math.log(c))
    inverted = np.trapezoid(weights * errors, times) / np.trapezoid(weights, times)
    small, shrink, length = 0.01, 0.2, 1000
    law = fg.theory.output_time_distribution(length, 1 - small * shrink / 2)
    return {
        "output.alpha": small,
        "output.phi_2": shrink,
        "output.steps": length,
        "output.mean": law.mean / length,
        "output.mean_inverted": (length - 1 - law.mean) / length,
        "output.step": step,
        "output.bound": bound.total,
        "output.error": float(right),
        "output.error_inverted": float(inverted),
    }


def tabular() -> dict[str, float]:
    """gamma_c and A of tabular TD; A with a ratio of 8."""
    rare = np.array([[1 / 16, 15 / 16], [1 / 2, 1 / 2]])
    found = {}
    for name, printed in (("right", False), ("printed", True)):
        plain = fg.theory.constants(two_states(), TABULAR(), step_size=1e-6, printed=printed)
        skewed = fg.theory.constants(
            two_states(1, rare[None]), TABULAR(), step_size=1e-9, printed=printed
        )
        found |= {f"tabular.gamma_c_{name}": plain.gamma_c, f"tabular.A_{name}": skewed.A_1}
    problem = two_states()
    chain = problem.mdps[0].policy_chain(problem.target_policy).toarray()
    norms = [
        np.abs(np.eye(2) - law[:, None] * (np.eye(2) - chain / 2)).sum(axis=1).max()
        for law in fg.exact.kind_stationary_laws(problem, TABULAR())
    ]
    return found | {"tabular.norm": max(norms), "tabular.ratio": 8}


def limit_points() -> dict[str, float]:
    """Where off-policy linear TD goes, against eq. BEO_FA_off, on one problem and on 200."""
    td, gaps = fg.OffPolicyLinearTD(), []
    for seed in range(200):
        problem = _random_linear(seed)
        right, printed = fg.fixed_point(problem, td), fg.exact.projected_average_point(problem, td)
        gaps.append(np.linalg.norm(right - printed) / np.linalg.norm(right))
    worst = int(np.argsort(gaps)[180])
    problem, step = _random_linear(worst), 1e-4
    mean = fg.exact.moments(
        problem, td, step_size=step, sync_period=1, times=[10**8], order=1
    ).mean[0]
    return {
        "points.problems": len(gaps),
        "points.states": problem.num_states,
        "points.features": problem.features.shape[1],
        "points.right": fg.fixed_point(two_states(), td)[0],
        "points.printed": fg.exact.projected_average_point(two_states(), td)[0],
        "points.median": float(np.median(gaps)) * 100,
        "points.tenth": float(np.quantile(gaps, 0.9)) * 100,
        "points.step": step,
        "points.mean_to_right": np.linalg.norm(mean - fg.fixed_point(problem, td)),
        "points.mean_to_printed": np.linalg.norm(
            mean - fg.exact.projected_average_point(problem, td)
        ),
    }


def _random_linear(seed: int) -> fg.Federation:
    states, actions, features = 10, 3, 3
    rng = np.random.default_rng(seed)
    return fg.Federation(
        fg.examples.garnet(states, actions, 4, discount=0.9, seed=seed, connected=True),
        fg.policies.random(states, actions, count=2, seed=seed),
        num_agents=2,
        target_policy=fg.policies.uniform(states, actions),
        features=rng.normal(size=(states, features)),
    )


def lags() -> dict[str, float]:
    """The mean of the noise beyond a window against the printed bound, and the lags within it.

    Beyond the window E[b(y_t) | y_0] is the mean of phi (T^n Phi v* - Phi v*) over the state that
    follows the last one of y_0 after t - n steps.
    """
    n, lag = 3, 4
    mdp = fg.examples.garnet(4, 2, 2, discount=0.9, seed=7)
    features = np.array([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
    target = fg.policies.uniform(4, 2)
    problem = fg.Federation(mdp, num_agents=1, target_policy=target, features=features)
    given, point = (
        fg.theory.assumptions(problem, fg.OnPolicyTD(n)),
        fg.fixed_point(problem, fg.OnPolicyTD(n)),
    )
    chain, values = mdp.policy_chain(target).toarray(), features @ point
    ahead = values
    for _ in range(n):
        ahead = mdp.policy_rewards(target) + mdp.discount * chain @ ahead
    noise = np.linalg.matrix_power(chain, lag - n) @ (features * (ahead - values)[:, None])
    largest = np.linalg.norm(noise, axis=1).max() / given.beta
    printed = 2 * given.B * given.mixing.m * given.mixing.rho**lag
    table = {
        name: fg.theory.constants(two_states(), TABULAR(n), step_size=1e-9, printed=flag)["Lag"]
        for name, flag in (("right", False), ("printed", True))
    }
    return {
        "lags.window": n,
        "lags.lag": lag,
        "lags.times": largest / printed,
        "lags.sum_right": table["right"],
        "lags.sum_printed": table["printed"],
    }


def drift() -> dict[str, float]:
    """phi_2 with l_cs squared, as defined, and not squared, as printed; and the norms of a table.

    The vector of ones has the sup norm 1 and the p-norm d^(1/p).
    """
    found: dict[str, float] = {}
    for name, gap in (("near", 0.1), ("far", 0.01)):
        gamma = 1 - gap
        half = (1 + gamma) / (2 * gamma)
        printed = 1 - math.exp(0.25) * (1 + gamma) / 2 / math.sqrt(math.sqrt(math.e) - 1 + half**2)
        right = sup_norm_drift(gap, 100).drift
        found |= {
            f"drift.gamma_{name}": gamma,
            f"drift.right_{name}": right,
            f"drift.printed_{name}": printed,
            f"drift.excess_{name}": 100 * (printed / right - 1),
        }
    states, actions = 5, 4
    power = 2 * math.log(states)
    return found | {
        "table.states": states,
        "table.actions": actions,
        "table.norm": (states * actions) ** (-1 / power),
        "table.printed": math.exp(-0.5),
        "table.smallest": 2 * math.log(2),
    }


def orders() -> dict[str, float]:
    """Exponents of the variance's constant S_2 between the most extreme problems of a family."""
    sizes, found = claim_spec("problem_size", True), {}
    for parameter, name in (("mu_min", "rare"), ("1-gamma", "discount")):
        for each in growths(sizes, EXAMINED[0], parameter):
            if each.key == "variance":
                found |= {
                    f"orders.{name}": -each.exponent,
                    f"orders.{name}_printed": -each.printed,
                    f"orders.{name}_right": -each.corrected,
                }
    return found


def periods() -> dict[str, float]:
    """The corollary's K = T/N against the condition on alpha (K - 1), and the sum of the proof."""
    agents, found = 10, {}
    admitted = large_enough(two_states(agents), TABULAR())
    for name, steps in (("short", 10**6), ("long", 10**12)):
        alpha = 8 * math.log(agents * steps) / (admitted.drift * steps)
        found |= {f"periods.steps_{name}": steps, f"periods.{name}": alpha * (steps / agents - 1)}
    for name, period, tau in (("one", 200, 10), ("other", 1000, 5)):
        found |= {
            f"sum.period_{name}": period,
            f"sum.tau_{name}": tau,
            f"sum.times_{name}": _block_sum(period, tau),
        }
    return found | {"periods.agents": agents, "periods.limit": admitted.limit}


def _block_sum(period: int, tau: int) -> float:
    """I_4 divided by its printed bound, for equal weights and M = 1 over five rounds."""
    last = 5 * period + tau
    place = np.arange(last + 1) % period
    squares = np.cumsum(place.astype(float) ** 2)
    starts = np.arange(period + tau + 1, last + 1)
    total = (squares[starts] - squares[starts - tau - 1]).sum()
    return float(total / ((period - 1) * tau * (tau + 1) * (last - period)))
