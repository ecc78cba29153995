"""Who takes part in a round, and how the agents are divided into blocks."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy
from fegsam.engines.cpu.layout import BLOCK
from fegsam.engines.cpu.methods.finish import smallest_of
from fegsam.randomness import HALF, MASK, ONE, PARTICIPATION, philox

BLOCKS, PRESENT = 0, 1
"""The entries of `Members.counts`."""


@compiled
def draw_members(constants, kinds, agents, members, seed, number):
    """Draw who takes part in round `number`, and divide all whose chains move into blocks."""
    draw_keys(members.keys, seed, np.uint64(number))
    if constants.num_drawn > 0:
        choose_smallest(constants, members)
    else:
        for i in range(constants.num_agents):
            members.present[i] = members.keys[i] >> HALF < constants.threshold
    if constants.go_on:
        weigh(constants, kinds, agents, members)
    else:
        divide(constants, kinds, agents, members)


@compiled
def draw_keys(keys, seed, number):
    """The two words of each agent as one number."""
    pair, odd, k0, k1 = number >> ONE, number & ONE, seed & MASK, seed >> HALF
    low, high = pair & MASK, pair >> HALF
    for i in range(np.uint64(keys.shape[0])):
        w0, w1, w2, w3 = philox(low, high, i, PARTICIPATION, k0, k1)
        keys[i] = ((w0 ^ odd * (w0 ^ w2)) << HALF) | (w1 ^ odd * (w1 ^ w3))


@compiled
def choose_smallest(constants, members):
    """The agents with the smallest keys.

    Keys are spread evenly, so nearly all agents are decided by comparing with the expected
    threshold, give or take some standard deviations; only the few between are ordered.
    """
    total, count, keys = constants.num_agents, constants.num_drawn, members.keys
    share = count / total
    spread = 6.0 * math.sqrt(share * (1.0 - share) / total) + 1e-9
    low = np.uint64(max(share - spread, 0.0) * 4294967295.0) << HALF
    high = np.uint64(min(share + spread, 1.0) * 4294967295.0) << HALF | MASK
    below, between = 0, 0
    for i in range(total):
        key = keys[i]
        members.present[i] = key < low
        below += key < low
        members.ordered[between] = key
        between += low <= key <= high
    largest = high
    if below > count or below + between < count:
        copy(members.ordered, keys)
        largest = smallest_of(members.ordered[:total], count)
    elif below < count:
        largest = smallest_of(members.ordered[:between], count - below)
    else:
        return
    for i in range(total):
        members.present[i] = keys[i] <= largest


@compiled
def weigh(constants, kinds, agents, members):
    """The weight of those who take part, where the blocks stay as they are."""
    members.kind_weights[:] = 0.0
    present = 0
    for agent in range(constants.num_agents):
        if members.present[agent]:
            row = np.int64(kinds[agent]) if constants.by_kind else 0
            members.kind_weights[row] += agents.weights[agent]
            present += 1
    members.counts[PRESENT] = present


@compiled
def divide(constants, kinds, agents, members):
    """Blocks of agents: of one kind where totals are kept by kind."""
    blocks, listed, present, current = 0, 0, 0, -1
    members.kind_weights[:] = 0.0
    for place in range(constants.num_agents):
        agent = agents.order[place]
        row = np.int64(kinds[agent]) if constants.by_kind else 0
        if members.present[agent]:
            members.kind_weights[row] += agents.weights[agent]
            present += 1
        elif not constants.go_on:
            continue
        if row != current or listed - members.starts[max(blocks - 1, 0)] == BLOCK:
            members.starts[blocks] = listed
            members.kinds[blocks] = row
            blocks += 1
            current = row
        members.agents[listed] = agent
        listed += 1
    members.starts[blocks] = listed
    members.counts[BLOCKS] = blocks
    members.counts[PRESENT] = present
