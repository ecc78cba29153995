"""The chains that the agents walk while they learn, and their stationary distributions.

Where all kinds of agents share one environment and one policy, they share one chain, and it is
computed and stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from fegsam.blas_threads import one_blas_thread
from fegsam.problem.federation import MarkovNoise, Problem
from fegsam.problem.markov_chain import CONNECT, check_ergodic, eliminated, stationary_law

SMALL_STATES = 64
"""Chains of at most this many states are handled as stacks of dense matrices.

There may be one chain for each of 10^5 agents.
"""
STACK_ENTRIES = 2**22
"""The most entries in the dense transitions from which one stack is made."""


def distinct_chains(problem: Problem, policies: np.ndarray) -> Iterator[csr_array]:
    """One (S, S) kernel per agent kind, or a single one where all kinds walk the same chain.

    The agents follow `policies` (1 or M, S, A); Markov noise has its kernels already. The kernels
    are made one at a time, because together they may be large.
    """
    if isinstance(problem, MarkovNoise):
        yield from problem.kernels
        return
    for k in range(max(len(problem.mdps), len(policies))):
        yield problem.mdps[k % len(problem.mdps)].policy_chain(policies[k % len(policies)])


def has_small_chains(problem: Problem) -> bool:
    """Whether a problem's chains are small enough for `chain_stacks`."""
    return problem.num_states <= SMALL_STATES


def chain_stacks(problem: Problem, policies: np.ndarray) -> Iterator[np.ndarray]:
    """The `distinct_chains`, in order, as dense stacks (k, S, S) that the caller may overwrite."""
    states = problem.num_states
    if isinstance(problem, MarkovNoise):
        for chain in problem.kernels:
            yield chain.toarray()[None]
        return
    actions, mdps = policies.shape[2], problem.mdps
    count = max(len(mdps), len(policies))
    at_once = max(1, STACK_ENTRIES // (states * states * actions))
    for first in range(0, count, at_once):
        kinds = range(first, min(first + at_once, count))
        own = policies[first : kinds.stop] if len(policies) > 1 else policies
        environments = mdps[first : kinds.stop] if len(mdps) > 1 else mdps
        tables = np.stack(
            [mdp.transitions.toarray().reshape(states, actions, states) for mdp in environments]
        )
        stack = np.zeros((len(kinds), states, states))
        for action in range(actions):  # in the order in which a sparse product adds
            stack += own[:, :, action, None] * tables[:, :, action]
        yield stack


def check_chains(problem: Problem, policies: np.ndarray) -> None:
    """Raise `ProblemError` unless every kind's chain is ergodic.

    Policies that passed are remembered on the problem, which is immutable.
    """
    passed: set[bytes] = problem.__dict__.setdefault("_ergodic", set())
    key = _key(problem, policies)
    if key in passed:
        return
    several = problem.num_kinds > 1
    connect = CONNECT
    if not isinstance(problem, MarkovNoise) and (policies > 0).all():
        # No policy can help then.
        connect = (
            ", whatever the policy: give transitions that connect all states (for a garnet, "
            "connected=True), or drop the transient ones"
        )
    for kind, chain in _different_graphs(problem, policies):
        check_ergodic(chain, f"agent kind {kind}" if several else "every agent", connect)
    passed.add(key)


def _different_graphs(problem: Problem, policies: np.ndarray) -> Iterator[tuple[int, csr_array]]:
    """Kinds and their chains, in order.

    Ergodicity depends only on which moves are possible, so among small chains with the same
    possible moves only the first is given.
    """
    if not has_small_chains(problem):
        yield from enumerate(distinct_chains(problem, policies))
        return
    seen: set[bytes] = set()
    kind = 0
    for stack in chain_stacks(problem, policies):
        graphs = np.packbits((stack > 0).reshape(len(stack), -1), axis=1)
        for chain, graph in zip(stack, graphs, strict=True):
            moves = graph.tobytes()
            if moves not in seen:
                seen.add(moves)
                yield kind, csr_array(chain)
            kind += 1


def distinct_stationary_laws(problem: Problem, policies: np.ndarray) -> np.ndarray:
    """The stationary distributions (M, S), or (1, S) where all kinds walk the same chain.

    All chains must be ergodic. The result is remembered on the problem, which is immutable.
    """
    kept: dict[bytes, np.ndarray] = problem.__dict__.setdefault("_stationary", {})
    key = _key(problem, policies)
    if key not in kept:
        check_chains(problem, policies)
        with one_blas_thread():
            if has_small_chains(problem):
                distributions = [
                    eliminated(chain)
                    for stack in chain_stacks(problem, policies)
                    for chain in stack
                ]
            else:
                distributions = [
                    stationary_law(chain) for chain in distinct_chains(problem, policies)
                ]
        kept[key] = np.stack(distributions)
    return kept[key]


def _key(problem: Problem, policies: np.ndarray) -> bytes:
    return b"" if isinstance(problem, MarkovNoise) else hashlib.sha256(policies.tobytes()).digest()


def stationary_laws(problem: Problem, policies: np.ndarray) -> np.ndarray:
    """(M, S): the stationary distribution of each kind."""
    distinct = distinct_stationary_laws(problem, policies)
    return np.broadcast_to(distinct, (problem.num_kinds, distinct.shape[1]))
