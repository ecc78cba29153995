"""Small studies to deploy, and what the simulator makes of them."""

from __future__ import annotations

import pathlib

import numpy as np

import fegsam as fg
from fegsam.federation.protocol.experiment import Experiment

_LEARNT = {
    "on_policy_td": "horizon = 2",
    "off_policy_tabular_td": "horizon = 2",
    "q_learning": "",
    "off_policy_linear_td": "horizon = 2",
    "tdc": "ratio = 0.5",
}
ALGORITHMS = tuple(_LEARNT)
"""Algorithms 2 to 5, and TDC."""


def write_study(
    folder: pathlib.Path,
    algorithm: str = "q_learning",
    *,
    sync_period: int = 50,
    rounds: int = 2,
    num_agents: int = 4,
) -> pathlib.Path:
    """A Garnet with agents of four kinds; the last round is cut short, so that it ends between two
    synchronisations."""
    features = (
        '[problem.features]\nkind = "random"\ndim = 3\nseed = 2\n'
        if algorithm.endswith(("on_policy_td", "linear_td", "tdc"))
        else ""
    )
    text = f"""
[study]
name = "deployed"
seeds = [7]
[problem]
generator = "garnet"
states = 6
actions = 2
branching = 3
discount = 0.7
seed = 0
[problem.behavior]
kind = "random"
count = 4
seed = 1
[problem.target]
kind = "uniform"
{features}
[algorithm]
name = "{algorithm}"
{_LEARNT[algorithm]}
[run]
num_steps = {rounds * sync_period - 3}
record_params = true
[grid]
num_agents = {num_agents}
sync_period = {sync_period}
step_size = 0.05
"""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def simulated(study: pathlib.Path) -> fg.History:
    """What `fegsam.run` makes of the first cell, recorded when a server records."""
    experiment = Experiment.from_spec(study)
    return fg.run(
        experiment.problem,
        experiment.algorithm,
        step_size=experiment.step_size,
        sync_period=experiment.sync_period,
        num_steps=experiment.num_steps,
        seeds=(experiment.seed,),
        record=experiment.terms().settings.record,
        record_params=True,
    )


def assert_equal(deployed: fg.History, expected: fg.History) -> float:
    """All variables are the same to 1e-12, relative to the parameters; the largest difference."""
    assert set(deployed.data.variables) == set(expected.data.variables)
    scale = max(1.0, float(np.abs(expected.data["average_params"]).max()))
    gaps = {
        str(name): float(
            np.max(np.abs(deployed.data[name].values - expected.data[name].values), initial=0.0)
        )
        / scale
        for name in expected.data.variables
    }
    assert max(gaps.values()) <= 1e-12, gaps
    return max(gaps.values())
