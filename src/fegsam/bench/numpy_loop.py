"""Q-learning (Algorithm 4) in NumPy, vectorised over the agents: an (N, d) table and a few array
calls per step.

It uses the engines' alias tables, draws its words in large chunks, and is as fast as we could make
it: every array of a step allocated once, flat indices, unchecked gathers, and all that does not
depend on the path worked out a chunk at a time.
"""

from __future__ import annotations

import numpy as np

from fegsam.bench.tables import Tables

CHUNK = 1 << 19
"""Agent-steps whose words are drawn at a time, about."""
HALF = np.uint64(32)
MASK = np.uint64(2**32 - 1)

Result = tuple[np.ndarray, np.ndarray | None]
"""The final average and, where a fixed point is given, its squared sup error after every sync."""


def numpy_loop(
    tables: Tables,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    seed: int = 0,
    fixed_point: np.ndarray | None = None,
) -> Result:
    N, S, A = tables.num_agents, tables.num_states, tables.num_actions
    rng = np.random.default_rng(seed)
    agents = np.arange(N)
    first_policy_entry = tables.agent_policy.astype(np.int64) * (S * A)
    first_row = tables.agent_mdp.astype(np.int64) * (S * A)
    row_start = tables.row_start[:-1].astype(np.int64)
    branching = np.diff(tables.row_start)
    policy_alias, stay, go = (
        x.astype(np.int64) for x in (tables.policy_alias, tables.stay, tables.go)
    )

    q = np.zeros((N, S * A))
    cells, rows = q.reshape(-1), q.reshape(N * S, A)
    first_cell, first_state = agents * (S * A), agents * S
    state = rng.integers(S, size=N)
    base, entry, slot, row, cell, alias = (np.empty(N, np.int64) for _ in range(6))
    draw, high = (np.empty(N, np.uint64) for _ in range(2))
    threshold, low = (np.empty(N, np.uint32) for _ in range(2))
    aliased = np.empty(N, bool)
    next_values = np.empty((N, A))
    best, old, change = (np.empty(N) for _ in range(3))
    errors: list[float] = []
    chunk = max(1, CHUNK // N)
    move_words = action_slots = action_low = np.empty((0, N))
    for t in range(num_steps):
        c = t % chunk
        if c == 0:
            words = rng.integers(2**64, size=(min(chunk, num_steps - t), N), dtype=np.uint64)
            move_words = words & MASK
            action_draws = (words >> HALF) * np.uint64(A)
            action_slots = (action_draws >> HALF).view(np.int64)
            action_low = action_draws.astype(np.uint32)

        np.multiply(state, A, out=base)
        np.add(base, action_slots[c], out=slot)
        np.add(first_policy_entry, slot, out=entry)
        tables.policy_threshold.take(entry, out=threshold, mode="clip")
        np.greater_equal(action_low[c], threshold, out=aliased)
        policy_alias.take(entry, out=alias, mode="clip")
        np.add(base, alias, out=alias)
        np.copyto(slot, alias, where=aliased)

        np.add(first_row, slot, out=row)
        branching.take(row, out=draw, mode="clip")
        np.multiply(draw, move_words[c], out=draw)
        np.right_shift(draw, HALF, out=high)
        np.copyto(low, draw, casting="unsafe")
        row_start.take(row, out=entry, mode="clip")
        np.add(entry, high.view(np.int64), out=entry)
        tables.threshold.take(entry, out=threshold, mode="clip")
        np.greater_equal(low, threshold, out=aliased)
        stay.take(entry, out=state, mode="clip")
        go.take(entry, out=alias, mode="clip")
        np.copyto(state, alias, where=aliased)

        np.add(first_state, state, out=entry)
        rows.take(entry, axis=0, out=next_values, mode="clip")
        np.copyto(best, next_values[:, 0])
        for a in range(1, A):
            np.maximum(best, next_values[:, a], out=best)
        np.add(first_cell, slot, out=cell)
        cells.take(cell, out=old, mode="clip")
        tables.rewards.take(row, out=change, mode="clip")
        np.multiply(best, tables.discount, out=best)
        np.add(change, best, out=change)
        np.subtract(change, old, out=change)
        np.multiply(change, step_size, out=change)
        np.add(old, change, out=old)
        cells[cell] = old

        if (t + 1) % sync_period == 0 or t + 1 == num_steps:
            q[:] = q.mean(axis=0)
            if fixed_point is not None:
                errors.append(np.abs(q[0] - fixed_point).max() ** 2)
    return q[0].copy(), None if fixed_point is None else np.array(errors)
