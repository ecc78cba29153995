"""How fast an agent forgets (Assumption 3.1): m and rho of the chains, and m_1, m_2 and m_4.

    ||Gbar_i(x) - E[G_i(x, y_t) | y_0]||_c <= m_1 ||x||_c rho^t,
    ||E[b_i(y_t) | y_0]||_c <= m_2 rho^t + m_3 eta_i,
    ||mean_i E[b_i(y_t) | y_0]||_c <= m_4 rho^t.

A window y_t depends on the past through its first state S_t, which comes ``t - n`` steps after the
last state of y_0. So with ``TV <= m rho^t`` for the chain of states, ``m_1 = 2 A_2 m rho^-n`` and
``m_2 = m_4 = 2 B m rho^-n``. The paper leaves rho^-n out of m_2, and takes m_4 = 0 on-policy, where
E[b(y_t) | y_0] vanishes only as t grows. Q-learning is the case n = 1: its chain of states and
actions mixes no faster than the chain of states.

In Algorithms 3 and 4 with one MDP for all agents, E[b(y_t) | S_t] = 0. So m_2 = m_4 = 0 at lags
from n on, and the theorem looks that far back. At the lags 1, ..., n - 1 windows overlap, which the
paper overlooks. This adds to the consensus lemma `lag_sum`, the sum over these lags of ``sup
||E[b(y_k) | y_0]||_c``. Where it is not known the lemma uses ``(m_2 + m_4) rho / (1 - rho)``, which
is at least twice as large.

Independent states, rho = 0, are forgotten one step after the window, and rho^-n is undefined. Then
m_1 = m_2 = m_4 = 0 at lags above n, and `lag_sum` covers the lags 1, ..., n, each with at most 2 B.
"""

from __future__ import annotations

import math

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.problem.chains import chain_stacks, check_chains, distinct_chains, has_small_chains
from fegsam.problem.federation import Problem
from fegsam.problem.mixing import MixingConstants, largest_mixing_constants, mixing_constants


def chain_mixing(problem: Problem, algorithm: Algorithm) -> MixingConstants:
    """m and rho that hold for the chain of states of every kind of agent.

    Examples
    --------
    >>> import fegsam as fg
    >>> noise = fg.MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=1)
    >>> round(chain_mixing(noise, fg.LinearSA([[[-1.0]], [[-1.0]]], [[0.0], [1.0]])).rho, 6)
    0.5
    """
    policies = algorithm.policies(problem)
    check_chains(problem, policies)
    if has_small_chains(problem):
        pairs = [largest_mixing_constants(stack) for stack in chain_stacks(problem, policies)]
    else:
        pairs = [mixing_constants(chain) for chain in distinct_chains(problem, policies)]
    return MixingConstants(
        m=max(1.0, *(pair.m for pair in pairs)), rho=max(pair.rho for pair in pairs)
    )


def mixing_rates(
    mixing: MixingConstants, horizon: int, lipschitz: float, noise: float, overlap: float | None
) -> dict[str, float]:
    """m_1, m_2, m_4 and lag_sum, for A_2 = `lipschitz` and B = `noise`.

    Where the mean of b(y_t) given S_t is zero, `overlap` is the contribution of overlapping windows
    to `lag_sum`; elsewhere it is None.

    Examples
    --------
    >>> mixing_rates(
    ...     MixingConstants(m=1.0, rho=0.5), horizon=2, lipschitz=3.0, noise=1.0, overlap=None
    ... )
    {'m_1': 24.0, 'm_2': 8.0, 'm_4': 8.0, 'lag_sum': nan}
    >>> mixing_rates(
    ...     MixingConstants(m=1.0, rho=0.0), horizon=2, lipschitz=3.0, noise=1.0, overlap=None
    ... )
    {'m_1': 0.0, 'm_2': 0.0, 'm_4': 0.0, 'lag_sum': 4.0}
    """
    if mixing.rho > 0 or horizon == 0:
        with np.errstate(over="ignore"):
            remembered, remaining = (
                2 * mixing.m * float(np.float64(mixing.rho) ** -horizon),
                math.nan,
            )
    else:
        remembered, remaining = 0.0, 2 * noise * horizon
    m_2 = remembered * noise if overlap is None else 0.0
    lag_sum = remaining if overlap is None else overlap
    return {"m_1": remembered * lipschitz, "m_2": m_2, "m_4": m_2, "lag_sum": lag_sum}
