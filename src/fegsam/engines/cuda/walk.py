"""An agent's steps up to a time, along the path that it draws or that a producer has drawn.

Both functions return the time after the last step that left the parameters finite.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda

from fegsam.algorithms.rule import Path
from fegsam.engines.cuda.instructions import opaque
from fegsam.engines.cuda.paths import make_draw_window, make_transition, pair_words
from fegsam.engines.cuda.sums import FOUR
from fegsam.randomness import HALF, MASK, ONE, THREE, TWO

_ZERO = np.uint64(0)


def make_move(ahead):
    def move(window):
        """Shift a window by one step."""
        for j in range(ahead):
            window.states[j] = window.states[j + 1]
        for j in range(ahead - 1):
            window.actions[j] = window.actions[j + 1]

    return cuda.jit(device=True)(move)


def make_walk(spec, step):
    """Steps along a path that is drawn on the way.

    Paths do not depend on parameters, so each transition is looked up before the step that precedes
    its own: both wait for memory at the same time.
    """
    iid, ahead = spec.iid, spec.ahead
    look, arrive = make_transition(spec.narrow)
    draw_window, move = make_draw_window(look, arrive, spec.window), make_move(ahead)

    @cuda.jit(device=True)
    def walk(launch, arrays, memory, view, window, identity, span):
        chain, states, actions = arrays.chain, window.states, window.actions
        path = Path(states, actions, identity.kind, identity.mdp, identity.policy)
        mdp = np.uint64(identity.mdp) * chain.num_states
        policy = np.uint64(identity.policy) * chain.num_states
        key_0, key_1 = identity.seed & MASK, identity.seed >> HALF
        agent = np.uint64(identity.agent)
        entry = view.log.first + np.uint64(span.time - span.origin) * view.log.width
        w0, w1, w2, w3 = _ZERO, _ZERO, _ZERO, _ZERO
        action, word, threshold, outcomes = _ZERO, _ZERO, _ZERO, _ZERO
        t, end = np.uint64(span.time), np.uint64(span.stop)
        if not iid and t < end:
            tau = t + np.uint64(ahead - 1)
            w0, w1, w2, w3 = pair_words(tau, agent, key_0, key_1)
            first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
            state = np.uint64(states[ahead - 1])
            action, word, threshold, outcomes = look(chain, mdp, policy, state, first, second)
        while t < end:
            if iid:
                draw_window(chain, identity, t, window)
            else:
                tau = t + np.uint64(ahead)
                if tau & ONE == _ZERO:
                    w0, w1, w2, w3 = pair_words(tau, agent, key_0, key_1)
                state = arrive(word, threshold, outcomes)
                actions[ahead - 1] = action
                states[ahead] = state
                if t + ONE < end:
                    first, second = (w2, w3) if tau & ONE == ONE else (w0, w1)
                    action, word, threshold, outcomes = look(
                        chain, mdp, policy, state, first, second
                    )
            if not step(launch, view, path, arrays.tables, entry):
                return np.int64(t)
            if not iid:
                move(window)
            t += ONE
            entry += view.log.width
        return span.stop

    return walk


def make_follow(spec, step):
    """Steps along a path that a producer has drawn; with the arguments of `walk`.

    The next four entries of the path are loaded while four are in use.
    """
    ahead = spec.ahead
    move = make_move(ahead)

    @cuda.jit(device=True)
    def follow(launch, arrays, memory, view, window, identity, span):
        path = Path(window.states, window.actions, identity.kind, identity.mdp, identity.policy)
        ring, stride = memory.ring, opaque(np.uint64(launch.agent_blocks * cuda.blockDim.x))
        t, end, passed = (
            np.uint64(span.time),
            np.uint64(span.stop),
            np.uint64(span.time - span.origin),
        )
        entry = view.log.first + passed * view.log.width
        row = (np.uint64(span.ring_row) + passed) * stride + np.uint64(cuda.grid(1)) - stride
        coming = (
            ring[row],
            ring[row + stride],
            ring[row + TWO * stride],
            ring[row + THREE * stride],
        )
        while t < end:
            row += FOUR * stride
            drawn = coming
            coming = (
                ring[row],
                ring[row + stride],
                ring[row + TWO * stride],
                ring[row + THREE * stride],
            )
            finite, taken = True, _ZERO
            for i in range(4):
                if t + np.uint64(i) < end:
                    window.actions[ahead - 1] = drawn[i] >> HALF
                    window.states[ahead] = drawn[i] & MASK
                    finite = step(launch, view, path, arrays.tables, entry) and finite
                    taken += ONE if finite else _ZERO
                    move(window)
                    entry += view.log.width
            if not finite:
                return np.int64(t + taken)
            t += FOUR
        return span.stop

    return follow
