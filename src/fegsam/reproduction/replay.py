"""What each agent sends to the server: a run in plain Python that keeps every message.

Engines keep only averages. The paths are those of the engines (`fegsam.sample_path`), and so are
the averages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.engines.reference import simulated_agent
from fegsam.prepare import prepare


class Messages(NamedTuple):
    """All messages between server and agents, and the paths, which the server never sees."""

    sent: np.ndarray
    """(rounds, N, d): the parameters that each agent sends"""
    returned: np.ndarray
    """(rounds + 1, d): the averages that the server returns, after the initial parameters"""
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
    """Every message of one run, from a start at zero.

    Examples
    --------
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=3)
    >>> settings = dict(step_size=0.1, sync_period=5, num_steps=20)
    >>> messages = replay(fed, fg.QLearning(), seed=7, **settings)
    >>> history = fg.run(fed, fg.QLearning(), seeds=[7], **settings)
    >>> bool(np.allclose(messages.returned[-1], history.data.final_params[0], rtol=0, atol=1e-14))
    True
    """
    job = prepare(
        problem,
        algorithm,
        step_size=step_size,
        sync_period=sync_period,
        num_steps=num_steps,
        seeds=(seed,),
        fixed_point=np.zeros(algorithm.dimension(problem)),
        output_decay=0.5,
    )
    agents = [simulated_agent(job, 0, i) for i in range(job.num_agents)]
    rounds = job.settings.communications
    sent = np.empty((rounds, job.num_agents, job.dimension))
    returned = np.zeros((rounds + 1, job.dimension))
    for number in range(rounds):
        sent[number] = [agent.local_steps(returned[number], sync_period) for agent in agents]
        returned[number + 1] = sent[number].mean(axis=0)
    drawn = [
        fg.sample_path(problem, algorithm, seed=seed, agent=i, num_steps=num_steps)
        for i in range(job.num_agents)
    ]
    return Messages(sent, returned, *(np.stack([each[k] for each in drawn]) for k in (0, 1)))
