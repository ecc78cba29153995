"""Section 6: what control variates, weights, participation, momentum and extrapolation change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fegsam as fg
from computed.problems import garnet, garnets, pair
from fegsam.comparison.drift import bias
from fegsam.comparison.first_step import variance
from fegsam.comparison.importance import two_states as sticky
from fegsam.comparison.longer_rounds import law as rate_law
from fegsam.comparison.longer_rounds import rounds_to_forget
from fegsam.comparison.many_agents import limit_point, paths, windows
from fegsam.comparison.momentum import curves
from fegsam.comparison.participation import plain_law, variates_law
from fegsam.comparison.scalars import alike
from fegsam.comparison.suite import entry
from fegsam.comparison.unstable import two_features
from fegsam.reproduction.thresholds import claim_spec

PLAIN = fg.Method()
BY_KIND = fg.Method(correction=fg.ControlVariates("kind"))


def numbers() -> dict[str, float]:
    """All numbers of the section by name."""
    found: dict[str, float] = {}
    groups = (two_agents, markov_draws, rounds, first_step, participation, visits, momentum)
    for group in (*groups, extrapolation, tails, unstable):
        found |= group()
    return found


def two_agents() -> dict[str, float]:
    """Problem B: bias and variance of plain averaging, and with both kinds of variates."""
    step, period = 0.1, 10
    found = {"pair.step": step, "pair.period": period}
    methods = {"plain": PLAIN, "last": BY_KIND, "first": fg.methods.fedhsa()}
    for name, method in methods.items():
        moments = fg.exact.moments(
            *pair(2),
            step_size=step,
            sync_period=period,
            times=[20_000],
            method=method,
            order=1,
        )
        apart = moments.mean[0, 0] - fg.fixed_point(*pair(2))[0]
        found |= {
            f"pair.{name}": 0.0 if abs(apart) < 1e-12 else apart,
            f"pair.{name}_variance": moments.mse[0] - apart**2,
        }
    return found


def markov_draws() -> dict[str, float]:
    """Problem C: the bias of plain averaging and of variates, with Markov draws and without."""
    step, period, agents, many = 0.16, 64, 8, 10**6
    found = {"draws.step": step, "draws.period": period, "draws.agents": agents, "draws.many": many}
    settings: dict[str, Any] = {"relaxations": 480}
    for one, place in ((garnet, "c"), (garnets, "d")):
        for name, method in (("plain", PLAIN), ("variates", BY_KIND)):
            for draws in ("markov", "iid"):
                value = bias(one, agents, method, step, period, sampling=draws, **settings)
                found[f"draws.{place}_{name}_{draws}"] = np.linalg.norm(value)
        value = bias(one, many, BY_KIND, step, period, **settings)
        found[f"draws.{place}_many"] = np.linalg.norm(value)
    return found


def rounds() -> dict[str, float]:
    """The rate per round of variates of the last round; the closed form."""
    step, found = 0.01, {"rounds.step": 0.01}
    for name, period in (("short", 50), ("best", 100), ("long", 1000)):
        found |= {f"rounds.length_{name}": step * period, f"rounds.{name}": rate_law(step, period)}
    return found | {"rounds.plain": (1 - step) ** 1000}


def first_step() -> dict[str, float]:
    """Variances at a fixed alpha K, where the step size falls tenfold and more."""
    total, large, small = 4.0, 0.01, 0.001
    found = {"first.length": total, "first.large": large, "first.small": small}
    for name, method in (("plain", PLAIN), ("first", fg.methods.fedhsa())):
        for size, step in (("large", large), ("small", small)):
            found[f"first.{name}_{size}"] = variance(method, step, total, 200)
    # What first steps add to plain averaging in short rounds of 500 steps.
    added = [
        variance(fg.methods.fedhsa(), length / 500, length, 400)
        - variance(PLAIN, length / 500, length, 400)
        for length in (0.2, 0.1)
    ]
    return found | {"first.exponent": math.log2(added[0] / added[1])}


def participation() -> dict[str, float]:
    """Half of eight agents that are alike but for their own points: the laws and exact values."""
    agents, present, step, found = 8, 4, 0.002, {}
    some = fg.Participation(agents=present, others="go_on")
    variates = fg.ControlVariates()
    everyone = None
    for period in (1, 16):
        values = {}
        for name, method in {
            "all": fg.Method(correction=variates),
            "plain": fg.Method(participation=some),
            "variates": fg.Method(participation=some, correction=variates),
        }.items():
            given = {"step_size": step, "sync_period": period, "method": method, "order": 1}
            values[name] = float(fg.exact.stationary_error(*alike(agents), **given))
        everyone = values["all"]
        found |= {
            f"present.plain_{period}": values["plain"] / everyone,
            f"present.variates_{period}": values["variates"] / everyone,
            f"present.plain_off_{period}": 100
            * abs(values["plain"] / plain_law(step, period, agents, present) - 1),
            f"present.variates_off_{period}": 100
            * abs(values["variates"] / variates_law(step, agents, present) - 1),
        }
    return found | {
        "present.period": 16,
        "present.agents": agents,
        "present.some": present,
        "present.step": step,
    }


def visits() -> dict[str, float]:
    """Q-learning with infinitely many agents: distances from Q* by enumeration of a round."""
    mdp, policy = sticky()
    star = fg.fixed_point(fg.Federation(mdp, policy, num_agents=2), fg.QLearning())
    period, found = 4, {"visits.period": 4}
    for draws in ("markov", "iid"):
        every = paths(windows(mdp, policy), period, draws)
        for name, weighted in (("plain", False), ("visits", True)):
            for size, step in (("large", 0.1), ("small", 0.05)):
                if draws == "iid" and size == "small":
                    continue
                point = limit_point(mdp, every, step, star, by_visits=weighted)
                apart = float(np.linalg.norm(point - star))
                found[f"visits.{name}_{draws}_{size}"] = 0.0 if apart < 1e-10 else apart
                found[f"visits.{size}"] = step
    return found


def momentum() -> dict[str, float]:
    """Rounds until the error stays within four times its floor, plain and with momentum 0.9."""
    spec = claim_spec_of("momentum")
    step, found = 0.16, {"momentum.beta": spec.sizes.momentum, "momentum.step": 0.16}
    plain, heavy = curves(spec, entry("policies"), step)
    for name, errors in (("plain", plain), ("heavy", heavy)):
        level = spec.sizes.times * plain[-1] / errors[0]
        found[f"momentum.{name}"] = rounds_to_forget(errors, level)
    return found | {
        "momentum.period": spec.sizes.sync_period,
        "momentum.times": spec.sizes.times,
        "momentum.floor": float(heavy[-1] / plain[-1]),
    }


def claim_spec_of(name: str) -> Any:
    """A claim about methods, with its fixed settings."""
    return claim_spec(name, True, package="fegsam.comparison")


def extrapolation() -> dict[str, float]:
    """Problem C: the bias, and what two step sizes leave of it."""
    step, period, agents = 0.04, 16, 8
    whole, half, quarter = (
        bias(garnet, agents, PLAIN, size, period, relaxations=480)
        for size in (step, step / 2, step / 4)
    )
    left = [np.linalg.norm(2 * half - whole), np.linalg.norm(2 * quarter - half)]
    return {
        "two.step": step,
        "two.period": period,
        "two.agents": agents,
        "two.plain": np.linalg.norm(whole),
        "two.left": left[0],
        "two.exponent": math.log2(left[0] / left[1]),
    }


def tails() -> dict[str, float]:
    """The tail average over synchronisations against the one over all steps, law and exact."""
    step, length = 0.01, 4.0
    period = round(length / step)
    count = 4000
    given = {"step_size": step, "sync_period": period, "num_steps": count * period}
    steps, syncs = (
        fg.exact.tail_error(*alike(2), tail=fg.Tail(0.5, over), **given).mse
        for over in ("steps", "syncs")
    )
    return {
        "tail.length": length,
        "tail.rounds": count,
        "tail.exact": float(syncs / steps),
        "tail.law": length / 2 / math.tanh(length / 2),
    }


def unstable() -> dict[str, float]:
    """The mean increment of off-policy TD at theta = 1 on two states of features 1 and 2."""
    problem = two_features(2)
    law = fg.exact.kind_stationary_laws(problem, fg.TDC())[0]
    chain = problem.mdps[0].policy_chain(problem.target_policy).toarray()
    phi = problem.features[:, 0]
    return {"unstable.push": float((law * phi) @ (problem.mdps[0].discount * chain @ phi - phi))}
