"""The paths of the `cuda` engine: the words and laws of `randomness`, packed for a GPU's loads."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.extending import register_jitable

from fegsam.algorithms.rule import Path
from fegsam.engines.cuda.instructions import add_release, anew
from fegsam.engines.cuda.layout import AHEAD
from fegsam.engines.cuda.meet import await_count
from fegsam.engines.cuda.sums import FOUR
from fegsam.engines.randomness import (
    FIRST_STATE,
    HALF,
    IID,
    MASK,
    ONE,
    PATH,
    THREE,
    TWO,
    philox,
    words,
)

_ZERO = np.uint64(0)
_SHORT = np.uint64(0xFFFF)


class Laws(NamedTuple):
    """A plan's `Chain`, packed: a GPU pays for each load, not for its size. All are uint64."""

    policy: Any
    """threshold and alias of each entry, in the lower and the upper half"""
    row: Any
    """first entry and number of entries, likewise"""
    entry: Any
    """threshold, next state and other next state: 32, 16 and 16 bits, or 32 in one word and twice
    32 in the next"""
    first: Any
    law: Any
    num_states: Any
    num_actions: Any


def pack(chain):
    """A `Chain` as `Laws`."""
    threshold, outcome, other = chain.entry.reshape(-1, 3).T.astype(np.uint64)
    if is_narrow(chain):
        entry = threshold | (outcome << HALF) | (other << np.uint64(48))
    else:
        entry = np.stack([threshold, outcome | (other << HALF)], axis=1).ravel()
    policy, row, first, law = (
        part.view(np.uint64) for part in (chain.policy, chain.row, chain.first, chain.law)
    )
    return Laws(policy, row, entry, first, law, chain.num_states, chain.num_actions)


def is_narrow(chain):
    return chain.num_states <= 1 << 16


@register_jitable
def choose_packed(word, start, size, table):
    """Draw from an alias row of entries whose j-th stands for the outcome j itself."""
    product = word * size
    index = product >> HALF
    packed = table[start + index]
    return index if (product & MASK) < (packed & MASK) else packed >> HALF


def make_transition(narrow):
    """A transition in two halves, `look` and `arrive`: what can be asked before the answer is
    needed, and the answer."""

    def look(laws, mdp, policy, state, action_word, state_word):
        """The action taken in `state`, and what says where it leads; `mdp` and `policy` are first
        rows."""
        action = choose_packed(
            action_word, (policy + state) * laws.num_actions, laws.num_actions, laws.policy
        )
        row = laws.row[(mdp + state) * laws.num_actions + action]
        product = state_word * (row >> HALF)
        at = (row & MASK) + (product >> HALF)
        if narrow:
            packed = laws.entry[at]
            return action, product & MASK, packed & MASK, packed >> HALF
        return action, product & MASK, laws.entry[TWO * at], laws.entry[TWO * at + ONE]

    def arrive(word, threshold, outcomes):
        if narrow:
            return outcomes & _SHORT if word < threshold else outcomes >> np.uint64(16)
        return outcomes & MASK if word < threshold else outcomes >> HALF

    return cuda.jit(device=True)(look), cuda.jit(device=True)(arrive)


def make_draw_window(look, arrive, window):
    def draw_window(laws, agents, kind, seed, agent, t, states, actions):
        """A window from the stationary law."""
        mdp, policy = (
            np.uint64(agents.mdps[kind]) * laws.num_states,
            np.uint64(agents.policies[kind]) * laws.num_states,
        )
        word, _ = words(seed, agent, t, IID)
        state = choose_packed(word, np.uint64(kind) * laws.num_states, laws.num_states, laws.law)
        states[0] = state
        for l in range(window):
            action_word, state_word = words(seed, agent, t, IID + np.uint64(l) + ONE)
            action, word, threshold, outcomes = look(
                laws, mdp, policy, state, action_word, state_word
            )
            state = arrive(word, threshold, outcomes)
            actions[l] = action
            states[l + 1] = state

    return cuda.jit(device=True)(draw_window)


