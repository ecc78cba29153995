"""Minari's datasets, imported once to Parquet, whose one door this is.

Minari has no field for the probability of an action. Where a recorder kept it in the infos, the
info of action t is that of the step which it made, and stands at t + 1: the first info is that of
the reset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fegsam.data.environments import first_of
from fegsam.data.files import arrow
from fegsam.errors import ProblemError
from fegsam.safe_files import whole

_EPISODES = 64
"""Episodes that are written together."""


def import_minari(
    dataset_id: str, path: str | os.PathLike[str], *, probability: str | None = None
) -> int:
    """Write a local Minari dataset as a log; return the number of its transitions.

    Parameters
    ----------
    dataset_id : str
        With or without ``minari:`` in front. `minari download` fetches one.
    path : str or path
        The Parquet file to write.
    probability : str, optional
        The key of the infos with the probability of an action.

    Examples
    --------
    >>> import_minari("minari:no/such-v0", "log.parquet")
    Traceback (most recent call last):
    fegsam.errors.ProblemError: Minari has no dataset 'no/such-v0' on this machine: run `minari
    download no/such-v0`
    """
    name = dataset_id.removeprefix("minari:")
    dataset = _load(name)
    target = Path(path)
    if target.suffix != ".parquet":
        raise ProblemError(f"{target} must end in .parquet: name it so")
    pa = arrow()
    from pyarrow import parquet

    writer, transitions = None, 0
    with whole(target) as temporary:
        try:
            for tables in _groups(name, dataset, probability):
                table = pa.concat_tables(tables)
                writer = writer or parquet.ParquetWriter(temporary, table.schema)
                writer.write_table(table)
                transitions += table.num_rows - len(tables)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise ProblemError(f"the Minari dataset {name!r} has no episode: use another")
    return transitions


def _load(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise ProblemError(
            "Minari's datasets need minari; run: pip install 'fegsam[minari]'"
        ) from None
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise ProblemError(
            f"Minari has no dataset {name!r} on this machine: run `minari download {name}`"
        ) from error


def _groups(name: str, dataset: Any, probability: str | None) -> Iterator[list[Any]]:
    tables: list[Any] = []
    first = first_of(dataset.observation_space), first_of(dataset.action_space)
    for episode in dataset.iterate_episodes():
        tables.append(_table(name, episode, probability, first))
        if len(tables) == _EPISODES:
            yield tables
            tables = []
    if tables:
        yield tables


def _table(name: str, episode: Any, probability: str | None, first: tuple[int, int]) -> Any:
    """An episode's T + 1 observations, the last one without an action.

    `first` are the numbers with which the states and the actions begin; those of a log begin at 0.
    """
    pa = arrow()
    actions = np.asarray(episode.actions)
    steps = len(actions)
    observations = _side_by_side(episode.observations)
    if observations is None or actions.ndim != 1 or actions.dtype.kind not in "iu":
        raise ProblemError(
            f"the Minari dataset {name!r} has observations or actions that are not plain arrays of "
            "numbers and of action numbers: convert it by hand"
        )
    if len(observations) != steps + 1:
        raise ProblemError(
            f"the Minari dataset {name!r} has {len(observations)} observations for the {steps} "
            f"actions of episode {episode.id}, not one more: convert it by hand"
        )
    if observations.ndim > 1:
        flat = np.ascontiguousarray(observations.reshape(steps + 1, -1))
        seen = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    else:
        seen = pa.array(observations - first[0] if first[0] else observations)
    columns = {
        "episode": pa.array(np.full(steps + 1, episode.id, np.int64)),
        "step": pa.array(np.arange(steps + 1)),
        "observation": seen,
        "action": _with_end(actions.astype(np.int64) - first[1]),
        "reward": _with_end(np.asarray(episode.rewards, dtype=np.float64)),
        "terminated": _with_end(np.asarray(episode.terminations, dtype=np.bool_)),
        "truncated": _with_end(_cut(episode)),
    }
    if probability is not None:
        columns["behavior_probability"] = _with_end(
            _probabilities(name, episode, probability, steps)
        )
    return pa.table(columns)


def _side_by_side(observations: Any) -> np.ndarray | None:
    """(T + 1, ...): observations, those of a tuple space with its numbers side by side.

    None for what is not made of numbers.
    """
    if isinstance(observations, tuple):
        fields = [np.asarray(field) for field in observations]
        if any(field.ndim != 1 or len(field) != len(fields[0]) for field in fields):
            return None
        found = np.stack(fields, axis=1)
    else:
        found = np.asarray(observations)
    return found if found.ndim and found.dtype.kind in "biuf" else None


def _cut(episode: Any) -> np.ndarray:
    """Where an episode was truncated; a recording that was stopped has no mark, but is cut, too."""
    cut = np.array(episode.truncations, dtype=np.bool_)
    if len(cut):
        cut[-1] |= not bool(np.asarray(episode.terminations)[-1])
    return cut


def _probabilities(name: str, episode: Any, key: str, steps: int) -> np.ndarray:
    infos = episode.infos or {}
    if key not in infos:
        known = ", ".join(infos) or "none at all"
        raise ProblemError(
            f"the infos of the Minari dataset {name!r} have no {key!r}, only {known}: name another "
            "key or leave it out"
        )
    kept = np.asarray(infos[key], dtype=np.float64).reshape(-1)
    if len(kept) != steps + 1:
        raise ProblemError(
            f"the Minari dataset {name!r} has {len(kept)} infos for the {steps + 1} observations "
            f"of episode {episode.id}: convert it by hand"
        )
    return kept[1:]


def _with_end(values: np.ndarray) -> Any:
    """The values of T actions, and an empty one for the last observation."""
    filled = np.append(values, values.dtype.type(0))
    return arrow().array(filled, mask=np.arange(len(filled)) == len(values))
