"""Logs for tests, made from episodes in plain Python, which know neither rows nor gaps."""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet


class Episode(NamedTuple):
    """What an environment gives: T + 1 observations and T of everything else."""

    name: Any
    observations: list
    actions: list
    rewards: list
    probabilities: list
    terminated: bool


def random_episodes(seed: int, count: int, *, width: int = 0, longest: int = 6) -> list[Episode]:
    """Episodes of random lengths and ends; observations are states 0 to 4, or vectors."""
    rng = np.random.default_rng(seed)
    found = []
    for name in range(count):
        steps = int(rng.integers(1, longest + 1))
        seen = (
            rng.normal(size=(steps + 1, width)).astype(np.float32).tolist()
            if width
            else rng.integers(0, 5, steps + 1).tolist()
        )
        found.append(
            Episode(
                name,
                seen,
                rng.integers(0, 3, steps).tolist(),
                rng.normal(size=steps).tolist(),
                rng.uniform(0.1, 1.0, steps).tolist(),
                bool(rng.random() < 0.5),
            )
        )
    return found


def expected_rows(episodes: list[Episode], discount: float) -> list[tuple]:
    """(observation, action, reward, discount, probability, gap) of each row, the slow way."""
    rows = []
    for episode in episodes:
        last = len(episode.actions) - 1
        for t, action in enumerate(episode.actions):
            stays = 0.0 if episode.terminated and t == last else discount
            chance = episode.probabilities[t]
            rows.append((episode.observations[t], action, episode.rewards[t], stays, chance, False))
        rows.append((episode.observations[-1], 0, 0.0, 0.0, None, True))
    return rows


def found_rows(rows) -> list[tuple]:
    """The same of what a reader found."""
    chances = [None if np.isnan(chance) else chance for chance in rows.behavior.tolist()]
    columns = rows.observation, rows.action, rows.reward, rows.discount
    lists = [column.tolist() for column in columns]
    return list(zip(*lists, chances, rows.gap.tolist(), strict=True))


def observation_log(episodes: list[Episode]) -> dict[str, list]:
    """The canonical form: a row for each observation, the last one without an action."""
    table: dict[str, list] = {name: [] for name in (*COLUMNS, "behavior_probability")}
    for episode in episodes:
        steps = len(episode.actions)
        table["episode"] += [episode.name] * (steps + 1)
        table["step"] += range(steps + 1)
        table["observation"] += episode.observations
        table["action"] += [*episode.actions, None]
        table["reward"] += [*episode.rewards, None]
        ends = [False] * (steps - 1)
        table["terminated"] += [*ends, episode.terminated, None]
        table["truncated"] += [*ends, not episode.terminated, None]
        table["behavior_probability"] += [*episode.probabilities, None]
    return table


def transition_log(episodes: list[Episode]) -> dict[str, list]:
    """The other form: a row for each transition, with the observation that it led to."""
    table = observation_log(episodes)
    kept = [i for i, action in enumerate(table["action"]) if action is not None]
    following = [table["observation"][i + 1] for i in kept]
    return {name: [column[i] for i in kept] for name, column in table.items()} | {
        "next_observation": following
    }


COLUMNS = ("episode", "step", "observation", "action", "reward", "terminated", "truncated")


def write(path: pathlib.Path, table: dict[str, list], group: int | None = None) -> pathlib.Path:
    """Store columns as Parquet, in row groups of `group`, or as CSV."""
    arrays = {name: _array(column) for name, column in table.items()}
    if path.suffix == ".csv":
        csv.write_csv(pa.table(arrays), path)
    else:
        parquet.write_table(pa.table(arrays), path, row_group_size=group)
    return path


def _array(column: list) -> Any:
    first = next((value for value in column if value is not None), None)
    if isinstance(first, list) and len({len(value) for value in column if value}) == 1:
        return pa.array(column, pa.list_(pa.float32(), len(first)))
    return pa.array(column)


def one_damaged(**changes: Any) -> dict[str, list]:
    """Two good episodes, 17 and 18, with some columns changed: None drops one, {row: value} edits.

    Rows 0 to 3 are episode 17, which terminates; rows 4 to 6 are episode 18, which is truncated.
    """
    table = observation_log(
        [
            Episode(17, [0, 1, 2, 3], [0, 1, 2], [0.5, 1.0, 2.0], [0.5, 0.5, 0.25], True),
            Episode(18, [1, 3, 0], [2, 0], [1.0, -1.0], [0.75, 0.5], False),
        ]
    )
    for name, change in changes.items():
        if change is None:
            del table[name]
        elif isinstance(change, dict):
            table[name] = [change.get(i, value) for i, value in enumerate(table[name])]
        else:
            table[name] = change
    return table


def without_row(table: dict[str, list], row: int) -> dict[str, list]:
    """The table without one of its rows."""
    return {name: column[:row] + column[row + 1 :] for name, column in table.items()}