def make_begin(ahead, narrow):
    """The kernel that draws every agent's first window, or the rest of one whose first state is
    there."""
    look, arrive = make_transition(narrow)

    @cuda.jit
    def begin(job, laws, agents, memory, drawn):
        at = cuda.grid(1)
        for i in range(at, job.num_seeds * job.num_agents, cuda.gridsize(1)):
            which, agent = i // job.num_agents, i % job.num_agents
            seed, states, actions = memory.seeds[which], memory.states, memory.actions
            kind = agents.kinds[agent]
            mdp, policy = (
                np.uint64(agents.mdps[kind]) * laws.num_states,
                np.uint64(agents.policies[kind]) * laws.num_states,
            )
            if drawn:
                word, _ = words(seed, np.uint64(agent), _ZERO, FIRST_STATE)
                states[job.half, which, 0, agent] = choose_packed(
                    word, _ZERO, laws.num_states, laws.first
                )
            state = np.uint64(states[job.half, which, 0, agent])
            for j in range(ahead - 1):
                action_word, state_word = words(
                    seed, np.uint64(agent), np.uint64(job.begin + j), PATH
                )
                action, word, threshold, outcomes = look(
                    laws, mdp, policy, state, action_word, state_word
                )
                state = arrive(word, threshold, outcomes)
                actions[job.half, which, j, agent] = action
                states[job.half, which, j + 1, agent] = state

    return begin


def make_move(ahead):
    def move(states, actions):
        """A window one step on."""
        for j in range(ahead):
            states[j] = states[j + 1]
        for j in range(ahead - 1):
            actions[j] = actions[j + 1]

    return cuda.jit(device=True)(move)


def make_walk(step, window, iid, narrow):
    """An agent's steps up to a time, with its path.

    Paths do not hang on parameters, so each transition is looked up before the step that comes
    before its own: the two wait for memory at the same time.
    """
    ahead = max(window, 1)
    look, arrive = make_transition(narrow)
    draw_window, move = make_draw_window(look, arrive, window), make_move(ahead)

    @cuda.jit(device=True)
    def walk(
        job,
        laws,
        agents,
        tables,
        params,
        out,
        log,
        states,
        actions,
        who,
        time,
        stop,
        memory,
        origin,
        first_row,
    ):
        """The steps time..stop-1; the time after the last that left the parameters finite."""
        path = Path(states, actions, who.kind, who.mdp, who.policy)
        mdp, policy = np.uint64(who.mdp) * laws.num_states, np.uint64(who.policy) * laws.num_states
        key_0, key_1, agent = who.seed & MASK, who.seed >> HALF, np.uint64(who.agent)
        entry = log.first + np.uint64(time - origin) * log.width
        w0, w1, w2, w3 = _ZERO, _ZERO, _ZERO, _ZERO
        action, word, threshold, outcomes = _ZERO, _ZERO, _ZERO, _ZERO
        t, end = np.uint64(time), np.uint64(stop)
        if not iid and t < end:
            tau = t + np.uint64(ahead - 1)
            w0, w1, w2, w3 = philox(
                (tau >> ONE) & MASK, tau >> (HALF + ONE), agent, PATH, key_0, key_1
            )
            first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
            action, word, threshold, outcomes = look(
                laws, mdp, policy, np.uint64(states[ahead - 1]), first, second
            )
        while t < end:
            if iid:
                draw_window(laws, agents, who.kind, who.seed, agent, t, states, actions)
            else:
                tau = t + np.uint64(ahead)
                if tau & ONE == _ZERO:
                    w0, w1, w2, w3 = philox(
                        (tau >> ONE) & MASK, tau >> (HALF + ONE), agent, PATH, key_0, key_1
                    )
                state = arrive(word, threshold, outcomes)
                actions[ahead - 1] = action
                states[ahead] = state
                if t + ONE < end:
                    first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
                    action, word, threshold, outcomes = look(
                        laws, mdp, policy, state, first, second
                    )
            if not step(params, out, path, tables, job, log.cells, entry):
                return np.int64(t)
            if not iid:
                move(states, actions)
            t += ONE
            entry += log.width
        return stop

    return walk


