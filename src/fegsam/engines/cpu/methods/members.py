"""Who takes part in a round, and how the agents are divided into blocks."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import math

import numpy as np

from fegsam.compilation import compiled
from fegsam.engines.cpu.layout import BLOCK
from fegsam.engines.cpu.methods.finish import smallest_of
from fegsam.engines.randomness import PARTICIPATION, words

BLOCKS, PRESENT = 0, 1
"""The entries of `Members.counts`."""


@compiled
def draw_members(constants, kinds, agents, members, seed, number):
    """Draw who takes part in round `number`, and divide all whose chains move into blocks."""
    if constants.num_drawn > 0:
        draw_some(constants, members, seed, number)
    else:
        for i in range(constants.num_agents):
            word, _ = words(seed, np.uint64(i), np.uint64(number), PARTICIPATION)
            members.present[i] = word < constants.threshold
    divide(constants, kinds, agents, members)


@compiled
def draw_some(constants, members, seed, number):
    """The agents with the smallest words.

    Words are spread evenly, so nearly all agents are decided by comparing with the expected
    threshold, give or take some standard deviations; only the few between are ordered.
    """
    total, count, keys = constants.num_agents, constants.num_drawn, members.keys
    share = count / total
    spread = 6.0 * math.sqrt(share * (1.0 - share) / total) + 1e-9
    low = np.uint64(max(share - spread, 0.0) * 4294967295.0)
    high = np.uint64(min(share + spread, 1.0) * 4294967295.0)
    below, between = 0, 0
    for i in range(total):
        first, second = words(seed, np.uint64(i), np.uint64(number), PARTICIPATION)
        inside = first < low
        members.present[i] = inside
        below += inside
        if low <= first <= high:
            keys[between] = (first << np.uint64(32)) | second
            between += 1
    if below > count or below + between < count:
        draw_by_sorting(constants, members, seed, number)
    elif below < count:
        largest = smallest_of(keys[:between], count - below)
        for i in range(total):
            first, second = words(seed, np.uint64(i), np.uint64(number), PARTICIPATION)
            if low <= first <= high and (first << np.uint64(32)) | second <= largest:
                members.present[i] = True


@compiled
def draw_by_sorting(constants, members, seed, number):
    for i in range(constants.num_agents):
        first, second = words(seed, np.uint64(i), np.uint64(number), PARTICIPATION)
        members.keys[i] = (first << np.uint64(32)) | second
    largest = smallest_of(members.keys, constants.num_drawn)
    for i in range(constants.num_agents):
        first, second = words(seed, np.uint64(i), np.uint64(number), PARTICIPATION)
        members.present[i] = (first << np.uint64(32)) | second <= largest


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
