"""(l) Looking n > 1 steps ahead: Theorem 7.1 needs a large n, Theorems 5.1 and 6.1 hold for all n.

The example that diverges for small n has two states. In both, the action chooses the next state.
One feature phi is larger in the second state. Both rows of the target policy's chain are p, so
P^n = P and

    A = sum_s mu(s) phi(s)^2 - gamma^n (sum_s mu(s) phi(s)) (sum_s p(s) phi(s)),

which is positive, so that the algorithm is stable, if and only if ``gamma^n < sum mu phi^2 / (sum
mu phi sum p phi)``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.experiments.estimates import (
    curve_estimate,
    mean_estimate,
    ratio_estimate,
    slope_estimate,
)
from fegsam.problem.federation import Problem
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.corollary import setting
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.problems import relaxation
from fegsam.reproduction.runs import sampled
from fegsam.reproduction.thresholds import ClaimSpec, certain, fresh_seeds, widest


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """What a longer look-ahead changes, and what it does not."""
    verdicts, figure = measured_example(spec, engine or "cpu")
    verdicts.append(threshold_verdict(spec))
    figures = [figure]
    for number in spec.sizes.algorithms:
        found, drawn = measured_speed_up(spec, number, engine or "cpu")
        verdicts += found
        figures.append(drawn)
    return Section(
        spec.letter,
        spec.title,
        "Off-policy TD with features may diverge if it looks one step ahead. It converges if it "
        "looks far enough ahead, and how far is known beforehand. For every n, N agents have 1/N "
        "of the error of one.",
        tuple(verdicts),
        tuple(figures),
        (
            "The example has two states and one feature. Its agents follow the uniform policy and "
            "evaluate a policy that prefers the state with the larger feature.",
        ),
    )


# --- An example that diverges ---------------------------------------------------------------------


def example(spec: ClaimSpec, agents: int) -> fg.Federation:
    """Two states; action a leads to state a."""
    sizes = spec.sizes
    moves = np.tile(np.eye(2), (2, 1, 1))
    mdp = fg.MDP(moves, [[1.0, 0.0], [0.0, 1.0]], sizes.discount)
    target = np.tile([1 - sizes.target, sizes.target], (2, 1))
    features = np.array(sizes.features)[:, None]
    return fg.Federation(
        mdp, np.full((1, 2, 2), 0.5), num_agents=agents, target_policy=target, features=features
    )


def matrix_and_point(spec: ClaimSpec, horizon: int) -> tuple[float, float]:
    """A in closed form, and the point where the mean increment is zero."""
    sizes, phi, mu = spec.sizes, np.array(spec.sizes.features), np.array([0.5, 0.5])
    p = np.array([1 - sizes.target, sizes.target])
    # In state 0 the first action pays 1, in state 1 the second.
    rewards = np.sum(
        [
            np.linalg.matrix_power(sizes.discount * np.tile(p, (2, 1)), k) @ p
            for k in range(horizon)
        ],
        axis=0,
    )
    matrix = float(mu @ phi**2 - sizes.discount**horizon * (mu @ phi) * (p @ phi))
    return matrix, float((mu * phi) @ rewards) / matrix


def first_horizon(spec: ClaimSpec) -> int:
    """The smallest n for which A in closed form is positive.

    >>> from fegsam.reproduction.thresholds import claim_spec
    >>> first_horizon(claim_spec("look_ahead", True))
    2
    """
    return next(n for n in range(1, 10_000) if matrix_and_point(spec, n)[0] > 0)


def measured_example(spec: ClaimSpec, engine: Any) -> tuple[list[Verdict], FigureData]:
    """The example that needs a long look-ahead: runs below and above the smallest stable n."""
    first, sizes = first_horizon(spec), spec.sizes
    scan = fg.theory.scan_horizons(
        example(spec, 1), fg.OffPolicyLinearTD(), range(1, 2 * first + 2)
    )
    found = next(
        (
            n
            for n, level in zip(scan.horizons, scan.levels, strict=True)
            if level in ("identity", "common")
        ),
        math.inf,
    )
    # Long enough for the error of diverging agents to grow well beyond its start.
    steps = round(sizes.relaxations / (sizes.step_size * abs(matrix_and_point(spec, first - 1)[0])))
    where, series, problem = "two states, one feature", [], example(spec, sizes.example_agents)
    verdicts = [
        spec.verdict("first", where, certain(found / first), f"n = {found:g}, closed form {first}")
    ]
    for horizon in (first - 1, first, first + 1):
        matrix, point = matrix_and_point(spec, horizon)
        history = fg.run(
            problem,
            fg.OffPolicyLinearTD(horizon=horizon),
            step_size=sizes.step_size,
            sync_period=4,
            num_steps=steps,
            seeds=fresh_seeds(sizes.seeds),
            record=max(1, steps // 20),
            fixed_point=[point],
            output_decay=0.5,
            engine=engine,
        )
        errors = history.data.squared_error_2.transpose("seed", "time").values
        change = ratio_estimate(errors[:, -1], errors[:, 0], paired=True)
        detail = f"the mean increment is {-matrix:.3g} alpha times the error; {steps} steps"
        verdicts.append(
            spec.verdict(
                "below" if matrix < 0 else "above", f"{where}, n = {horizon}", change, detail
            )
        )
        curve = curve_estimate(errors / errors[:, :1], positive=True)
        times = history.data.time.values
        series.append(Series(f"n = {horizon}", times, curve.value, curve.low, curve.high))
    return verdicts, FigureData(
        key="look-ahead",
        title="Divergence if the look-ahead is too short",
        caption="Off-policy linear TD on two states: below the n that Theorem 7.1 requires, the "
        "error grows.",
        x_label="steps",
        y_label="squared error, relative to the start",
        x_scale="linear",
        series=tuple(series),
    )


# --- Every n that is large enough -----------------------------------------------------------------


def random_problem(spec: ClaimSpec, seed: int) -> fg.Federation:
    """A Garnet with random features, whose agents follow policies of their own."""
    sizes = spec.sizes
    states = sizes.random_states
    mdp = fg.examples.garnet(
        states, 3, 2, discount=sizes.random_discount, seed=seed, connected=True
    )
    features = np.random.default_rng(seed).normal(size=(states, sizes.random_features))
    own, target = (
        fg.policies.random(states, 3, count=4, seed=seed),
        fg.policies.random(states, 3, count=1, seed=seed + 1000)[0],
    )
    return fg.Federation(mdp, own, num_agents=4, target_policy=target, features=features)


def threshold_verdict(spec: ClaimSpec) -> Verdict:
    """The verdict on whether the horizon that the paper requires is enough on random problems."""
    norms, horizons, without = [], [], 0
    for seed in fresh_seeds(spec.sizes.random_problems):
        problem = random_problem(spec, seed)
        needed = fg.theory.scan_horizons(problem, fg.OffPolicyLinearTD(), [1]).threshold
        scan = fg.theory.scan_horizons(problem, fg.OffPolicyLinearTD(), [1, needed, needed + 1])
        without += scan.levels[0] != "identity"
        horizons.append(needed)
        # A number below 1 proves that the agents contract in the 2-norm; the search for norms must
        # find this too.
        found = zip(scan.operator_norms[1:], scan.levels[1:], strict=True)
        norms += [norm if level == "identity" else math.inf for norm, level in found]
    detail = (
        f"{len(horizons)} problems, n from {min(horizons)} to {max(horizons)}; at n = 1 the "
        f"agents of {without} of them do not contract in the 2-norm"
    )
    return spec.verdict("threshold", "random problems", certain(max(norms)), detail)


# --- Linear speed-up for n > 1 --------------------------------------------------------------------


def measured_speed_up(
    spec: ClaimSpec, number: int, engine: Any
) -> tuple[list[Verdict], FigureData]:
    """How the error falls with the number of agents at each look-ahead."""
    sizes, many = spec.sizes, np.array([*spec.sizes.agents, *spec.sizes.far_agents])
    plain, federate = setting(number, sizes.place, 0.5)
    verdicts, series = [], []
    settings: dict[str, Any] = {"step_size": sizes.step_size, "sync_period": 1}
    for horizon in sizes.horizons:
        algorithm, group = replace(plain, horizon=horizon), f"n = {horizon}"
        where = f"{ALGORITHMS[number]}, {sizes.place}, {group}"
        exact = [
            fg.exact.stationary_error(federate(int(n)), algorithm, order=1, **settings)
            for n in many
        ]
        if horizon > 1:
            verdicts.append(
                spec.verdict("slope", where, slope_estimate(many, exact), horizon=horizon)
            )
        series.append(Series(f"{group}, exact", many, exact, style="exact", group=group))
        if horizon != max(sizes.horizons):
            continue
        columns = [
            _long_run(spec, number, federate(n), algorithm, settings, engine) for n in sizes.agents
        ]
        ratios = [
            mean_estimate(column / truth) for column, truth in zip(columns, exact, strict=False)
        ]
        verdicts.append(spec.verdict("sampled", where, widest(ratios), horizon=horizon))
        series.append(sampled(group, sizes.agents, columns, group))
    return verdicts, FigureData(
        key=f"look-ahead-speed-up-{number}",
        title="The error against the number of agents, n steps ahead",
        panel=ALGORITHMS[number],
        caption="However far agents look ahead, the long-run error is divided by their number.",
        x_label="agents N",
        y_label="long-run squared error E‖θ − θ*‖²",
        series=tuple(series),
    )


def _long_run(
    spec: ClaimSpec,
    number: int,
    problem: Problem,
    algorithm: Algorithm,
    settings: dict[str, Any],
    engine: Any,
) -> np.ndarray:
    """(seeds,): the mean error over time, after the start is forgotten."""
    sizes = spec.sizes
    pace = relaxation(number, problem, algorithm, sizes.step_size)
    times = np.unique(
        np.linspace(sizes.settled * pace, (sizes.settled + sizes.measured) * pace, 100).astype(int)
    )
    history = fg.run(
        problem,
        algorithm,
        num_steps=int(times[-1]),
        record=times,
        seeds=fresh_seeds(sizes.seeds),
        output_decay=0.5,
        engine=engine,
        **settings,
    )
    return history.data.squared_error_2.mean("time").transpose("seed").values
