"""The Markov chains of the agents and their stationary distributions (mu^i in Assumption 3.1).

A chain or a mean field that all kinds of agents share is stored once, in a list or array of length
one. Only the public functions repeat it, so that they return one entry per kind.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from fegsam.algorithms.rule import Algorithm, check_algorithm
from fegsam.problem.chains import distinct_chains, distinct_stationary_laws
from fegsam.problem.federation import Problem


def visit_frequencies(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """(M or 1, S*A): ``mu_k(s) pi_k(a|s)``, how often each kind takes each action in each state."""
    policies = algorithm.policies(problem)
    stationary = distinct_stationary_laws(problem, policies)
    return (stationary[:, :, None] * policies).reshape(len(stationary), -1)


def kind_weights(problem: Problem, distinct: int) -> np.ndarray:
    """(distinct,): each kind's share of the agents; 1.0 where one entry stands for all kinds."""
    return np.ones(1) if distinct == 1 else problem.kind_counts / problem.num_agents


def visit_shares(weights: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """(M, cells): each kind's share of all visits to a cell.

    `visits` (M, cells) holds how often an agent of each kind visits each cell.
    """
    shares = weights[:, None] * visits
    return shares / shares.sum(axis=0)


def look_ahead(chain: csr_array, discount: float, horizon: int, values: np.ndarray) -> np.ndarray:
    """``gamma^n P^n values`` for values (S,) or (S, m), by n sparse products."""
    for _ in range(horizon):
        values = np.asarray(chain @ values) * discount
    return values


def n_step_rewards(
    chain: csr_array, rewards: np.ndarray, discount: float, horizon: int
) -> np.ndarray:
    """(S,): ``r_n = sum_{k<n} (gamma P)^k r``, by n sparse products."""
    total = np.zeros_like(rewards)
    for _ in range(horizon):
        total = rewards + discount * (chain @ total)
    return total


def kind_chains(problem: Problem, algorithm: Algorithm) -> list[csr_array]:
    """The Markov chain of states that each kind of agent follows while it learns.

    Returns
    -------
    list of M csr_arrays of shape (S, S)
        The kernels under ``algorithm.policies``; for a `MarkovNoise`, its own kernels.

    Examples
    --------
    >>> import fegsam as fg
    >>> mdp = fg.MDP(
    ...     [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]], [[0.0, 1.0], [0.0, 1.0]], 0.9
    ... )
    >>> fed = fg.Federation(mdp, fg.policies.uniform(2, 2), num_agents=3)
    >>> kind_chains(fed, fg.QLearning())[0].toarray()
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    check_algorithm(algorithm, problem)
    chains = list(distinct_chains(problem, algorithm.policies(problem)))
    return chains * (problem.num_kinds // len(chains))


def kind_stationary_laws(problem: Problem, algorithm: Algorithm) -> np.ndarray:
    """The stationary distribution of each kind's chain; all chains must be ergodic.

    Returns
    -------
    (M, S) array
        Positive rows that sum to one.

    Examples
    --------
    >>> import fegsam as fg
    >>> noise = fg.MarkovNoise([[0.75, 0.25], [0.5, 0.5]], num_agents=3)
    >>> kind_stationary_laws(noise, fg.LinearSA([[[-1.0]], [[-1.0]]], [[1.0], [4.0]])).round(4)
    array([[0.6667, 0.3333]])
    """
    check_algorithm(algorithm, problem)
    stationary = distinct_stationary_laws(problem, algorithm.policies(problem))
    return np.repeat(stationary, problem.num_kinds // len(stationary), axis=0)
