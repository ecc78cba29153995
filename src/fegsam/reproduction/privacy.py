"""(i) What an honest but curious server learns (Sections 5 and 6 promise privacy).

The server knows the algorithm, its step size, discount and period, the averages that it returns and
the parameters that each agent sends. It knows no transitions, rewards, policies or paths. An
agent's table differs from the average at the start of the round only in the visited cells. With
``y = average + difference / alpha`` in a changed cell x of Q-learning:

* Rewards: if x was visited once in the round, and the best value of the next state s' had not
  changed, then ``R(x) = y - gamma max_a average(s', a)`` to the last digit. The server tries every
  s'; a value on which two rounds agree to nine digits is the reward.
* Path: once it knows R(x), the same equation identifies s'. So it has steps (state, action, next
  state) of the round. At K = 1 this needs no reward: the one cell that changed is the agent's, and
  the next message identifies the next state.
* Policies: the frequency of changes of a cell determines that of its visits. Since visits to a cell
  are nearly independent, a cell that changes in a share f of the rounds is visited about
  -log(1 - f) / K times per step.

In off-policy TD the increment at s is ``ratio (R + gamma V(s') - V(s))``: one line per action
through points that the server knows at K = 1. The line's slope is the importance ratio, so it gives
the behaviour probability to the last digit.

These attacks are simple. Data that they do not find may still be unsafe.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import fegsam as fg
from fegsam.algorithms.td import behavior_policies
from fegsam.experiments.estimates import Estimate, mean_estimate
from fegsam.report import FigureData, Section, Series, Verdict
from fegsam.reproduction.names import ALGORITHMS
from fegsam.reproduction.replay import Messages, replay
from fegsam.reproduction.runs import estimates
from fegsam.reproduction.thresholds import FIRST_SEED, ClaimSpec

_DIGITS = 9
"""Digits to which two computations of one number agree, and two different numbers do not."""
_QUESTIONS = ("steps", "rewards", "policies")
"""What the server wants to know about an agent."""


def examine(spec: ClaimSpec, engine: Any = None) -> Section:
    """The shares of an agent's data that its messages reveal.

    The messages come from a replay, so `engine` is not used.
    """
    periods = spec.sizes.sync_periods
    found = [learned(spec, period) for period in periods]
    verdicts = [
        _verdict(spec, key, period, each)
        for key in _QUESTIONS
        for period, each in zip(periods, found, strict=True)
    ]
    exact = _share_estimate(
        [share for number in range(spec.sizes.problems) for share in _ratio_shares(spec, number)]
    )
    verdicts.append(
        spec.verdict(
            "ratios",
            "off-policy TD, averaging every step: policies",
            exact,
            f"{exact.value:.0%} of them were found to six digits, from the ratios in "
            f"{spec.sizes.td_num_steps} messages.",
            column=ALGORITHMS[3],
        )
    )
    return Section(
        spec.letter,
        spec.title,
        "Agents send parameters, not data, and the paper concludes that their paths, rewards and "
        "policies stay private. A server that only looks at the parameters it receives finds all "
        "three if agents average at every step, and less the longer they wait.",
        tuple(verdicts),
        (_figure(spec, found),),
        (
            f"Q-learning on random problems with {spec.sizes.states} states and "
            f"{spec.sizes.actions} actions, {spec.sizes.num_steps} steps, {spec.sizes.agents} "
            "agents with policies of their own. Each share is relative to all that an agent has "
            "to hide; for policies the share that a uniform guess gets right is "
            "subtracted.",
            "A table changes only in the visited cells, so a message always reveals which cells "
            "were visited since the last one. "
            f"With {periods[-1]} steps between messages these are all cells, which reveals "
            "nothing.",
            "The attacks are simple. A low share means that these attacks fail, not that the data "
            "are safe: that needs noise or secure aggregation, which the algorithms do not have.",
        ),
    )


def _verdict(spec: ClaimSpec, key: str, period: int, found: dict[str, Estimate]) -> Verdict:
    often = "every step" if period == 1 else f"every {period} steps"
    detail = "Share that it finds" + (", minus that of a guess." if key == "policies" else ".")
    return spec.verdict(key, f"Q-learning, averaging {often}: {key}", found[key], detail)


def _figure(spec: ClaimSpec, found: list[dict[str, Estimate]]) -> FigureData:
    names = {
        "steps": "steps of the path",
        "rewards": "rewards",
        "policies": "behaviour probabilities, beyond a guess",
    }
    series = [
        estimates(name, spec.sizes.sync_periods, [each[key] for each in found])
        for key, name in names.items()
    ]
    visited = [each["visited"].value for each in found]
    series.append(
        Series(
            "share of the table that changes in a round",
            spec.sizes.sync_periods,
            visited,
            style="reference",
        )
    )
    return FigureData(
        "privacy",
        "What an agent's messages reveal",
        "The share of an agent's data that the server recovers: nearly all steps and rewards and "
        "most of the policies if agents average at every step, less if they wait.",
        "steps K between messages",
        "share",
        "log",
        "linear",
        tuple(series),
    )


# --- Q-learning -----------------------------------------------------------------------------------


def private_problem(spec: ClaimSpec, number: int, *, evaluated: bool = False) -> fg.Federation:
    """A random problem whose agents have private policies; `evaluated` adds a target policy."""
    sizes = spec.sizes
    mdp = fg.examples.garnet(
        sizes.states,
        sizes.actions,
        sizes.branching,
        sizes.discount,
        seed=FIRST_SEED + number,
        connected=True,
    )
    own = fg.policies.random(
        sizes.states, sizes.actions, count=sizes.agents, seed=FIRST_SEED + 1000 + number
    )
    target = fg.policies.uniform(sizes.states, sizes.actions) if evaluated else None
    return fg.Federation(
        mdp, 0.9 * own + 0.1 / sizes.actions, num_agents=sizes.agents, target_policy=target
    )


def learned(spec: ClaimSpec, period: int) -> dict[str, Estimate]:
    """The shares that the server recovers, over problems and agents.

    Also the share of the table that changes in a round.
    """
    sizes, rows = spec.sizes, []
    for number in range(sizes.problems):
        problem = private_problem(spec, number)
        messages = replay(
            problem,
            fg.QLearning(),
            step_size=sizes.step_size,
            sync_period=period,
            num_steps=sizes.num_steps,
            seed=FIRST_SEED + number,
        )
        rows += [_shares(spec, problem, messages, agent, period) for agent in range(sizes.agents)]
    # For policies it is a difference of two shares.
    least = {"policies": -1.0}
    return {
        key: _share_estimate(np.array(rows)[:, j], least.get(key, 0.0))
        for j, key in enumerate((*_QUESTIONS, "visited"))
    }


def _share_estimate(shares: ArrayLike, least: float = 0.0) -> Estimate:
    """The mean of shares; its interval lies in [`least`, 1], as every share does."""
    found = mean_estimate(shares)
    return Estimate(found.value, max(found.low, least), min(found.high, 1.0), found.level)


def _shares(
    spec: ClaimSpec, problem: fg.Federation, messages: Messages, agent: int, period: int
) -> list[float]:
    sizes, states, actions = spec.sizes, problem.num_states, problem.num_actions
    looked_at = Looks.of(messages, agent, sizes.step_size, problem.discount, actions)
    steps = len(looked_at.changed) * period
    visited_states = messages.states[agent, :steps]
    cells = visited_states * actions + messages.actions[agent, :steps]
    rewards = guessed_rewards(looked_at, period)
    taken = np.zeros((len(looked_at.changed), states * actions, states), dtype=bool)
    taken[np.arange(steps) // period, cells, messages.states[agent, 1 : steps + 1]] = True
    steps_found = (taken & named_steps(looked_at, rewards, period)).sum() / steps
    visited = np.unique(cells)
    right = (
        np.abs(rewards - problem.mdps[0].rewards.ravel())[visited] <= spec.claim.reward_tolerance
    )
    own = behavior_policies(problem)[problem.assignment[agent]]
    often = np.bincount(visited_states, minlength=states) >= spec.claim.fewest_visits
    hits = [
        np.mean(np.abs(guess - own)[often] <= spec.claim.policy_tolerance)
        for guess in (
            guessed_policy(looked_at.changed, period, actions),
            np.full_like(own, 1 / actions),
        )
    ]
    return [
        float(steps_found),
        float(right.mean()),
        float(hits[0] - hits[1]),
        float(looked_at.changed.mean()),
    ]


class Looks(NamedTuple):
    """One agent's messages as the server analyses them."""

    changed: np.ndarray
    """(rounds, S * A) bool"""
    targets: np.ndarray
    """(rounds, S * A): the average plus the difference / alpha"""
    ahead: np.ndarray
    """(rounds, S): gamma times the best value of a state in the average"""
    arrived: np.ndarray
    """(rounds,) the state of the first cell that changes in the next round, -1 where none does"""

    @classmethod
    def of(
        cls, messages: Messages, agent: int, step_size: float, discount: float, num_actions: int
    ) -> Looks:
        start, end = messages.returned[:-1], messages.sent[:, agent]
        changed = end != start
        ahead = discount * start.reshape(len(start), -1, num_actions).max(axis=2)
        arrived = np.where(changed.any(axis=1), changed.argmax(axis=1) // num_actions, -1)
        return cls(changed, start + (end - start) / step_size, ahead, np.append(arrived[1:], -1))


def guessed_policy(changed: np.ndarray, period: int, num_actions: int) -> np.ndarray:
    """(S, A): the policy that the changed cells (rounds, S * A) suggest."""
    rounds = len(changed)
    share = changed.mean(axis=0)
    visits = share if period == 1 else -np.log1p(-np.minimum(share, 1 - 0.5 / rounds)) / period
    table = visits.reshape(-1, num_actions) + 1e-12
    return table / table.sum(axis=1, keepdims=True)


def guessed_rewards(looks: Looks, period: int) -> np.ndarray:
    """(S * A,): the value on which most rounds agree, NaN where no two agree."""
    found = np.full(looks.changed.shape[1], np.nan)
    for cell in range(len(found)):
        rounds = np.flatnonzero(looks.changed[:, cell] & ((period > 1) | (looks.arrived >= 0)))
        ahead = looks.ahead[rounds]
        if period == 1:
            # The next message reveals the next state of this step.
            ahead = np.take_along_axis(ahead, looks.arrived[rounds, None], axis=1)
        found[cell] = _agreed(looks.targets[rounds, cell, None] - ahead)
    return found


def named_steps(looks: Looks, rewards: np.ndarray, period: int) -> np.ndarray:
    """(rounds, S * A, S) bool: the steps (cell, next state) that the server finds in each round."""
    everywhere = np.arange(looks.ahead.shape[1])
    if period == 1:
        return looks.changed[:, :, None] & (looks.arrived[:, None, None] == everywhere)
    fits = np.abs((looks.targets - rewards)[:, :, None] - looks.ahead[:, None, :]) < 10.0**-_DIGITS
    return fits & (looks.changed & (fits.sum(axis=2) == 1))[:, :, None]


def _agreed(candidates: np.ndarray) -> float:
    """The number that occurs in most rows of (rounds, states), NaN where none occurs in two."""
    rounded = np.sort(np.round(candidates, _DIGITS), axis=1)
    # Each number counts once per row: before anything is learned every next state gives the same.
    fresh = np.ones(rounded.shape, dtype=bool)
    fresh[:, 1:] = rounded[:, 1:] != rounded[:, :-1]
    values, counts = np.unique(rounded[fresh], return_counts=True)
    return float(values[counts.argmax()]) if len(counts) and counts.max() > 1 else np.nan


# --- Off-policy TD --------------------------------------------------------------------------------


def _ratio_shares(spec: ClaimSpec, number: int) -> list[float]:
    """For each agent, the share of its behaviour probabilities that the ratios reveal at K = 1."""
    sizes, problem = spec.sizes, private_problem(spec, number, evaluated=True)
    settings: dict[str, Any] = {
        "step_size": sizes.step_size,
        "sync_period": 1,
        "num_steps": sizes.td_num_steps,
        "seed": FIRST_SEED + number,
    }
    messages = replay(problem, fg.OffPolicyTabularTD(), **settings)
    shares = []
    for agent in range(sizes.agents):
        own, hits = behavior_policies(problem)[problem.assignment[agent]], []
        visits = np.bincount(messages.states[agent], minlength=problem.num_states)
        for state in np.flatnonzero(visits >= spec.claim.fewest_visits):
            slopes = ratio_slopes(messages, agent, int(state), sizes.step_size, problem.discount)
            # The target policy is uniform and known: slope = (1 / A) / behaviour probability.
            hits += [
                bool(np.any(np.abs(1 / (sizes.actions * slopes) - p) < 1e-6)) for p in own[state]
            ]
        shares.append(float(np.mean(hits)))
    return shares


def ratio_slopes(
    messages: Messages, agent: int, state: int, step_size: float, discount: float, most: int = 60
) -> np.ndarray:
    """The slopes of the lines that contain three or more of an agent's increments at a state."""
    start, end = messages.returned[:-1], messages.sent[:, agent]
    changed = end != start
    here = np.flatnonzero(changed[:-1, state] & changed[1:].any(axis=1))[:most]
    there = changed[here + 1].argmax(axis=1)
    x = discount * start[here, there] - start[here, state]
    y = (end - start)[here, state] / step_size
    slopes, left = [], np.ones(len(x), dtype=bool)
    for i, j in itertools.combinations(range(len(x)), 2):
        if not (left[i] and left[j]) or abs(x[j] - x[i]) < 1e-3:
            continue
        slope = (y[j] - y[i]) / (x[j] - x[i])
        on_line = left & (np.abs(y - y[i] - slope * (x - x[i])) < 1e-9)
        if on_line.sum() >= 3:
            slopes.append(slope)
            left &= ~on_line
    return np.array(slopes)
