"""(d) Importance averaging: what is left with infinitely many agents."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

import fegsam as fg
from fegsam.comparison.contest import ERROR
from fegsam.comparison.contestants import PLAIN
from fegsam.comparison.many_agents import limit_point, paths, windows
from fegsam.experiments.estimates import slope_estimate
from fegsam.methods import importance_averaging
from fegsam.methods.method import Method
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.runs import sampled
from fegsam.reproduction.thresholds import ClaimSpec, certain, exponent, fresh_seeds

IMPORTANCE = "importance averaging"
METHODS = {IMPORTANCE: importance_averaging(), PLAIN: Method()}


def two_states() -> tuple[fg.MDP, np.ndarray]:
    """A sticky problem of two states, and the policy that all agents follow.

    >>> two_states()[0]
    MDP(states=2, actions=2, discount=0.8, successors=8)
    """
    moves = [[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.1, 0.9]]]
    return fg.MDP(moves, [[1.0, 0.0], [0.2, 0.0]], 0.8), np.full((2, 2), 0.5)


def limits(spec: ClaimSpec, name: str, sampling: Literal["markov", "iid"]) -> np.ndarray:
    """(step sizes,): the distance from Q* at which infinitely many agents settle."""
    mdp, policy = two_states()
    found = paths(windows(mdp, policy), spec.sizes.sync_period, sampling)
    star = fg.fixed_point(fg.Federation(mdp, policy, num_agents=2), fg.QLearning())
    settled = [
        limit_point(mdp, found, size, star, by_visits=name == IMPORTANCE)
        for size in spec.sizes.step_sizes
    ]
    return np.array([np.linalg.norm(each - star) for each in settled])


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    sizes, verdicts = spec.sizes, []
    biases = {
        (name, sampling): limits(spec, name, sampling)
        for sampling in ("iid", "markov")
        for name in METHODS
    }
    for check, sampling in (("independent", "iid"), ("markov", "markov")):
        for name in METHODS:
            found = biases[name, sampling]
            verdicts.append(
                spec.verdict(
                    check,
                    f"two states, α = {sizes.step_sizes[0]:g}, K = {sizes.sync_period}",
                    certain(found[0] ** 2),
                    f"distance {found[0]:.3g} from Q*",
                    method=name,
                )
            )
    at = f"two states, K = {sizes.sync_period}"
    for name in METHODS:
        slope = slope_estimate(sizes.step_sizes, biases[name, "markov"])
        verdicts.append(spec.verdict("order", at, slope, method=name))
    ratio = biases[IMPORTANCE, "markov"] / biases[PLAIN, "markov"]
    verdicts.append(
        spec.verdict("less", at, certain(ratio[-1]), f"at α = {sizes.step_sizes[-1]:g}")
    )
    more, figure = _speed_ups(spec, engine)
    return Section(
        spec.letter,
        spec.title,
        "Importance averaging lets agents count where they have been, and is said to be worth N "
        "times the samples of one agent. With Markov draws it keeps a bias of the order of the "
        "step size that no number of agents removes, as plain averaging does, and a larger one.",
        tuple(verdicts + more),
        (figure,),
        (
            "With infinitely many agents a round is not random, so its fixed point is computed by "
            "a sum over all paths of one agent. The theorem of the paper lets the step size fall "
            "with the number of steps, so it is not contradicted; at a constant step size, or in "
            "the words of its abstract, the speed-up ends.",
            "At one step size the two methods are not compared, only their slopes: by visits, a "
            "cell moves further in a round.",
            "What importance averaging gains where agents visit different cells is in the "
            "verdicts of (a).",
        ),
    )


def _speed_ups(spec: ClaimSpec, engine: Any) -> tuple[list[Verdict], FigureData]:
    sizes, verdicts, series = spec.sizes, [], []
    for name, method in METHODS.items():
        table = np.stack([_long_run(spec, method, n, engine) for n in sizes.agents], axis=1)
        verdicts.append(
            spec.verdict(
                "speed_up",
                f"two states, α = {sizes.measured_step:g}, K = {sizes.measured_period}",
                exponent(sizes.agents, table),
                least=sizes.agents[0],
                most=sizes.agents[-1],
                method=name,
            )
        )
        series.append(sampled(name, sizes.agents, list(table.T)))
    first = series[0]
    line = first.y[0] * sizes.agents[0] / np.array(sizes.agents, float)
    series.append(Series("proportional to 1/N", sizes.agents, line, style="reference"))
    return verdicts, FigureData(
        "importance-speed-up",
        "Importance averaging: error against the number of agents",
        "The long-run error at a constant step size with Markov draws: it stops falling at the "
        "squared bias of one agent.",
        "agents N",
        f"long-run {ERROR}",
        series=tuple(series),
    )


def _long_run(spec: ClaimSpec, method: Method, agents: int, engine: Any) -> np.ndarray:
    """(seeds,): the mean squared error over the last three quarters of a run from Q*."""
    sizes = spec.sizes
    mdp, policy = two_states()
    problem = fg.Federation(mdp, policy, num_agents=agents)
    steps, period = sizes.num_steps, sizes.measured_period
    history = fg.run(
        problem,
        fg.QLearning(),
        step_size=sizes.measured_step,
        sync_period=period,
        num_steps=steps,
        method=method,
        seeds=fresh_seeds(sizes.seeds),
        record=np.arange(steps // 4 // period * period, steps + 1, period),
        initial_params=fg.fixed_point(problem, fg.QLearning()),
        engine=engine or "cpu",
        output_decay=0.5,
    )
    return history.data.squared_error_2.mean("time").transpose("seed").values
