"""A federation whose nodes have their own data, all of frozen lakes: two wards of a log, a live
environment, and a spool."""

from __future__ import annotations

import pathlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fegsam as fg
from fegsam.data import OwnData
from fegsam.federation.protocol.experiment import Experiment

STATES, ACTIONS, GAMMA, SEED = 16, 4, 0.95, 7
STEP_SIZE, PERIOD, STEPS = 0.1, 10, 155
UNIFORM = fg.policies.uniform(STATES, ACTIONS)
NODES = ((0, 1), (2,), (3,))
"""the agents of each node: the wards, the lake, and the plant that writes a spool"""


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


def write_spool(log: pathlib.Path, spool: fg.Spool, episodes: range) -> None:
    """Append these episodes of the plant's own log, which `plant_log` wrote."""
    rows = parquet.read_table(plant_log(log)).to_pylist()
    for row, then in pairwise(rows):
        if row["episode"] in episodes and row["action"] is not None:
            ends = {name: bool(row[name]) for name in ("terminated", "truncated")}
            last = then["observation"] if any(ends.values()) else None
            chance = row["behavior_probability"]
            step = row["observation"], row["action"], row["reward"]
            spool.append(*step, **ends, last=last, behavior_probability=chance)
    spool.flush()


def plant_log(log: pathlib.Path, episodes: int = 40) -> pathlib.Path:
    """What the plant does, as a log beside `log`, unless it was written before."""
    path = log.with_name("plant.parquet")
    if not path.exists():
        lake = fg.examples.from_gymnasium("FrozenLake-v1", GAMMA)
        fg.data.simulate_log(path, lake, UNIFORM, episodes=episodes, length=7, seed=9)
    return path


def spool_of(log: pathlib.Path) -> pathlib.Path:
    """The plant's spool, with all of its episodes unless it was begun before."""
    path = log.with_name("plant.spool")
    if not path.exists():
        with fg.Spool(path) as spool:
            write_spool(log, spool, range(10**6))
    return path


def charter(**options) -> fg.data.Charter:
    settings = {"num_agents": 4, "num_states": STATES, "num_actions": ACTIONS}
    return fg.data.Charter(discount=GAMMA, **settings | options)


def experiment(**options) -> Experiment:
    settings = {"step_size": STEP_SIZE, "sync_period": PERIOD, "num_steps": STEPS, "seed": SEED}
    return Experiment(charter(), fg.QLearning(), record_params=True, **settings | options)


def sources(log: pathlib.Path) -> list:
    """What the same agents read in one process."""
    lake = fg.LiveSource("FrozenLake-v1", UNIFORM)
    return [fg.LogSource(log, by="ward"), lake, fg.SpoolSource(spool_of(log))]


def own_data(log: pathlib.Path) -> dict[int, OwnData]:
    """What each agent reads."""
    wards, lake, plant = sources(log)
    found = [OwnData(wards, "ward 0"), OwnData(wards, "ward 1"), OwnData(lake), OwnData(plant)]
    return dict(enumerate(found))


def simulated(log: pathlib.Path, **options) -> fg.History:
    """What `fegsam.run` makes of the same agents."""
    settings = {"step_size": STEP_SIZE, "sync_period": PERIOD, "num_steps": STEPS}
    data = fg.DataFederation(
        sources(log), discount=GAMMA, num_states=STATES, num_actions=ACTIONS, held_out=0
    )
    return fg.run(data, fg.QLearning(), seeds=(SEED,), record_params=True, **settings | options)


def by_hand(log: pathlib.Path, rounds: int, skipped: dict[int, int]) -> np.ndarray:
    """Q-learning with averaging, slowly; agent i takes part in rounds before `skipped[i]` only."""
    steps = {}
    wards, lake, _ = sources(log)
    live = lake.open(discount=GAMMA, seed=SEED, agent=2).read(4 * rounds * PERIOD)
    logged = [wards.read(discount=GAMMA, agent=f"ward {ward}") for ward in range(2)]
    plant = fg.LogSource(plant_log(log)).read(discount=GAMMA)
    for agent, seen in enumerate([*logged, live, plant]):
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


STUDY = f"""
[study]
name = "wards"
seeds = [{SEED}]
[problem]
generator = "private"
states = {STATES}
actions = {ACTIONS}
discount = {GAMMA}
[algorithm]
name = "q_learning"
[run]
num_steps = {STEPS}
record_params = true
[grid]
num_agents = 4
sync_period = {PERIOD}
step_size = {STEP_SIZE}
"""
"""The study of all nodes, without their data."""
WARD = '[data]\nsource = "log"\npath = "{log}"\nby = "ward"\nvalue = "ward {ward}"\n'
LIVE = '[data]\nsource = "live"\nenv_id = "FrozenLake-v1"\npolicy = "uniform.npy"\n'
SPOOL = '[data]\nsource = "spool"\npath = "{spool}"\n'


def fill_in(nodes: list[pathlib.Path], log: pathlib.Path) -> None:
    """Name the data of four nodes in their files: a ward, a ward, a lake and a spool."""
    np.save(nodes[2] / "uniform.npy", UNIFORM)
    spool = spool_of(log)
    for ward, text in enumerate([WARD, WARD, LIVE, SPOOL]):
        name_data(nodes[ward], text.format(log=log, ward=ward, spool=spool))


def name_data(node: pathlib.Path, text: str) -> None:
    """Write the data into a node's file, in place of what is there."""
    path = node / "node.toml"
    path.write_text(path.read_text().partition("[data]\nsource")[0] + text)
