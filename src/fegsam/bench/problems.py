"""What is timed: a setting, and the job that every contestant runs, prepared once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.engines.job import Job
from fegsam.prepare import prepare

KINDS = 4
DISCOUNT = 0.9
STEP_SIZE = 0.01
FEATURES = 10
ALGORITHMS = (
    "linear_sa",
    "on_policy_td",
    "off_policy_tabular_td",
    "q_learning",
    "off_policy_linear_td",
)
"""Algorithms 1 to 5."""


@dataclass(frozen=True)
class BenchSetting:
    """One cell of the benchmarks."""

    algorithm: str = "q_learning"
    horizon: int = 1
    num_agents: int = 4096
    sync_period: int = 10
    states: int = 100
    actions: int = 5
    branching: int | None = None
    """number of successors; None: every state can follow every other"""
    num_seeds: int = 1
    record: int | None = None
    """number of steps between recorded averages; None: only the last is recorded"""

    @property
    def agent_steps_per_round(self) -> int:
        return self.num_agents * self.sync_period * self.num_seeds

    def __str__(self) -> str:
        branching = "full branching" if self.branching is None else f"branching {self.branching}"
        horizon = f", n={self.horizon}" if "td" in self.algorithm else ""
        seeds = f", {self.num_seeds} seeds" if self.num_seeds > 1 else ""
        record = f", recorded every {self.record}" if self.record else ""
        return (
            f"{self.algorithm}{horizon}, N={self.num_agents}, K={self.sync_period}, {self.states} "
            "states, "
            f"{self.actions} actions, {branching}{seeds}{record}"
        )


@dataclass(frozen=True, eq=False)
class BenchCase:
    """A setting, ready to run."""

    setting: BenchSetting
    job: Job

    def lasting(self, num_rounds: int) -> Job:
        """The job with `num_rounds` rounds."""
        steps = num_rounds * self.setting.sync_period
        record = (
            np.array([steps])
            if self.setting.record is None
            else np.arange(0, steps + 1, self.setting.record)
        )
        settings = dataclasses.replace(self.job.settings, num_steps=steps, record=record)
        return dataclasses.replace(self.job, settings=settings)


def make_case(setting: BenchSetting) -> BenchCase:
    """Prepare the job of a setting.

    No fixed point is solved for, and the output time is 0, where it costs nothing.
    """
    problem, algorithm = make_problem(setting)
    job = prepare(
        problem,
        algorithm,
        step_size=STEP_SIZE,
        sync_period=setting.sync_period,
        num_steps=setting.sync_period,
        seeds=range(setting.num_seeds),
        record=[setting.sync_period],
        output_decay=0.5,
        fixed_point=np.zeros(algorithm.dimension(problem)),
    )
    outputs = np.zeros(setting.num_seeds, np.int64)
    return BenchCase(setting, dataclasses.replace(job, output_times=outputs))


def make_problem(setting: BenchSetting) -> tuple[Any, Any]:
    """A Garnet with behaviour policies of four kinds, or Markov chains for Algorithm 1."""
    states, actions = setting.states, setting.actions
    rng = np.random.default_rng(2)
    if setting.algorithm == "linear_sa":
        kernels = rng.dirichlet(np.ones(states), size=(KINDS, states))
        matrices = 0.1 * rng.normal(size=(KINDS, states, FEATURES, FEATURES)) - np.eye(FEATURES)
        offsets = rng.normal(size=(KINDS, states, FEATURES))
        return fg.MarkovNoise(kernels, num_agents=setting.num_agents), fg.LinearSA(
            matrices, offsets
        )
    mdp = fg.examples.garnet(
        states, actions, setting.branching or states, discount=DISCOUNT, seed=0
    )
    uniform = fg.policies.uniform(states, actions)
    linear = setting.algorithm in ("on_policy_td", "off_policy_linear_td")
    problem = fg.Federation(
        mdp,
        # Half uniform, so that no importance ratio is large enough for a run to diverge.
        (uniform + fg.policies.random(states, actions, count=KINDS, seed=1)) / 2,
        num_agents=setting.num_agents,
        target_policy=uniform,
        features=rng.normal(size=(states, min(states, FEATURES))) / np.sqrt(FEATURES)
        if linear
        else None,
    )
    algorithms = {
        "on_policy_td": fg.OnPolicyTD,
        "off_policy_tabular_td": fg.OffPolicyTabularTD,
        "off_policy_linear_td": fg.OffPolicyLinearTD,
    }
    if setting.algorithm == "q_learning":
        return problem, fg.QLearning()
    return problem, algorithms[setting.algorithm](setting.horizon)
