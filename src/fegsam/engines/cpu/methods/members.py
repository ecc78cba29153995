"""Who takes part in a round, and how the agents are divided into blocks."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.kernels import copy
from fegsam.engines.cpu.layout import BLOCK
from fegsam.engines.cpu.methods.finish import smallest_of
from fegsam.randomness import HALF, MASK, ONE, PARTICIPATION, TWO, philox

THREE, FOUR = np.uint64(3), np.uint64(4)
BLOCKS, PRESENT = 0, 1
"""The entries of `Members.counts`."""


@compiled
def draw_members(constants, kinds, agents, members, seed, number):
    """Draw who takes part in round `number`, and divide all whose chains move into blocks."""
    if members.drawn[0] != number // 2:
        draw_keys(members.keys, seed, np.uint64(number // 2))
        members.drawn[0] = number // 2
    keys = members.keys[number % 2]
    if constants.num_drawn > 0:
        choose_smallest(constants, members, keys)
    else:
        for i in range(constants.num_agents):
            members.present[i] = keys[i] >> HALF < constants.threshold
    weigh(constants, kinds, agents, members)
    if not constants.go_on:
        divide(constants, kinds, agents, members)


@compiled
def draw_keys(keys, seed, pair):
    """The two words of each agent as one number, for both rounds of a pair."""
    low, high, k0, k1 = pair & MASK, pair >> HALF, seed & MASK, seed >> HALF
    for i in range(np.uint64(keys.shape[1])):
        w0, w1, w2, w3 = philox(low, high, i, PARTICIPATION, k0, k1)
        keys[0, i] = (w0 << HALF) | w1
        keys[1, i] = (w2 << HALF) | w3


@compiled
def choose_smallest(constants, members, keys):
    """The agents with the smallest keys.

    Keys are spread evenly, so nearly all agents are decided by comparing with the expected
    threshold, give or take some standard deviations; only the few between are ordered.
    """
    total, count = constants.num_agents, constants.num_drawn
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
    """The number of agents that take part, and their weight: of each kind where totals are."""
    members.kind_weights[:] = 0.0
    members.counts[PRESENT] = 0
    if not constants.by_kind:
        members.kind_weights[0] = weight_of_all(agents.weights, members)
        return
    for agent in range(constants.num_agents):
        present = members.present[agent]
        members.kind_weights[np.int64(kinds[agent])] += agents.weights[agent] * present
        members.counts[PRESENT] += present


@compiled
def weight_of_all(weights, members):
    """The weight of those who take part, who are counted.

    Four sums, so that an addition need not wait for the one before it.
    """
    present = members.present
    w0, w1, w2, w3, count = 0.0, 0.0, 0.0, 0.0, 0
    # Unsigned: a signed index costs a wrap-around test.
    i, total = np.uint64(0), np.uint64(len(present))
    while i + FOUR <= total:
        w0 += weights[i] * present[i]
        w1 += weights[i + ONE] * present[i + ONE]
        w2 += weights[i + TWO] * present[i + TWO]
        w3 += weights[i + THREE] * present[i + THREE]
        count += present[i] + present[i + ONE] + present[i + TWO] + present[i + THREE]
        i += FOUR
    while i < total:
        w0 += weights[i] * present[i]
        count += present[i]
        i += ONE
    members.counts[PRESENT] += count
    return (w0 + w1) + (w2 + w3)


@compiled
def divide(constants, kinds, agents, members):
    """Blocks of the agents whose chains move: of one kind where totals are kept by kind."""
    listed = 0
    for place in range(constants.num_agents):
        # Written in any case, and kept where the place moves on: no branch to be guessed.
        agent = agents.order[place]
        members.agents[listed] = agent
        listed += members.present[agent] | np.uint8(constants.go_on)
    blocks, place = 0, 0
    while place < listed:
        row = np.int64(kinds[members.agents[place]]) if constants.by_kind else 0
        members.starts[blocks] = place
        members.kinds[blocks] = row
        blocks += 1
        end = min(place + BLOCK, listed)
        while place < end and (not constants.by_kind or kinds[members.agents[place]] == row):
            place += 1
    members.starts[blocks] = listed
    members.counts[BLOCKS] = blocks
