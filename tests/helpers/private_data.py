"""A federation whose nodes have their own data: two wards of a log, and a live frozen lake."""

from __future__ import annotations

import pathlib

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fegsam as fg
from fegsam.data.federation import Kind
from fegsam.federation.protocol.experiment import Experiment

STATES, ACTIONS, GAMMA, SEED = 16, 4, 0.95, 7
STEP_SIZE, PERIOD, STEPS = 0.1, 10, 155
UNIFORM = fg.policies.uniform(STATES, ACTIONS)
NODES = ((0, 1), (2,))
"""the agents of each node: the wards, and the lake"""


def write_log(path: pathlib.Path, episodes: tuple[int, ...] = (30, 30)) -> pathlib.Path:
    """A log with a column `ward`, and so many episodes of 10 steps in each."""
    lake = fg.examples.from_gymnasium("FrozenLake-v1", GAMMA)
    parts = []
    for ward, count in enumerate(episodes):
        some = fg.data.simulate_log(
            path.with_name(f"ward-{ward}.parquet"),
            lake,
            UNIFORM,
            episodes=count,
            length=10,
            seed=ward,
        )
        table = parquet.read_table(some)
        wards = pa.array([f"ward {ward}"] * len(table))
        numbers = pa.array(table["episode"].to_numpy() + 1000 * ward)
        column = table.column_names.index("episode")
        parts.append(table.set_column(column, "episode", numbers).append_column("ward", wards))
        some.unlink()
    parquet.write_table(pa.concat_tables(parts), path)
    return path


def charter(**options) -> fg.data.Charter:
    settings = {"num_agents": 3, "num_states": STATES, "num_actions": ACTIONS}
    return fg.data.Charter(discount=GAMMA, **settings | options)


def experiment(**options) -> Experiment:
    settings = {"step_size": STEP_SIZE, "sync_period": PERIOD, "num_steps": STEPS, "seed": SEED}
    return Experiment(charter(), fg.QLearning(), record_params=True, **settings | options)


def sources(log: pathlib.Path) -> list:
    return [fg.LogSource(log, by="ward"), fg.LiveSource("FrozenLake-v1", UNIFORM)]


def kinds(log: pathlib.Path) -> dict[int, Kind]:
    """What each agent reads."""
    wards, lake = sources(log)
    return {0: Kind(wards, "ward 0"), 1: Kind(wards, "ward 1"), 2: Kind(lake)}


def simulated(log: pathlib.Path, **options) -> fg.History:
    """What `fegsam.run` makes of the same agents."""
    settings = {"step_size": STEP_SIZE, "sync_period": PERIOD, "num_steps": STEPS}
    data = fg.DataFederation(sources(log), discount=GAMMA, num_states=STATES, num_actions=ACTIONS)
    return fg.run(data, fg.QLearning(), seeds=(SEED,), record_params=True, **settings | options)


def by_hand(log: pathlib.Path, rounds: int, skipped: dict[int, int]) -> np.ndarray:
    """Q-learning with averaging, slowly; agent i takes part in rounds before `skipped[i]` only."""
    steps = {}
    for agent, kind in kinds(log).items():
        seen = (
            kind.source.read(discount=GAMMA, agent=kind.value)
            if kind.is_log
            else kind.source.open(discount=GAMMA, seed=SEED, agent=agent).read(4 * rounds * PERIOD)
        )
        steps[agent] = [row for row in range(len(seen.gap) - 1) if not seen.gap[row]], seen
    average = np.zeros((STATES, ACTIONS))
    for number in range(rounds):
        results = []
        for agent, (rows, seen) in steps.items():
            if number >= skipped.get(agent, rounds):
                continue
            q = average.copy()
            for row in rows[number * PERIOD : (number + 1) * PERIOD]:
                s, a, then = seen.observation[row], seen.action[row], seen.observation[row + 1]
                goal = seen.reward[row] + seen.discount[row] * q[then].max()
                q[s, a] += STEP_SIZE * (goal - q[s, a])
            results.append(q)
        average = np.mean(results, axis=0)
    return average.ravel()
