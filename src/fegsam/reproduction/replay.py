"""What each agent sends to the server: a run of a tabular algorithm in plain Python, which keeps
every message.

Engines keep only averages. The paths are those of the engines (`fegsam.sample_path`), and so are
the averages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm, Path


class Messages(NamedTuple):
    """All that passes between server and agents, and the paths that it never sees."""

    sent: np.ndarray
    """(rounds, N, d): the parameters that each agent sends"""
    returned: np.ndarray
    """(rounds + 1, d): the averages that it gets back; the start first"""
    states: np.ndarray
    """(N, T + n)"""
    actions: np.ndarray
    """(N, T + n - 1)"""


def replay(
    problem: fg.Federation,
    algorithm: Algorithm,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    seed: int,
) -> Messages:
    """Every message of one run of Algorithm 3 or 4, from a start at zero.

    Examples
    --------
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
    >>> settings = dict(step_size=0.1, sync_period=5, num_steps=20)
    >>> messages = replay(fed, fg.QLearning(), seed=7, **settings)
    >>> history = fg.run(fed, fg.QLearning(), seeds=[7], **settings)
    >>> bool(np.allclose(messages.returned[-1], history.data.final_params[0], rtol=0, atol=1e-14))
    True
    """
    agents, tables = problem.num_agents, algorithm.tables(problem)
    drawn = [
        fg.sample_path(problem, algorithm, seed=seed, agent=i, num_steps=num_steps)
        for i in range(agents)
    ]
    # Rules index unsigned.
    mdps, policies = len(problem.mdps), len(algorithm.policies(problem))
    paths = [
        Path(
            *(each.astype(np.uint32) for each in path),
            *(np.uint64(k) for k in (kind, kind % mdps, kind % policies)),
        )
        for path, kind in zip(drawn, problem.assignment.tolist(), strict=True)
    ]
    average = np.zeros(algorithm.dimension(problem))
    rounds = num_steps // sync_period
    sent, returned = np.empty((rounds, agents, len(average))), np.empty((rounds + 1, len(average)))
    returned[0] = average
    for number in range(rounds):
        for i, path in enumerate(paths):
            params = sent[number, i]
            params[:] = returned[number]
            for t in np.arange(number * sync_period, (number + 1) * sync_period, dtype=np.uint64):
                cell, scale = algorithm.rule(params, path, t, tables)
                params[cell] += step_size * scale
        returned[number + 1] = sent[number].mean(axis=0)
    return Messages(sent, returned, *(np.stack([each[k] for each in drawn]) for k in (0, 1)))
