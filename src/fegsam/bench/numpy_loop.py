"""Q-learning (Algorithm 4) in NumPy, vectorised over the agents.

It keeps an (N, d) table, makes a few array calls per step, uses the engines' alias tables and draws
its words in large chunks. It is as fast as we could make it: every array of a step is allocated
once, indices are flat, gathers are unchecked, and whatever does not depend on the path is computed
a chunk at a time.
"""

from __future__ import annotations

import numpy as np

from fegsam.bench.tables import BaselineTables

CHUNK = 1 << 19
"""Approximate number of agent-steps whose words are drawn at a time."""
HALF = np.uint64(32)
MASK = np.uint64(2**32 - 1)

Result = tuple[np.ndarray, np.ndarray | None]
"""The final average and, if a fixed point is given, its squared sup error after every sync."""


def numpy_loop(
    tables: BaselineTables,
    *,
    step_size: float,
    sync_period: int,
    num_steps: int,
    seed: int = 0,
    fixed_point: np.ndarray | None = None,
) -> Result:
    agents = _Lockstep(tables, np.random.default_rng(seed))
    chunk = max(1, CHUNK // tables.num_agents)
    q, errors = agents.q, []
    for t in range(num_steps):
        row = t % chunk
        if row == 0:
            agents.draw(min(chunk, num_steps - t))
        agents.act(row)
        agents.move(row)
        agents.learn(step_size)
        if (t + 1) % sync_period == 0 or t + 1 == num_steps:
            q[:] = q.mean(axis=0)
            if fixed_point is not None:
                errors.append(np.abs(q[0] - fixed_point).max() ** 2)
    return q[0].copy(), None if fixed_point is None else np.array(errors)


class _Lockstep:
    """The tables and states of all agents, and the work arrays of a step."""

    def __init__(self, tables: BaselineTables, rng: np.random.Generator) -> None:
        N, S, A = tables.num_agents, tables.num_states, tables.num_actions
        self.tables, self.rng, self.num_actions = tables, rng, A
        self.first_policy_entry = tables.agent_policy.astype(np.int64) * (S * A)
        self.first_row = tables.agent_mdp.astype(np.int64) * (S * A)
        self.row_start = tables.row_start[:-1].astype(np.int64)
        self.branching = np.diff(tables.row_start)
        self.policy_alias, self.stay, self.go = (
            x.astype(np.int64) for x in (tables.policy_alias, tables.stay, tables.go)
        )
        self.q = np.zeros((N, S * A))
        self.cells, self.rows = self.q.reshape(-1), self.q.reshape(N * S, A)
        self.first_cell, self.first_state = np.arange(N) * (S * A), np.arange(N) * S
        self.state = rng.integers(S, size=N)
        self.base, self.entry, self.slot = (np.empty(N, np.int64) for _ in range(3))
        self.row, self.cell, self.alias = (np.empty(N, np.int64) for _ in range(3))
        self.drawn, self.high = (np.empty(N, np.uint64) for _ in range(2))
        self.threshold, self.low = (np.empty(N, np.uint32) for _ in range(2))
        self.aliased = np.empty(N, bool)
        self.next_values = np.empty((N, A))
        self.best, self.old, self.change = (np.empty(N) for _ in range(3))

    def draw(self, steps: int) -> None:
        """Draw the words of `steps` steps: high halves for actions, low halves for moves."""
        shape = (steps, self.tables.num_agents)
        words = self.rng.integers(2**64, size=shape, dtype=np.uint64)
        self.move_words = words & MASK
        action_draws = (words >> HALF) * np.uint64(self.num_actions)
        self.action_slots = (action_draws >> HALF).view(np.int64)
        self.action_low = action_draws.astype(np.uint32)

    def act(self, step: int) -> None:
        """Draw each agent's action; `slot` becomes its state-action index within an MDP."""
        base, entry, slot, alias = self.base, self.entry, self.slot, self.alias
        np.multiply(self.state, self.num_actions, out=base)
        np.add(base, self.action_slots[step], out=slot)
        np.add(self.first_policy_entry, slot, out=entry)
        self.tables.policy_threshold.take(entry, out=self.threshold, mode="clip")
        np.greater_equal(self.action_low[step], self.threshold, out=self.aliased)
        self.policy_alias.take(entry, out=alias, mode="clip")
        np.add(base, alias, out=alias)
        np.copyto(slot, alias, where=self.aliased)

    def move(self, step: int) -> None:
        """Draw each agent's next state; `row` becomes the state-action index that it left."""
        drawn, entry, row = self.drawn, self.entry, self.row
        np.add(self.first_row, self.slot, out=row)
        self.branching.take(row, out=drawn, mode="clip")
        np.multiply(drawn, self.move_words[step], out=drawn)
        np.right_shift(drawn, HALF, out=self.high)
        np.copyto(self.low, drawn, casting="unsafe")
        self.row_start.take(row, out=entry, mode="clip")
        np.add(entry, self.high.view(np.int64), out=entry)
        self.tables.threshold.take(entry, out=self.threshold, mode="clip")
        np.greater_equal(self.low, self.threshold, out=self.aliased)
        self.stay.take(entry, out=self.state, mode="clip")
        self.go.take(entry, out=self.alias, mode="clip")
        np.copyto(self.state, self.alias, where=self.aliased)

    def learn(self, step_size: float) -> None:
        """Update each agent's cell."""
        best, old, change, cell = self.best, self.old, self.change, self.cell
        np.add(self.first_state, self.state, out=self.entry)
        self.rows.take(self.entry, axis=0, out=self.next_values, mode="clip")
        np.copyto(best, self.next_values[:, 0])
        for action in range(1, self.num_actions):
            np.maximum(best, self.next_values[:, action], out=best)
        np.add(self.first_cell, self.slot, out=cell)
        self.cells.take(cell, out=old, mode="clip")
        self.tables.rewards.take(self.row, out=change, mode="clip")
        np.multiply(best, self.tables.discount, out=best)
        np.add(change, best, out=change)
        np.subtract(change, old, out=change)
        np.multiply(change, step_size, out=change)
        np.add(old, change, out=old)
        self.cells[cell] = old
