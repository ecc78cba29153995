"""Solvers of the discounted equations x = T x that define fixed points, each with a certificate.

Every operator T here is a contraction in the sup norm with a modulus g < 1. Then x lies within
``max|T x - x| / (1 - g)`` of the root, however x was found. That bound is the certificate, and it
must be at most `CERTIFIED_ERROR`. If the values are too large for double precision to reach it, a
residual of `ROUNDING` units in the last place of the largest value is enough.

Without episodes that end, T is monotone and discounts constants: T(x + c) = T x + g c for a number
c. Then sweeps are centred, which makes them faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from fegsam.errors import ProblemError
from fegsam.problem.checks import solve

DENSE_STATES = 90
"""Up to this many states a dense solve is fastest; for more, LAPACK starts threads that wait in a
busy loop."""
EXACT_STATES = 500
"""Up to this many states elimination comes first."""
DIRECT_STATES = 5000
"""Up to this many states a sparse factorisation helps if sweeps are slow, since chains that mix
slowly have little fill-in."""
SWEEPS_PER_ROUND = 200
POLICY_ROUNDS = 100
CERTIFIED_ERROR = 1e-10
ROUNDING = 32.0
_ROW_SUM = 1e-9
"""How far the sum of a row may be from one by rounding."""

Operator = Callable[[np.ndarray], np.ndarray]


def keeps_constants(moves: csr_array) -> bool:
    """Whether every row sums to one, so that a constant times `moves` is that constant.

    >>> keeps_constants(csr_array([[0.5, 0.5]])), keeps_constants(csr_array([[0.5, 0.0]]))
    (True, False)
    """
    return bool(np.abs(moves.sum(axis=1) - 1.0).max() <= _ROW_SUM)


def sweep(
    operator: Operator, modulus: float, start: np.ndarray, sweeps: int, *, centred: bool = True
) -> tuple[np.ndarray, bool]:
    """Iterate `operator`; return the point and whether it is certified.

    An operator that discounts constants is iterated with its residual `centred`. Adding ``g / (1 -
    g)`` times the midrange of the residual d (MacQueen's bounds) makes the next residual at most g
    times half the span of d. This is never worse than plain iteration, and it converges as fast as
    the chain mixes if that is faster than g.
    """
    point = start
    for _ in range(sweeps):
        image = operator(point)
        change = image - point
        low, high = float(change.min()), float(change.max())
        scale = float(np.abs(image).max())
        if max(-low, high) <= max(
            CERTIFIED_ERROR * (1 - modulus), ROUNDING * np.finfo(float).eps * scale
        ):
            return image, True
        point = image + modulus / (1 - modulus) * (low + high) / 2 if centred else image
    return point, False


def sweep_to_the_end(
    operator: Operator, modulus: float, start: np.ndarray, *, centred: bool = True
) -> np.ndarray:
    """As `sweep`, for as many sweeps as plain iteration could need, or raise `ProblemError`.

    The residual shrinks by `modulus` in each sweep.
    """
    point, certified = sweep(operator, modulus, start, _sweeps_needed(modulus), centred=centred)
    if not certified:
        raise ProblemError(
            f"The fixed point of a problem with {len(start)} unknowns and contraction {modulus!r} "
            f"could not be certified to {CERTIFIED_ERROR}; find it by other means and pass it as "
            "run(..., fixed_point=...)."
        )
    return point


def _sweeps_needed(modulus: float) -> int:
    return 1 + int(np.ceil(np.log(np.finfo(float).eps) / np.log(modulus))) if modulus > 0 else 2


def direct_value(chain: csr_array, rewards: np.ndarray, discount: float) -> np.ndarray:
    """(S,): solve V = r + gamma P V by elimination."""
    if len(rewards) <= DENSE_STATES:
        return solve(
            np.eye(len(rewards)) - discount * chain.toarray(), rewards, "the policy's values"
        )
    try:
        return splu((eye_array(len(rewards)) - discount * chain).tocsc()).solve(rewards)
    except RuntimeError:
        raise ProblemError(
            f"The values of a policy at discount {discount!r} cannot be solved for in double "
            "precision; use a smaller discount."
        ) from None


def discounted_value(chain: csr_array, rewards: np.ndarray, discount: float) -> np.ndarray:
    """(S,): the root of V = r + gamma P V, for a chain (S, S) and rewards (S,).

    The rows of the chain may sum to less than one, where episodes end.
    """
    if len(rewards) <= EXACT_STATES:
        return direct_value(chain, rewards, discount)
    centred = keeps_constants(chain)

    def bellman(value: np.ndarray) -> np.ndarray:
        return rewards + discount * (chain @ value)

    value, certified = sweep(bellman, discount, rewards, SWEEPS_PER_ROUND, centred=centred)
    if certified:
        return value
    if len(rewards) <= DIRECT_STATES:
        return direct_value(chain, rewards, discount)
    return sweep_to_the_end(bellman, discount, value, centred=centred)


def optimal_q(transitions: csr_array, rewards: np.ndarray, discount: float) -> np.ndarray:
    """(S*A,): the root of Q = R + gamma P max_a Q, for transitions (S*A, S) and rewards (S, A).

    This is policy iteration on V = max_a Q: each round evaluates the greedy policy of V by
    elimination, then sweeps. After the first evaluation the sweeps only raise the value (up to
    constants, which do not change the greedy policy), so each round is at least as good as a round
    of policy iteration. With more than `DIRECT_STATES` states only the sweeps remain, which is
    value iteration. The certificate of V holds for Q too, with an error bound that is gamma times
    as large. The rows of the transitions may sum to less than one, where episodes end.
    """
    states, actions = rewards.shape
    flat_rewards = rewards.ravel()
    centred = keeps_constants(transitions)

    def action_values(value: np.ndarray) -> np.ndarray:
        return flat_rewards + discount * (transitions @ value)

    def bellman(value: np.ndarray) -> np.ndarray:
        q = action_values(value)
        # NumPy is eight times slower at a maximum over the short last axis.
        return np.maximum.reduce([q[a::actions] for a in range(actions)])

    def evaluate_greedy(value: np.ndarray) -> np.ndarray:
        rows = np.arange(states) * actions + action_values(value).reshape(states, actions).argmax(
            axis=1
        )
        return direct_value(transitions[rows], flat_rewards[rows], discount)

    first = rewards.max(axis=1)
    value, certified = sweep(bellman, discount, first, SWEEPS_PER_ROUND, centred=centred)
    if states <= EXACT_STATES or (states <= DIRECT_STATES and not certified):
        for _ in range(POLICY_ROUNDS):
            start = evaluate_greedy(value)
            value, certified = sweep(bellman, discount, start, SWEEPS_PER_ROUND, centred=centred)
            if certified:
                break
    if not certified:
        value = sweep_to_the_end(bellman, discount, value, centred=centred)
    return action_values(value)
