"""RLax: `q_learning` gives the temporal difference; this script implements the rest.

python benchmarks/peers/with_rlax.py task.npz
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from task import ACTIONS, AGENTS, DISCOUNT, STATES, STEP_SIZE, SYNC_PERIOD, load, report

ROUNDS = 2_000
transitions, rewards, q_star = load()
moves, paid = jnp.log(jnp.asarray(transitions)), jnp.asarray(rewards)


def step(carried, key):
    """One agent: act, move, update one cell."""
    q, s = carried
    for_action, for_move = jax.random.split(key)
    a = jax.random.randint(for_action, (), 0, ACTIONS)
    s_next = jax.random.categorical(for_move, moves[s, a])
    error = rlax.q_learning(q[s], a, paid[s, a], jnp.asarray(DISCOUNT), q[s_next])
    return (q.at[s, a].add(STEP_SIZE * error), s_next), None


@jax.jit
def one_round(q, states, key):
    """K steps of every agent from the average, then the average of them."""
    keys = jax.random.split(key, (AGENTS, SYNC_PERIOD))
    (tables, states), _ = jax.vmap(lambda s, k: jax.lax.scan(step, (q, s), k))(states, keys)
    return tables.mean(axis=0), states


q, states = jnp.zeros((STATES, ACTIONS)), jnp.zeros(AGENTS, int)
keys = jax.random.split(jax.random.key(0), ROUNDS + 1)
jax.block_until_ready(one_round(q, states, keys[-1]))  # compiles
begun = time.perf_counter()
for key in keys[:ROUNDS]:
    q, states = one_round(q, states, key)
jax.block_until_ready(q)
speed = AGENTS * SYNC_PERIOD * ROUNDS / (time.perf_counter() - begun)
report("rlax", q_star, np.asarray(q), speed, "sampling, the loop, the averaging")
