"""What happens before the rounds of a launch: who takes part in them, first windows, and what is
sent first."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda, types

from fegsam.engines.cuda.instructions import add_relaxed, inlined
from fegsam.engines.cuda.methods.close import SHARE_BITS, send
from fegsam.engines.cuda.paths import choose_packed, make_transition
from fegsam.engines.cuda.sums import whole
from fegsam.randomness import FIRST_STATE, HALF, ONE, PARTICIPATION, PATH, words

_ZERO = np.uint64(0)
_BITS = 8
_VALUES = 1 << _BITS
_LOW = np.uint64(_VALUES - 1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_UNIT = 2.0**SHARE_BITS


@cuda.jit(device=True)
def key_of_agent(seed, agent, number):
    """The two words of an agent in round `number` as one number."""
    high, low = words(seed, agent, number, PARTICIPATION)
    return (high << HALF) | low


@inlined
def key_limit(launch, seed, number, count, tallies, box):
    """What the `count` smallest keys of all agents are below, and no others; by all threads of a
    block.

    The bits are found eight at a time, from the highest on, until all keys with these bits belong
    to the smallest ones.
    """
    prefix, wanted, shift, known = _ZERO, np.int32(count), np.uint64(64 - _BITS), 0
    done = False
    while not done:
        for i in range(cuda.threadIdx.x, _VALUES, cuda.blockDim.x):
            tallies[i] = 0
        cuda.syncthreads()
        for agent in range(cuda.threadIdx.x, launch.num_agents, cuda.blockDim.x):
            key = key_of_agent(seed, np.uint64(agent), number)
            # A shift by all 64 bits is not defined.
            if known == 0 or key >> (shift + np.uint64(_BITS)) == prefix:
                cuda.atomic.add(tallies, np.int64((key >> shift) & _LOW), np.int32(1))
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            value = 0
            while tallies[value] < wanted:
                wanted -= tallies[value]
                value += 1
            box[0], box[1], box[2] = value, wanted, tallies[value] == wanted
        cuda.syncthreads()
        prefix, wanted = (prefix << np.uint64(_BITS)) | np.uint64(box[0]), box[1]
        known += _BITS
        done = box[2] != 0 or known == 64
        if not done:
            shift -= np.uint64(_BITS)
        cuda.syncthreads()
    limit = (prefix + ONE) << shift
    return limit if limit != _ZERO else _ALL


def make_draw(by_kind):
    """The kernel that draws who takes part in each round of a launch, one block a round."""

    @cuda.jit
    def draw(launch, constants, kinds, own, memory):
        tallies, box = cuda.shared.array(_VALUES, types.int32), cuda.shared.array(3, types.int32)
        for task in range(cuda.blockIdx.x, launch.num_seeds * launch.rounds, cuda.gridDim.x):
            index, r = task // launch.rounds, task % launch.rounds
            seed, number = memory.seeds[index], np.uint64(launch.number + r)
            limit = constants.threshold << HALF
            if constants.num_drawn > 0:
                count = constants.num_drawn
                limit = key_limit(launch, seed, number, count, tallies, box)
            for row in range(cuda.threadIdx.x, memory.whole.shape[2], cuda.blockDim.x):
                memory.whole[index, r, row] = _ZERO
            if cuda.threadIdx.x == 0:
                memory.limits[index, r], memory.members[index, r] = limit, _ZERO
            cuda.syncthreads()
            present, weight = _ZERO, _ZERO
            for agent in range(cuda.threadIdx.x, launch.num_agents, cuda.blockDim.x):
                if key_of_agent(seed, np.uint64(agent), number) < limit:
                    present += ONE
                    share = np.uint64(whole(own.weights[agent] * _UNIT))
                    if by_kind:
                        add_relaxed(memory.whole[index, r], np.int64(kinds[agent]), share)
                    else:
                        weight += share
            add_relaxed(memory.members[index], r, present)
            if not by_kind:
                add_relaxed(memory.whole[index, r], 0, weight)
            cuda.syncthreads()

    return draw


def make_begin_server():
    """The kernel that sends the parameters with which a run starts.

    It computes them as the end of a round does, to the last bit.
    """

    @cuda.jit
    def begin_server(launch, constants, memory):
        for i in range(cuda.grid(1), launch.num_seeds * launch.dim, cuda.gridsize(1)):
            send(constants, memory, i // launch.dim, i % launch.dim)

    return begin_server


def make_begin_windows(ahead, narrow, own_clocks):
    """The kernel that draws every agent's first window, or the rest of one whose first state is
    given."""
    look, arrive = make_transition(narrow)

    @cuda.jit
    def begin(launch, chain, agents, memory, draw_first):
        for i in range(cuda.grid(1), launch.num_seeds * launch.num_agents, cuda.gridsize(1)):
            index, agent = i // launch.num_agents, i % launch.num_agents
            seed, kind = memory.seeds[index], agents.kinds[agent]
            mdp = np.uint64(agents.mdps[kind]) * chain.num_states
            policy = np.uint64(agents.policies[kind]) * chain.num_states
            if draw_first:
                word, _ = words(seed, np.uint64(agent), _ZERO, FIRST_STATE)
                first = choose_packed(word, _ZERO, chain.num_states, chain.first)
                memory.states[0, index, 0, agent] = first
            state, clock = np.uint64(memory.states[0, index, 0, agent]), launch.begin
            if own_clocks:
                clock = memory.clocks[index, agent]
            for j in range(ahead - 1):
                first, second = words(seed, np.uint64(agent), np.uint64(clock + j), PATH)
                action, word, threshold, outcomes = look(chain, mdp, policy, state, first, second)
                state = arrive(word, threshold, outcomes)
                memory.actions[0, index, j, agent] = action
                memory.states[0, index, j + 1, agent] = state

    return begin
