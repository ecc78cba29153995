"""Logs of simulated agents, to try things out and to test them against known answers."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.files import ENDINGS, arrow
from fegsam.errors import ProblemError
from fegsam.problem.checks import integer
from fegsam.problem.discounts import possible
from fegsam.problem.mdp import MDP
from fegsam.problem.policies import check_policy
from fegsam.safe_files import whole


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> Path:
    """Write columns as a Parquet or a CSV file; a masked array has empty fields.

    A column of shape (L, k) is stored as a list of k numbers, which only Parquet can hold.
    """
    pa = arrow()
    target = Path(path)
    if target.suffix not in ENDINGS:
        raise ProblemError(f"{target} must end in .parquet or .csv: name it so")
    arrays = {name: _array(pa, column) for name, column in columns.items()}
    with whole(target) as temporary:
        if target.suffix == ".parquet":
            from pyarrow import parquet

            parquet.write_table(pa.table(arrays), temporary)
        else:
            from pyarrow import csv

            csv.write_csv(pa.table(arrays), temporary)
    return target


def _array(pa: Any, column: Any) -> Any:
    if isinstance(column, np.ma.MaskedArray):
        return pa.array(column.data, mask=np.ma.getmaskarray(column))
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
    return pa.array(column)


def simulate_log(
    path: str | os.PathLike[str],
    mdp: MDP,
    policy: ArrayLike,
    *,
    episodes: int,
    length: int,
    seed: int,
    start: int = 0,
    ends: Collection[int] = (),
    target_policy: ArrayLike | None = None,
) -> Path:
    """Write the log of a simulated agent: `episodes` episodes that begin in the state `start`.

    Parameters
    ----------
    path : str or path
        It ends in .parquet or .csv.
    mdp : MDP
        Where its transitions have discounts of their own, they must be 0 into the states `ends`
        and equal elsewhere, since a log has no others.
    policy : (S, A) array
        The policy that chooses the actions; its probabilities are logged.
    episodes, length : int
        An episode is truncated after `length` transitions.
    seed : int
    start : int
        The first state of every episode.
    ends : collection of int
        States that terminate an episode.
    target_policy : (S, A) array, optional
        Its probabilities are logged, too.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = simulate_log(f"{folder}/log.parquet", walk, go, episodes=3, length=5, seed=0)
    ...     rows = fg.LogSource(path).read(discount=0.9)
    >>> len(rows.reward), int(rows.gap.sum())
    (18, 3)
    """
    chances = check_policy(policy, mdp.num_states, mdp.num_actions, "policy")
    count, steps = integer(episodes, "episodes"), integer(length, "length")
    integer(start, "start", least=0, most=mdp.num_states - 1)
    rng = np.random.default_rng(integer(seed, "seed", least=0, most=None))
    over = np.isin(np.arange(mdp.num_states), list(ends))
    _check_discounts(mdp, over)
    reached = mdp.transitions.toarray().cumsum(axis=1)
    chosen = chances.cumsum(axis=1)
    states = np.zeros((count, steps + 1), np.int64)
    actions, alive = np.zeros((count, steps + 1), np.int64), np.zeros((count, steps + 1), np.bool_)
    states[:, 0], alive[:, 0] = start, True
    for t in range(steps):
        now = states[:, t]
        actions[:, t] = _draw(chosen[now], rng.random(count))
        states[:, t + 1] = _draw(reached[now * mdp.num_actions + actions[:, t]], rng.random(count))
        alive[:, t + 1] = alive[:, t] & ~over[now]
    # A state that ends its episode is the episode's last row, and so is the one after `length`.
    last = over[states] | (np.arange(steps + 1) == steps)
    after = np.append(states[:, 1:], states[:, :1], axis=1)
    ended = over[after] & ~last
    cut = (np.arange(steps + 1) == steps - 1) & ~last & ~over[after]
    columns = {
        "episode": np.repeat(np.arange(count), steps + 1),
        "step": np.tile(np.arange(steps + 1), count),
        "observation": states,
        "action": np.ma.array(actions, mask=last),
        "reward": np.ma.array(mdp.rewards[states, actions], mask=last),
        "terminated": ended,
        "truncated": cut,
        "behavior_probability": np.ma.array(chances[states, actions], mask=last),
    }
    if target_policy is not None:
        aims = check_policy(target_policy, mdp.num_states, mdp.num_actions, "target_policy")
        columns["target_probability"] = np.ma.array(aims[states, actions], mask=last)
    kept = alive.ravel()
    return write_table(path, {name: column.ravel()[kept] for name, column in columns.items()})


def _check_discounts(mdp: MDP, over: np.ndarray) -> None:
    """Raise unless the discounts are 0 where an episode ends and the same elsewhere."""
    if mdp.discounts is None:
        return
    state, action, following = possible(mdp.transitions, mdp.num_actions)
    meant = np.where(over[following], 0.0, mdp.discount)
    differs = mdp.discounts_of(state, action, following) != meant
    wrong = np.flatnonzero(differs & ~over[state])
    if len(wrong):
        raise ProblemError(
            f"The transition from state {state[wrong[0]]} to state {following[wrong[0]]} has a "
            "discount that no log can say: give as ends the states into which it is 0, and an MDP "
            "with one discount elsewhere."
        )


def _draw(cumulative: np.ndarray, words: np.ndarray) -> np.ndarray:
    """For each row of cumulative probabilities, the index that a uniform number falls on."""
    found = (cumulative <= words[:, None]).sum(axis=1)
    return np.minimum(found, cumulative.shape[1] - 1)
