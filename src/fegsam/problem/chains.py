"""The chains that the agents walk while they learn, and their stationary laws.

Kinds of agents that share an environment and a policy share a chain, which is kept once for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from fegsam.blas_threads import one_blas_thread
from fegsam.problem.federation import Federation, MarkovNoise
from fegsam.problem.markov_chain import check_ergodic, stationary_law


def distinct_chains(problem: Federation | MarkovNoise, policies: np.ndarray) -> Iterator[csr_array]:
    """One (S, S) kernel per agent kind, or a single one where all kinds walk the same chain.

    `policies`, (1 or M, S, A), is what the agents follow; Markov noise has its kernels already. One at a time: together they
    may be large.
    """
    if isinstance(problem, MarkovNoise):
        yield from problem.kernels
        return
    for k in range(max(len(problem.mdps), len(policies))):
        yield problem.mdps[k % len(problem.mdps)].policy_chain(policies[k % len(policies)])


def check_chains(problem: Federation | MarkovNoise, policies: np.ndarray) -> None:
    """Raise `ProblemError` unless every kind's chain is ergodic. What passed is kept with the (immutable) problem."""
    passed: set[bytes] = problem.__dict__.setdefault("_ergodic", set())
    key = _key(problem, policies)
    if key not in passed:
        several = problem.num_kinds > 1
        for kind, chain in enumerate(distinct_chains(problem, policies)):
            check_ergodic(chain, f"agent kind {kind}" if several else "every agent")
        passed.add(key)


def distinct_stationary_laws(problem: Federation | MarkovNoise, policies: np.ndarray) -> np.ndarray:
    """(M, S), or (1, S) where all kinds walk the same chain: their stationary laws, kept likewise. All must be ergodic."""
    kept: dict[bytes, np.ndarray] = problem.__dict__.setdefault("_stationary_laws", {})
    key = _key(problem, policies)
    if key not in kept:
        check_chains(problem, policies)
        with one_blas_thread():
            kept[key] = np.stack([stationary_law(chain) for chain in distinct_chains(problem, policies)])
    return kept[key]


def _key(problem: Federation | MarkovNoise, policies: np.ndarray) -> bytes:
    return b"" if isinstance(problem, MarkovNoise) else hashlib.sha256(policies.tobytes()).digest()


def stationary_laws(problem: Federation | MarkovNoise, policies: np.ndarray) -> np.ndarray:
    """(M, S): the stationary law of each kind."""
    laws = distinct_stationary_laws(problem, policies)
    return np.broadcast_to(laws, (problem.num_kinds, laws.shape[1]))