def make_follow(step, window):
    """`walk`, with its arguments, on a path that a scout has drawn.

    Its entries are asked for by fours, while the four before are in use.
    """
    ahead = max(window, 1)
    move = make_move(ahead)

    @cuda.jit(device=True)
    def follow(
        job,
        laws,
        agents,
        tables,
        params,
        out,
        log,
        states,
        actions,
        who,
        time,
        stop,
        memory,
        origin,
        first_row,
    ):
        path = Path(states, actions, who.kind, who.mdp, who.policy)
        trail, stride = memory.trail, anew(np.uint64(job.crew * cuda.blockDim.x))
        t, end, passed = np.uint64(time), np.uint64(stop), np.uint64(time - origin)
        entry = log.first + passed * log.width
        row = (np.uint64(first_row) + passed) * stride + np.uint64(cuda.grid(1)) - stride
        coming = (
            trail[row],
            trail[row + stride],
            trail[row + TWO * stride],
            trail[row + THREE * stride],
        )
        while t < end:
            row += FOUR * stride
            drawn = coming
            coming = (
                trail[row],
                trail[row + stride],
                trail[row + TWO * stride],
                trail[row + THREE * stride],
            )
            finite, taken = True, _ZERO
            for i in range(4):
                if t + np.uint64(i) < end:
                    actions[ahead - 1] = drawn[i] >> HALF
                    states[ahead] = drawn[i] & MASK
                    finite = step(params, out, path, tables, job, log.cells, entry) and finite
                    taken += ONE if finite else _ZERO
                    move(states, actions)
                    entry += log.width
            if not finite:
                return np.int64(t + taken)
            t += FOUR
        return stop

    return follow


def make_scout(window, narrow):
    """What a block of scouts does: it draws the paths of another block's agents, some rounds before
    they are wanted."""
    ahead = max(window, 1)
    look, arrive = make_transition(narrow)

    @cuda.jit(device=True)
    def scout(job, laws, memory, who, which, present, block):
        mdp, policy = np.uint64(who.mdp) * laws.num_states, np.uint64(who.policy) * laws.num_states
        key_0, key_1, agent = who.seed & MASK, who.seed >> HALF, np.uint64(who.agent)
        stride, thread = np.uint64(job.crew * cuda.blockDim.x), np.uint64(cuda.grid(1))
        row, end = thread, thread + np.uint64(AHEAD * job.sync_period) * stride
        state = np.uint64(memory.states[job.half, which, ahead - 1, who.agent])
        tau = np.uint64(job.begin + ahead - 1)
        w0, w1, w2, w3 = philox((tau >> ONE) & MASK, tau >> (HALF + ONE), agent, PATH, key_0, key_1)
        time, turn, leads = job.begin, 0, cuda.threadIdx.x == 0
        while time < job.stop:
            length = min(job.sync_period, job.stop - time)
            if leads:
                await_count(memory.taken, block, np.uint64(max(turn + 1 - AHEAD, 0)))
            cuda.syncthreads()
            for _ in range(length):
                first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
                action, word, threshold, outcomes = look(laws, mdp, policy, state, first, second)
                tau += ONE
                if tau & ONE == _ZERO:
                    w0, w1, w2, w3 = philox(
                        (tau >> ONE) & MASK, tau >> (HALF + ONE), agent, PATH, key_0, key_1
                    )
                state = arrive(word, threshold, outcomes)
                if present:
                    memory.trail[row] = (action << HALF) | state
                row += stride
            cuda.syncthreads()
            if leads:
                add_release(memory.drawn, block, ONE)
            row = thread if row == end else row
            time += length
            turn += 1
        # Who follows asks for one round more than it runs.
        if leads:
            add_release(memory.drawn, block, ONE)

    return scout
