"""Paths for any agents of a tile, each from its own clock on."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.sampling import LANES, Draw, begin_walk, extend, walk
from fegsam.randomness import (
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

_LANES = np.uint64(LANES)


@compiled(forceinline=True)
def enter_tile(constants, arrays, shared, own, time, first, count):
    """Note the agents of the tile that begins at member `first`, their clocks and their tables."""
    tile, agents, chain = own.tile, arrays.agents, arrays.chain
    for a in range(count):
        agent = shared.members.agents[first + a]
        kind = agents.kinds[agent]
        own.ids[a] = agent
        own.clocks[a] = time if shared.clocks.shape[0] == 0 else shared.clocks[agent]
        tile.mdps[a] = agents.mdps[kind] * chain.num_states
        tile.policies[a] = agents.policies[kind] * chain.num_states


@compiled(forceinline=True)
def list_working(members, own, count):
    """Note the places in the tile of the agents that take part, and return their number."""
    working = 0
    for a in range(count):
        # Written in any case, and kept where the count moves on: no branch to be guessed.
        own.working[working] = a
        working += members.present[own.ids[a]]
    return working


@compiled(forceinline=True)
def draw_tile(constants, arrays, shared, own, seed, count, begin, steps):
    """Paths of local steps begin..begin+steps-1; a later piece continues the one before it."""
    if constants.iid:
        draw_windows_of(own, arrays, seed, count, begin, steps, constants.window)
        return
    states, actions, carried = own.tile.states, own.tile.actions, shared.carried
    for a in range(count):
        agent = own.ids[a]
        for j in range(constants.ahead):
            states[a, j] = carried.states[agent, j] if begin == 0 else states[a, constants.span + j]
        for j in range(constants.ahead - 1):
            actions[a, j] = (
                carried.actions[agent, j] if begin == 0 else actions[a, constants.span + j]
            )
    if constants.consecutive:
        time = int(own.clocks[0]) + begin
        draw = Draw(seed, own.ids[0], count, time, steps)
        extend(own.tile, arrays.chain, draw, constants.ahead)
    else:
        extend_rows(own, arrays.chain, seed, count, begin, steps, constants.ahead)


@compiled
def extend_rows(own, chain, seed, count, begin, steps, ahead):
    """Append `steps` transitions to the `ahead` states that stand in each agent's row."""
    tile, odd = own.tile, own.odd
    begin_walk(tile, count, ahead)
    most = 2 * (LANES // count) - 1
    done = 0
    while done < steps:
        span = min(steps - done, most)
        offset = np.uint64(begin + ahead - 1 + done)
        some_odd, all_odd = np.uint64(0), ONE
        for a in range(count):
            odd[a] = (own.clocks[a] + offset) & ONE
            some_odd |= odd[a]
            all_odd &= odd[a]
        make_words_of(own, seed, count, offset, (span + 1 + np.int64(some_odd)) // 2)
        if some_odd == all_odd:
            walk(tile, chain, count, ahead + done, span, all_odd)
        else:
            walk_apart(own, chain, count, ahead + done, span)
        done += span


@compiled
def walk_apart(own, chain, count, column, span):
    """`walk`, for agents of which some are at odd times and some at even ones."""
    tile, odd, words = own.tile, own.odd, own.words
    states, actions, current = tile.flat_states, tile.flat_actions, tile.current
    mdps, policies = tile.mdps, tile.policies
    policy, rows, entries, num_actions = chain.policy, chain.row, chain.entry, chain.num_actions
    agents, pitch, first = np.uint64(count), np.uint64(tile.states.shape[1]), np.uint64(column)
    for l in range(np.uint64(span)):
        to = first + l
        for a in range(agents):
            step = odd[a] + l
            at = TWO * (step & ONE) * _LANES + (step >> ONE) * agents + a
            s = current[a]
            action = choose_index(
                np.uint64(words[at]), (policies[a] + s) * num_actions, num_actions, policy
            )
            row = (mdps[a] + s) * num_actions + action
            low, size = np.uint64(rows[TWO * row]), np.uint64(rows[TWO * row + ONE])
            s = np.uint64(choose(np.uint64(words[at + _LANES]), low, size, entries))
            actions[a * pitch + to - ONE] = action
            states[a * pitch + to] = s
            current[a] = s


@compiled
def make_words_of(own, seed, count, offset, num_pairs):
    """Words of `num_pairs` pairs of steps for each agent, from its clock plus `offset` on."""
    tile, clocks, ids = own.tile, own.clocks, own.ids
    pairs, agents, many = tile.pairs, tile.agents, np.uint64(count)
    for p in range(np.uint64(num_pairs)):
        for a in range(many):
            pairs[p * many + a] = ((clocks[a] + offset) >> ONE) + p
            agents[p * many + a] = np.uint64(ids[a])
    w0, w1, w2, w3 = tile.words[0], tile.words[1], tile.words[2], tile.words[3]
    k0, k1 = seed & MASK, seed >> HALF
    for i in range(np.uint64(num_pairs * count)):
        pair = pairs[i]
        a0, a1, a2, a3 = philox(pair & MASK, pair >> HALF, agents[i], PATH, k0, k1)
        w0[i] = a0
        w1[i] = a1
        w2[i] = a2
        w3[i] = a3


@compiled
def draw_windows_of(own, arrays, seed, count, begin, steps, window):
    """One window from the stationary distribution for each step, one after the other in the row."""
    tile, chain = own.tile, arrays.chain
    for a in range(count):
        agent = np.uint64(own.ids[a])
        start = np.uint64(arrays.agents.kinds[own.ids[a]]) * chain.num_states
        for k in range(steps):
            at = own.clocks[a] + np.uint64(begin + k)
            word, _ = words(seed, agent, at, IID)
            s = choose_index(word, start, chain.num_states, chain.law)
            column = k * (window + 1)
            tile.states[a, column] = s
            for l in range(window):
                action_word, state_word = words(seed, agent, at, IID + np.uint64(l) + ONE)
                first = (tile.policies[a] + s) * chain.num_actions
                action = choose_index(action_word, first, chain.num_actions, chain.policy)
                row = (tile.mdps[a] + s) * chain.num_actions + action
                low, size = np.uint64(chain.row[TWO * row]), np.uint64(chain.row[TWO * row + ONE])
                s = np.uint64(choose(state_word, low, size, chain.entry))
                tile.actions[a, column + l] = action
                tile.states[a, column + l + 1] = s


@compiled(forceinline=True)
def carry_agent(constants, shared, own, a, steps):
    """Keep the window of the tile's agent `a` that stands `steps` after the tile's beginning."""
    if constants.iid:
        return
    agent, carried, tile = own.ids[a], shared.carried, own.tile
    for j in range(constants.ahead):
        carried.states[agent, j] = tile.states[a, steps + j]
    for j in range(constants.ahead - 1):
        carried.actions[agent, j] = tile.actions[a, steps + j]


@compiled
def fill_carried(constants, arrays, shared, own, seed, time):
    """The rest of every agent's window, behind the state that it carries."""
    for first in range(0, constants.num_agents, constants.tile):
        count = min(constants.tile, constants.num_agents - first)
        enter_tile(constants, arrays, shared, own, time, first, count)
        for a in range(count):
            own.tile.states[a, 0] = shared.carried.states[own.ids[a], 0]
        extend_rows(own, arrays.chain, seed, count, 0, constants.ahead - 1, 1)
        for a in range(count):
            carry_agent(constants, shared, own, a, 0)
