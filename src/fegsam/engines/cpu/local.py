"""One agent by itself, compiled: its next steps on parameters that are handed in, from where its
path stands.

What the `cpu` engine does for many agents in lockstep, for an agent that lives on a machine of its
own: the same rule, the same write, the same random numbers.
"""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.algorithms.rule import Path
from fegsam.compilation import compiled, renewed, rule_key
from fegsam.engines.cpu.advance import make_steps
from fegsam.engines.cpu.layout import Write
from fegsam.engines.cpu.sampling import draw_windows, enter, extend, first_states


def make_local_steps(form, rule, key):
    """The loop for one rule; `key` says what the rule is (see `compilation`)."""
    rule = compiled(rule, key=key, _nrt=form == "dense", forceinline=True)
    steps = compiled(make_steps(form, rule), key=key, forceinline=True)

    @compiled(key=key)
    def local_steps(
        chain,
        agents,
        tables,
        tile,
        log,
        out,
        window,
        iid,
        step_size,
        seed,
        agent,
        states,
        actions,
        time,
        count,
        params,
    ):
        """Steps time..time+count-1 of `agent` on `params`, whose window (`states`, `actions`) moves
        on with them.

        After a step that left the finite numbers none is made, but the path still goes to its end.
        """
        kind = np.uint64(agents.kinds[agent])
        path = Path(
            tile.flat_states,
            tile.flat_actions,
            kind,
            np.uint64(agents.mdps[kind]),
            np.uint64(agents.policies[kind]),
        )
        ahead, per_step = len(states), window + 1 if iid else 1
        span = (tile.states.shape[1] - ahead - 1) // per_step
        finite = True
        enter(tile, chain, agents, agent, 1)
        done = 0
        while done < count:
            length = min(span, count - done)
            if iid:
                draw_windows(tile, chain, agents, seed, agent, 1, time + done, length, window)
            else:
                for j in range(ahead):
                    tile.states[0, j] = states[j]
                for j in range(ahead - 1):
                    tile.actions[0, j] = actions[j]
                extend(tile, chain, seed, agent, 1, time + done, length, ahead)
            if finite:
                write = Write(False, False, False)
                made = steps(
                    params,
                    out,
                    path,
                    tables,
                    step_size,
                    np.uint64(0),
                    np.uint64(per_step),
                    length,
                    log,
                    0,
                    out,
                    write,
                )
                finite = made == length
            if not iid:
                for j in range(ahead):
                    states[j] = tile.states[0, length + j]
                for j in range(ahead - 1):
                    actions[j] = tile.actions[0, length + j]
            done += length

    return local_steps


@compiled
def first_window(chain, agents, tile, seed, agent, states, actions):
    """The window that stands at time 0: as many states as `states` holds, and the actions between
    them."""
    first_states(chain, seed, agent, 1, states)
    enter(tile, chain, agents, agent, 1)
    tile.states[0, 0] = states[0]
    extend(tile, chain, seed, agent, 1, 0, len(states) - 1, 1)
    for j in range(1, len(states)):
        states[j] = tile.states[0, j]
        actions[j - 1] = tile.actions[0, j - 1]


_local_steps_of_rule: dict[Any, Any] = {}


def compiled_local_steps(form: str, rule: Any) -> Any:
    """The compiled loop for a rule; kept per process, since a rule may be compiled only once."""
    key = rule_key(rule)
    slot = (form, key if key is not None else rule)
    if slot not in _local_steps_of_rule:
        _local_steps_of_rule[slot] = make_local_steps(form, renewed(rule), key)
    return _local_steps_of_rule[slot]
