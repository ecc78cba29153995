"""A producer: a block that draws the paths of another block's agents, some rounds before they are
needed.

Paths do not depend on parameters. Where half of the GPU is enough for all agents, the other half
draws their paths.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.engines.cuda.barrier import await_count
from fegsam.engines.cuda.instructions import add_release
from fegsam.engines.cuda.layout import ROUNDS_AHEAD
from fegsam.engines.cuda.paths import make_transition, pair_words
from fegsam.randomness import HALF, MASK, ONE

_ZERO = np.uint64(0)


def make_produce(spec):
    """What a producer does during a launch, in the place of running agents."""
    ahead = spec.ahead
    look, arrive = make_transition(spec.narrow)

    @cuda.jit(device=True)
    def produce(launch, chain, memory, thread):
        identity, block = thread.identity, thread.block
        present = thread.present and thread.member < launch.num_agents
        mdp = np.uint64(identity.mdp) * chain.num_states
        policy = np.uint64(identity.policy) * chain.num_states
        key_0, key_1 = identity.seed & MASK, identity.seed >> HALF
        agent = np.uint64(identity.agent)
        stride, column = np.uint64(launch.agent_blocks * cuda.blockDim.x), np.uint64(cuda.grid(1))
        row, end = column, column + np.uint64(ROUNDS_AHEAD * launch.sync_period) * stride
        state = np.uint64(memory.states[launch.half, thread.seed_index, ahead - 1, identity.agent])
        tau = np.uint64(launch.begin + ahead - 1)
        w0, w1, w2, w3 = pair_words(tau, agent, key_0, key_1)
        time, rounds, leads = launch.begin, 0, cuda.threadIdx.x == 0
        while time < launch.stop:
            length = min(launch.sync_period, launch.stop - time)
            if leads:
                await_count(memory.taken, block, np.uint64(max(rounds + 1 - ROUNDS_AHEAD, 0)))
            cuda.syncthreads()
            for _ in range(length):
                first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
                action, word, threshold, outcomes = look(chain, mdp, policy, state, first, second)
                tau += ONE
                if tau & ONE == _ZERO:
                    w0, w1, w2, w3 = pair_words(tau, agent, key_0, key_1)
                state = arrive(word, threshold, outcomes)
                if present:
                    memory.ring[row] = (action << HALF) | state
                row += stride
            cuda.syncthreads()
            if leads:
                add_release(memory.drawn, block, ONE)
            row = column if row == end else row
            time += length
            rounds += 1
        # The consumer waits for one round more than it runs.
        if leads:
            add_release(memory.drawn, block, ONE)

    return produce
