"""Paths for a tile of agents, compiled: first the random words, in a loop that vectorises, then the
agents in lockstep.

A path never depends on the parameters, so it can be drawn ahead of the updates; and while one agent
waits for its table entry, the loads of the others are under way.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.team import private
from fegsam.randomness import (
    FIRST_STATE,
    HALF,
    IID,
    MASK,
    ONE,
    PATH,
    TWO,
    choose,
    choose_index,
    philox,
    words,
)

TILE = 32
"""Agents drawn in lockstep, at most."""
LANES = 512
"""Pairs of steps whose words are made at once."""


class Tile(NamedTuple):
    """Scratch of one thread: the paths of up to TILE agents over some steps."""

    states: np.ndarray
    """uint32 (agents, length)"""
    actions: np.ndarray
    """uint32 (agents, length)"""
    flat_states: np.ndarray
    """the memory of `states` as one row"""
    flat_actions: np.ndarray
    words: np.ndarray
    """uint32 (4, LANES)"""
    pairs: np.ndarray
    """uint64 (LANES): with `agents`, the counters that the words are made from"""
    agents: np.ndarray
    """uint64 (LANES)"""
    mdps: np.ndarray
    """uint64 (TILE): first row of the agent's MDP"""
    policies: np.ndarray
    """uint64 (TILE): first row of the agent's policy"""
    current: np.ndarray
    """uint64 (TILE): the state that each agent is in"""


class Draw(NamedTuple):
    """Which transitions to draw: steps time..time+steps-1 of agents first..first+num_agents-1."""

    seed: np.uint64
    first: int
    num_agents: int
    time: int
    steps: int


def make_tile(agents: int, length: int) -> Tile:
    states, actions = private((2, agents, length), np.uint32)
    return Tile(
        states=states,
        actions=actions,
        flat_states=states.reshape(-1),
        flat_actions=actions.reshape(-1),
        words=private((4, LANES), np.uint32),
        pairs=private((LANES,), np.uint64),
        agents=private((LANES,), np.uint64),
        mdps=private((TILE,), np.uint64),
        policies=private((TILE,), np.uint64),
        current=private((TILE,), np.uint64),
    )


@compiled(forceinline=True)
def enter(tile, chain, agents, first, count):
    """Note where the MDPs and policies of agents first..first+count-1 begin."""
    for a in range(count):
        kind = agents.kinds[first + a]
        tile.mdps[a] = agents.mdps[kind] * chain.num_states
        tile.policies[a] = agents.policies[kind] * chain.num_states


@compiled
def make_words(tile, seed, first, count, first_pair, num_pairs, purpose):
    """Words of `num_pairs` pairs of steps for each agent: lane ``pair * count + agent``."""
    pairs, agents = tile.pairs, tile.agents
    lanes, many, base = np.uint64(num_pairs * count), np.uint64(count), np.uint64(first)
    for p in range(np.uint64(num_pairs)):
        for a in range(many):
            pairs[p * many + a] = first_pair + p
            agents[p * many + a] = base + a
    w0, w1, w2, w3 = tile.words[0], tile.words[1], tile.words[2], tile.words[3]
    k0, k1 = seed & MASK, seed >> HALF
    for i in range(lanes):
        pair = pairs[i]
        a0, a1, a2, a3 = philox(pair & MASK, pair >> HALF, agents[i], purpose, k0, k1)
        w0[i] = a0
        w1[i] = a1
        w2[i] = a2
        w3[i] = a3


@compiled(forceinline=True)
def extend(tile, chain, draw, ahead):
    """Append `draw.steps` transitions to the `ahead` states that stand in each agent's row.

    The first state in a row is that of `draw.time`, so the first transition is number
    ``draw.time + ahead - 1``.
    """
    count, steps = draw.num_agents, draw.steps
    begin_walk(tile, count, ahead)
    most_pairs = LANES // count
    done = 0
    while done < steps:
        step = np.uint64(draw.time + ahead - 1 + done)
        odd = step & ONE
        span = min(steps - done, 2 * most_pairs - np.int64(odd))
        num_pairs = (np.int64(odd) + span + 1) // 2
        make_words(tile, draw.seed, draw.first, count, step >> ONE, num_pairs, PATH)
        walk(tile, chain, count, ahead + done, span, odd)
        done += span


@compiled(forceinline=True)
def begin_walk(tile, count, ahead):
    """The last of the `ahead` states in each agent's row is where the agent is."""
    pitch, known = np.uint64(tile.states.shape[1]), np.uint64(ahead)
    for a in range(np.uint64(count)):
        tile.current[a] = tile.flat_states[a * pitch + known - ONE]


@compiled(forceinline=True)
def walk(tile, chain, count, column, span, odd):
    """Move all agents `span` steps on, by the words made for them; `odd` is the first time mod 2.

    The states go to the columns from `column` on.
    """
    states, actions, current, words = tile.flat_states, tile.flat_actions, tile.current, tile.words
    mdps, policies = tile.mdps, tile.policies
    policy, rows, entries, num_actions = chain.policy, chain.row, chain.entry, chain.num_actions
    # Unsigned throughout: a signed index costs a wrap-around test each.
    agents, pitch, first = np.uint64(count), np.uint64(tile.states.shape[1]), np.uint64(column)
    for l in range(np.uint64(span)):
        lane = ((odd + l) >> ONE) * agents
        half = TWO * ((odd + l) & ONE)
        action_words, state_words = words[half], words[half + ONE]
        to = first + l
        for a in range(agents):
            s = current[a]
            action = choose_index(
                np.uint64(action_words[lane + a]),
                (policies[a] + s) * num_actions,
                num_actions,
                policy,
            )
            row = (mdps[a] + s) * num_actions + action
            begin, size = np.uint64(rows[TWO * row]), np.uint64(rows[TWO * row + ONE])
            s = np.uint64(choose(np.uint64(state_words[lane + a]), begin, size, entries))
            actions[a * pitch + to - ONE] = action
            states[a * pitch + to] = s
            current[a] = s


@compiled
def first_states(chain, seed, first, count, out):
    """The states at time 0 of agents first..first+count-1."""
    for a in range(count):
        word, _ = words(seed, np.uint64(first + a), np.uint64(0), FIRST_STATE)
        out[a] = choose_index(word, np.uint64(0), chain.num_states, chain.first)


@compiled
def draw_windows(tile, chain, agents, draw, window):
    """One window from the stationary distribution for each step, `window` transitions long, one
    after the other in the row."""
    for a in range(draw.num_agents):
        agent = np.uint64(draw.first + a)
        start = np.uint64(agents.kinds[draw.first + a]) * chain.num_states
        for k in range(draw.steps):
            at = np.uint64(draw.time + k)
            word, _ = words(draw.seed, agent, at, IID)
            s = choose_index(word, start, chain.num_states, chain.law)
            column = k * (window + 1)
            tile.states[a, column] = s
            for l in range(window):
                action_word, state_word = words(draw.seed, agent, at, IID + np.uint64(l) + ONE)
                first = (tile.policies[a] + s) * chain.num_actions
                action = choose_index(action_word, first, chain.num_actions, chain.policy)
                row = (tile.mdps[a] + s) * chain.num_actions + action
                begin, size = np.uint64(chain.row[TWO * row]), np.uint64(chain.row[TWO * row + ONE])
                s = np.uint64(choose(state_word, begin, size, chain.entry))
                tile.actions[a, column + l] = action
                tile.states[a, column + l + 1] = s
