"""Section 4: the hierarchy of moments against enumeration, a closed form, and itself."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import fegsam as fg
from computed.bounds import stable_step
from computed.problems import FIRST, SECOND, garnet, two_states
from fegsam.exact.long_run import LongRun
from fegsam.exact.run_system import run_system

TD = fg.OffPolicyLinearTD()


def numbers() -> dict[str, float]:
    """All numbers of the section by name."""
    found: dict[str, float] = {}
    for group in (enumeration, additive, truncation, unknowns, stability):
        found |= group()
    return found


def enumeration() -> dict[str, float]:
    """Off-policy linear TD of two agents on Problem A, summed over every pair of paths."""
    step, period, steps = 0.5, 2, 4
    squares = joint_squares(step, period, steps)
    found = fg.exact.moments(
        two_states(),
        TD,
        step_size=step,
        sync_period=period,
        times=range(1, steps + 1),
    )
    star = fg.fixed_point(two_states(), TD)[0]
    errors = [squares[t][1] - 2 * star * squares[t][0] + star**2 for t in range(steps)]
    return {
        "paths.step": step,
        "paths.period": period,
        "paths.steps": steps,
        "paths.pairs": 4 ** (2 * steps),
        "paths.difference": float(np.abs(found.mse / errors - 1).max()),
        "paths.order": found.order,
        "paths.error": errors[-1],
    }


def joint_squares(step: float, period: int, steps: int) -> list[tuple[float, float]]:
    """The mean of the average and of its square after each step, by the definition of TD.

    An agent's draws of a step, an action and a next state, have four outcomes.
    """
    problem, outcomes = two_states(), list(itertools.product(range(2), range(2)))
    mdp = problem.mdps[0]
    moves, rewards = mdp.transitions.toarray().reshape(2, 2, 2), mdp.rewards
    phi, target = problem.features[:, 0], problem.target_policy
    agents: list[dict[str, np.ndarray]] = []
    for policy in (FIRST, SECOND):
        agents.append({"s": np.zeros((1, 1), int), "p": np.ones((1, 1)), "policy": policy})
    found, values = [], [np.zeros((1, 1)), np.zeros((1, 1))]
    for t in range(steps):
        for i, agent in enumerate(agents):
            parts: dict[str, list[np.ndarray]] = {"s": [], "p": [], "v": []}
            for a, after in outcomes:
                s, v = agent["s"], values[i]
                ratio = target[s, a] / agent["policy"][s, a]
                surprise = rewards[s, a] + (mdp.discount * phi[after] - phi[s]) * v
                parts["v"].append(v + step * phi[s] * ratio * surprise)
                parts["p"].append(agent["p"] * agent["policy"][s, a] * moves[s, a, after])
                parts["s"].append(np.full_like(s, after))
            # Axis i of every array has the paths of agent i.
            agent["s"], agent["p"] = (np.concatenate(parts[key], i) for key in ("s", "p"))
            values[i] = np.concatenate(parts["v"], i)
            other = 1 - i
            values[other] = np.concatenate([values[other]] * 4, i)
            for key in ("s", "p"):
                agents[other][key] = np.concatenate([agents[other][key]] * 4, i)
        mean = (values[0] + values[1]) / 2
        if (t + 1) % period == 0:
            values = [mean, mean]
        chance = agents[0]["p"] * agents[1]["p"]
        found.append((float((chance * mean).sum()), float((chance * mean**2).sum())))
    return found


def additive() -> dict[str, float]:
    """Noise of +-2 that flips with probability 1/4, averaged by five agents: a closed form."""
    step, agents, period, correlation = 0.1, 5, 7, 0.5
    noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=agents)
    average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[2.0], [-2.0]])
    found = float(fg.exact.stationary_error(noise, average, step_size=step, sync_period=period))
    memory = (1 - step) * correlation
    expected = step * 4 / (agents * (2 - step)) * (1 + memory) / (1 - memory)
    return {
        "additive.step": step,
        "additive.agents": agents,
        "additive.period": period,
        "additive.error": expected,
        "additive.difference": abs(found / expected - 1),
    }


def truncation() -> dict[str, float]:
    """The relative error of the stationary error at each order, against order N, on Problem A."""
    agents, period, found = 4, 1, {}
    for name, step in (("large", 0.5), ("small", 0.05)):
        errors = [
            float(
                fg.exact.stationary_error(
                    two_states(agents), TD, step_size=step, sync_period=period, order=order
                )
            )
            for order in range(1, agents + 1)
        ]
        found |= {f"order.{name}": step} | {
            f"order.{name}{order}": abs(errors[order - 1] / errors[-1] - 1)
            for order in range(1, agents)
        }
    return found | {
        "order.agents": agents,
        "order.exponent1": math.log10(found["order.large1"] / found["order.small1"]),
        "order.exponent2": math.log10(found["order.large2"] / found["order.small2"]),
    }


def unknowns() -> dict[str, float]:
    """The number of unknowns of the stationary moments on Problem C, for many agents."""
    agents, problem = 10**9, garnet.problem(10**9)
    settings: dict[str, Any] = {"step_size": 0.01, "sync_period": 10, "method": None, "last": None}
    run = run_system(problem, garnet.algorithm, **settings)
    entries = [
        LongRun(run.system.hierarchy(run.steps, run.longest, order)).entries for order in (1, 2)
    ]
    modes, size = problem.num_kinds * problem.num_states, problem.features.shape[1] + 1
    expected = [
        size * (size + 1) // 2 * sum(math.comb(modes + r - 1, r) for r in range(order + 1))
        for order in (1, 2)
    ]
    assert entries == expected
    few, states, d = 10, problem.num_states, size - 1
    joint = states**few * (few * d + 1) * (few * d + 2) // 2
    return {
        "unknowns.few": few,
        "unknowns.agents": agents,
        "unknowns.modes": modes,
        "unknowns.size": size,
        "unknowns.one": entries[0],
        "unknowns.two": entries[1],
        "unknowns.joint": float(joint),
    }


def stability() -> dict[str, float]:
    """Step sizes up to which the mean and the mean square converge on Problem A, one policy."""
    mean = mean_matrix()
    found = {"stable.mean": 2 / mean}
    for name, agents in (("one", 1), ("ten", 10), ("many", 10**9)):
        problem = two_states(agents, FIRST[None])
        found[f"stable.{name}"] = stable_step(problem, TD)
    return found


def mean_matrix() -> float:
    """Phi' D (I - gamma P) Phi for the first policy of Problem A, a number since d = 1."""
    problem = two_states(1, FIRST[None])
    law = fg.exact.kind_stationary_laws(problem, TD)[0]
    chain = problem.mdps[0].policy_chain(problem.target_policy).toarray()
    phi = problem.features[:, 0]
    return float((law * phi) @ (phi - problem.mdps[0].discount * chain @ phi))
