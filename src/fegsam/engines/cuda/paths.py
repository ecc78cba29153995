"""The paths of the `cuda` engine: the words and alias tables of `randomness`, packed for a GPU's
loads."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.engines.cuda.instructions import inlined
from fegsam.randomness import (
    FIRST_STATE,
    HALF,
    IID,
    MASK,
    ONE,
    PATH,
    TWO,
    philox,
    words,
)

_ZERO = np.uint64(0)
_SHORT = np.uint64(0xFFFF)


class PackedChain(NamedTuple):
    """A job's `Chain`, packed: a GPU pays for each load, not for its size. All are uint64."""

    policy: Any
    """threshold and alias of each entry, in the lower and the upper half"""
    row: Any
    """first entry and number of entries, likewise"""
    entry: Any
    """threshold, next state and other next state: 32, 16 and 16 bits, or 32 in one word and twice
    32 in the next"""
    first: Any
    """the distribution of the first state, as `policy`"""
    stationary: Any
    """the stationary distribution of each kind, likewise"""
    num_states: Any
    num_actions: Any


def pack(chain):
    """A `Chain` as `PackedChain`."""
    threshold, outcome, other = chain.entry.reshape(-1, 3).T.astype(np.uint64)
    if is_narrow(chain):
        entry = threshold | (outcome << HALF) | (other << np.uint64(48))
    else:
        entry = np.stack([threshold, outcome | (other << HALF)], axis=1).ravel()
    policy, row, first, stationary = (
        part.view(np.uint64) for part in (chain.policy, chain.row, chain.first, chain.law)
    )
    return PackedChain(policy, row, entry, first, stationary, chain.num_states, chain.num_actions)


def is_narrow(chain):
    """Whether a state fits into 16 bits."""
    return chain.num_states <= 1 << 16


@register_jitable
def choose_packed(word, start, size, table):
    """Draw from an alias row whose entry j stands for the outcome j."""
    product = word * size
    index = product >> HALF
    packed = table[start + index]
    return index if (product & MASK) < (packed & MASK) else packed >> HALF


@inlined
def pair_words(tau, agent, key_0, key_1):
    """The words of transition `tau` and of its neighbour, which share a counter."""
    return philox((tau >> ONE) & MASK, tau >> (HALF + ONE), agent, PATH, key_0, key_1)


def make_transition(narrow):
    """A transition in two halves: `look` starts the loads, and `arrive` uses what they brought."""

    def look(chain, mdp, policy, state, action_word, state_word):
        """The action taken in `state`, and the entry that decides the next state; `mdp` and
        `policy` are first rows."""
        action = choose_packed(
            action_word, (policy + state) * chain.num_actions, chain.num_actions, chain.policy
        )
        row = chain.row[(mdp + state) * chain.num_actions + action]
        product = state_word * (row >> HALF)
        at = (row & MASK) + (product >> HALF)
        if narrow:
            packed = chain.entry[at]
            return action, product & MASK, packed & MASK, packed >> HALF
        return action, product & MASK, chain.entry[TWO * at], chain.entry[TWO * at + ONE]

    def arrive(word, threshold, outcomes):
        """The next state."""
        if narrow:
            return outcomes & _SHORT if word < threshold else outcomes >> np.uint64(16)
        return outcomes & MASK if word < threshold else outcomes >> HALF

    return cuda.jit(device=True)(look), cuda.jit(device=True)(arrive)


def make_draw_window(look, arrive, length):
    def draw_window(chain, identity, t, window):
        """A window of `length` transitions from the stationary distribution."""
        seed, agent = identity.seed, np.uint64(identity.agent)
        mdp = np.uint64(identity.mdp) * chain.num_states
        policy = np.uint64(identity.policy) * chain.num_states
        word, _ = words(seed, agent, t, IID)
        start = np.uint64(identity.kind) * chain.num_states
        state = choose_packed(word, start, chain.num_states, chain.stationary)
        window.states[0] = state
        for l in range(length):
            action_word, state_word = words(seed, agent, t, IID + np.uint64(l) + ONE)
            action, word, threshold, outcomes = look(
                chain, mdp, policy, state, action_word, state_word
            )
            state = arrive(word, threshold, outcomes)
            window.actions[l] = action
            window.states[l + 1] = state

    return cuda.jit(device=True)(draw_window)


def make_begin(ahead, narrow):
    """The kernel that draws every agent's first window, or the rest of one whose first state is
    given."""
    look, arrive = make_transition(narrow)

    @cuda.jit
    def begin(launch, chain, agents, memory, draw_first):
        states, actions, half = memory.states, memory.actions, launch.half
        for i in range(cuda.grid(1), launch.num_seeds * launch.num_agents, cuda.gridsize(1)):
            seed_index, agent = i // launch.num_agents, i % launch.num_agents
            seed, kind = memory.seeds[seed_index], agents.kinds[agent]
            mdp = np.uint64(agents.mdps[kind]) * chain.num_states
            policy = np.uint64(agents.policies[kind]) * chain.num_states
            if draw_first:
                word, _ = words(seed, np.uint64(agent), _ZERO, FIRST_STATE)
                states[half, seed_index, 0, agent] = choose_packed(
                    word, _ZERO, chain.num_states, chain.first
                )
            state = np.uint64(states[half, seed_index, 0, agent])
            for j in range(ahead - 1):
                action_word, state_word = words(
                    seed, np.uint64(agent), np.uint64(launch.begin + j), PATH
                )
                action, word, threshold, outcomes = look(
                    chain, mdp, policy, state, action_word, state_word
                )
                state = arrive(word, threshold, outcomes)
                actions[half, seed_index, j, agent] = action
                states[half, seed_index, j + 1, agent] = state

    return begin
