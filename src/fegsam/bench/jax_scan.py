"""Q-learning (Algorithm 4) in well-written JAX: `vmap` over agents, `scan` over steps.

Every agent has its own table, (N, S, A), a broadcast of the average at the start of a round. The
whole run is one compiled call on JAX's default device. Words are drawn in blocks of steps, indices
are promised to be in bounds, and the broadcast is the only copy of the tables. The alias tables are
those of the engines; given the engines' words, the paths are the same too.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fegsam.bench.tables import BaselineTables
from fegsam.errors import ProblemError

WORDS_AT_ONCE = 1 << 25
"""Largest number of agent-steps whose words are drawn at a time."""
UNROLLED = 5
"""Steps in one iteration of the inner loop on a GPU; on a CPU, unrolling only slows compilation."""


class DeviceTables(NamedTuple):
    """`BaselineTables` on JAX's device.

    They are arguments of the compiled function, not constants: XLA would fold constants for
    minutes.
    """

    agent_policy: Any
    agent_mdp: Any
    policy_threshold: Any
    policy_alias: Any
    start: Any
    """first entry of each row"""
    size: Any
    """uint32: number of entries of each row"""
    threshold: Any
    stay: Any
    go: Any
    rewards: Any


class Walkers(NamedTuple):
    """The state that one round passes to the next."""

    average: Any
    """(S, A)"""
    states: Any
    """int32 (N,)"""


def import_jax() -> Any:
    """JAX, configured not to reserve most of the GPU's memory: other contestants need it too."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
    except ImportError as error:
        raise ProblemError(
            "The JAX baseline needs JAX; run: pip install 'fegsam[bench]'"
        ) from error
    return jax


def own_words(seed: int, num_agents: int) -> Callable[[Any, int], Any]:
    """``draw(first, count)`` gives uint32 (count, N, 2) for the steps from `first` on.

    It uses the fastest generator that JAX has.
    """
    jax = import_jax()
    key = jax.random.key(seed, impl="rbg")
    return lambda first, count: jax.random.bits(
        jax.random.fold_in(key, first), (count, num_agents, 2), np.uint32
    )


class JaxScan:
    """Compiled for one problem, precision and sync period.

    Each call runs some rounds and waits for the result.
    """

    def __init__(
        self,
        tables: BaselineTables,
        first_states: np.ndarray,
        *,
        step_size: float,
        sync_period: int,
        precision: str,
        draw: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self._jax = import_jax()
        self._wide = precision == "float64"
        draw = draw or own_words(0, tables.num_agents)
        with self._precision():
            self._tables = _to_device(self._jax, tables, precision)
            jnp = self._jax.numpy
            zeros = jnp.zeros((tables.num_states, tables.num_actions), precision)
            self._start = Walkers(zeros, jnp.asarray(first_states, np.int32))
            step = _make_step(self._jax, tables, step_size, precision)
            self._advance = self._jax.jit(_make_advance(self._jax, step, sync_period, draw))

    def __call__(self, num_rounds: int) -> np.ndarray:
        """The flat average after `num_rounds` rounds."""
        with self._precision():
            return np.asarray(
                self._advance(self._tables, self._start, np.int32(num_rounds)).average
            ).ravel()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        return self._jax.enable_x64(self._wide)


def _to_device(jax: Any, tables: BaselineTables, precision: str) -> DeviceTables:
    def put(array: np.ndarray, dtype: Any = np.int32) -> Any:
        return jax.numpy.asarray(array.astype(dtype))

    return DeviceTables(
        agent_policy=put(tables.agent_policy),
        agent_mdp=put(tables.agent_mdp),
        policy_threshold=put(tables.policy_threshold, np.uint32),
        policy_alias=put(tables.policy_alias),
        start=put(tables.row_start[:-1]),
        size=put(np.diff(tables.row_start), np.uint32),
        threshold=put(tables.threshold, np.uint32),
        stay=put(tables.stay),
        go=put(tables.go),
        rewards=put(tables.rewards, precision),
    )


def _make_advance(
    jax: Any, step: Callable[..., Any], sync_period: int, draw: Callable[[Any, int], Any]
) -> Callable[[DeviceTables, Walkers, Any], Walkers]:
    jnp, lax = jax.numpy, jax.lax
    unrolled = UNROLLED if jax.default_backend() == "gpu" else 1

    def advance(tables: DeviceTables, start: Walkers, num_rounds: Any) -> Walkers:
        num_agents = len(start.states)
        block = _block(sync_period, num_agents)
        all_agents = jax.vmap(functools.partial(step, tables))

        def one_step(carry: Any, words: Any) -> tuple[Any, None]:
            return all_agents(
                *carry, words[:, 0], words[:, 1], tables.agent_policy, tables.agent_mdp
            ), None

        def one_round(r: Any, walkers: Walkers) -> Walkers:
            def one_block(carry: Any, b: Any) -> tuple[Any, None]:
                words = draw(r * sync_period + b * block, block)
                return lax.scan(one_step, carry, words, unroll=min(unrolled, block))

            own = jnp.broadcast_to(walkers.average, (num_agents, *walkers.average.shape))
            (own, states), _ = lax.scan(
                one_block, (own, walkers.states), jnp.arange(sync_period // block)
            )
            return Walkers(own.mean(axis=0), states)

        return lax.fori_loop(0, num_rounds, one_round, start)

    return advance


def _block(sync_period: int, num_agents: int) -> int:
    """Steps whose words are drawn at once: the largest divisor of the period within the limit.

    Examples
    --------
    >>> _block(100, 1000), _block(1000, 10**6)
    (100, 25)
    """
    return max(
        n
        for n in range(1, sync_period + 1)
        if sync_period % n == 0 and (n == 1 or n * num_agents <= WORDS_AT_ONCE)
    )


def _make_step(
    jax: Any, problem: BaselineTables, step_size: float, precision: str
) -> Callable[..., tuple[Any, Any]]:
    """One step of one agent on its own table."""
    jnp, mulhi = jax.numpy, jax.lax.mulhi
    num_states, num_actions = problem.num_states, problem.num_actions
    discount, alpha = np.array([problem.discount, step_size], precision)

    def at(array: Any, index: Any) -> Any:
        return array.at[index].get(mode="promise_in_bounds")

    def step(
        tables: DeviceTables,
        own: Any,
        s: Any,
        action_word: Any,
        state_word: Any,
        policy: Any,
        mdp: Any,
    ) -> tuple[Any, Any]:
        slot = mulhi(action_word, jnp.uint32(num_actions)).astype(np.int32)
        entry = (policy * num_states + s) * num_actions + slot
        kept = action_word * jnp.uint32(num_actions) < at(tables.policy_threshold, entry)
        a = jnp.where(kept, slot, at(tables.policy_alias, entry))

        row = (mdp * num_states + s) * num_actions + a
        size = at(tables.size, row)
        entry = at(tables.start, row) + mulhi(state_word, size).astype(np.int32)
        s_next = jnp.where(
            state_word * size < at(tables.threshold, entry),
            at(tables.stay, entry),
            at(tables.go, entry),
        )

        error = at(tables.rewards, row) + discount * at(own, s_next).max() - at(own, (s, a))
        return own.at[s, a].add(
            alpha * error, mode="promise_in_bounds", unique_indices=True
        ), s_next

    return step
