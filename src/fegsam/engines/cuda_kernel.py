"""The kernels of the `cuda` engine: one thread an agent, rounds of K local steps and an average, for any rule.

Between two synchronisations the agents do not meet, and after one they all hold the same parameters. So a thread needs
memory of its own for the agent that it runs now, and not for all agents: it starts from the average, and at the round's end
adds its agent's difference from it to a sum. Three layouts (see `cuda_layout`):

shared   an agent's parameters in shared memory, entry j of thread t beside entry j of thread t + 1: no bank conflicts.
overlay  a small hash table of the cells that the agent has written, over the average that all read.
table    an agent's parameters in global memory.

Sums are whole numbers: a difference is rounded to a multiple of 2^-f and added as a 64-bit integer. Such sums do not depend
on the order of their terms, so threads may add at any time and a run repeats bit for bit. f leaves room for N differences
below a limit that goes with the size of the average; where a difference is beyond it, the round is run again with more room.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types
from numba.core import config
from numba.extending import overload, register_jitable
from numba.np.numpy_support import from_dtype

from fegsam.algorithms.rule import Path
from fegsam.engines.randomness import FIRST_STATE, HALF, IID, MASK, ONE, PATH, TWO, philox, words

EMPTY = np.uint32(0xFFFFFFFF)
NOT_FAILED = np.uint64(0xFFFFFFFFFFFFFFFF)
ROOM = 2
"""Bits between the size of the average and that of a difference from it."""
MORE_ROOM = 8
_ZERO = np.uint64(0)
_HASH = np.uint64(2654435769)
_SHORT = np.uint64(0xFFFF)
_UNROLLED = 32
_KEPT_BYTES = 1 << 13
"""Of an array that each block keeps a copy of in shared memory."""
_CALM = 1e30
"""Increments below this cannot take a finite parameter out of the finite numbers, in either precision."""


def compile_kernel(function, registers):
    """Compile for the GPU; Numba's simulator knows no registers."""
    if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]
        return cuda.jit(function)
    return cuda.jit(function, max_registers=registers)


class Job(NamedTuple):
    """The constants of a launch."""

    num_agents: Any
    num_seeds: Any
    sync_period: Any
    step_size: Any
    lanes: Any
    """agents of one seed that a block runs at a time"""
    slots: Any
    """seeds that a block runs side by side"""
    blocks: Any
    """blocks that share one seed's agents"""
    dim: Any
    fraction: Any
    """f for differences below one"""
    largest: Any
    """a parameter beyond this counts as not finite"""
    begin: Any
    stop: Any
    half: Any
    """which half of the windows is current"""


class Memory(NamedTuple):
    """What lies in global memory. S seeds, C recorded times a launch, c of them inside one round."""

    seeds: Any
    """uint64 (S)"""
    average: Any
    """float64 (S, d)"""
    rounded: Any
    """(S, d): the average as agents hold it"""
    states: Any
    """uint32 (2, S, ahead, N): each agent's window at the last synchronisation, and room for the next"""
    actions: Any
    """uint32 (2, S, ahead, N)"""
    totals: Any
    """uint64 (S, 1 + c, d): sums over agents of the differences from the average, at the round's end and at its cuts"""
    squares: Any
    """float64 (c, threads): sums over a thread's agents of ||theta^i - average||^2"""
    parts: Any
    """float64 (C, S, blocks, 2): a block's share of those sums, and of the squared norm of the mean difference"""
    failed: Any
    """uint64 (S): step since `begin` and agent of the first parameter that was not finite"""
    overflow: Any
    """int32 (S): a difference was beyond the limit"""
    again: Any
    """int32 (3, domains): this round, the last and the next; some seed's was"""
    extra: Any
    """int32 (S): more room for the round that is run again"""
    size: Any
    """int32 (S, 3): binary exponent of the average's largest entry, this round's, the last one's and the next one's"""
    cuts: Any
    """int64 (S, C + 1): when to hand over the average, and an end that never comes"""
    rows: Any
    """float64 (C, S, d)"""
    own: Any
    """(threads * d): tables, where they lie here"""
    out: Any
    """(threads, d): what a dense rule fills, where that lies here"""
    log: Any
    """uint32 (K, threads): the cells that an agent has written, step by step"""
    keys: Any
    """uint32 (entries * threads): overlays, where they lie here"""
    values: Any


class Place(NamedTuple):
    """Where things begin in a block's shared memory, each in entries of its own type."""

    sums: Any
    """uint32 (slots, 2, d)"""
    tree: Any
    """float64 (2, threads)"""
    most: Any
    """int32 (2)"""
    base: Any
    """(slots, d): the average"""
    own: Any
    """(d, threads): parameters, or (entries, threads): an overlay's values"""
    out: Any
    """(d, threads)"""
    keys: Any
    """uint32 (entries, threads)"""


class Overlay(NamedTuple):
    """The parameters of one agent: the average, but for the cells that it has written."""

    base: Any
    keys: Any
    values: Any
    first_key: Any
    """its first entry; the next ones lie `width` apart, with those of other threads between"""
    first_value: Any
    width: Any
    entries: Any
    """a power of two"""

    def __getitem__(self, cell):  # interpreted; compiled code goes through `_overlay_getitem`
        return overlay_read(self, cell)


@register_jitable
def overlay_find(overlay, cell):
    """The place of `cell`, or the empty one where it would go; and the key that stands there."""
    wanted = np.uint32(cell)
    # The upper bits of the product depend on all of the cell's.
    place = ((np.uint64(wanted) * _HASH) & MASK) >> np.uint64(16) & (overlay.entries - ONE)
    key = overlay.keys[overlay.first_key + place * overlay.width]
    while key != EMPTY and key != wanted:
        place = (place + ONE) & (overlay.entries - ONE)
        key = overlay.keys[overlay.first_key + place * overlay.width]
    return place, key


@register_jitable
def overlay_read(overlay, cell):
    place, key = overlay_find(overlay, cell)
    return overlay.base[cell] if key == EMPTY else overlay.values[overlay.first_value + place * overlay.width]


@overload(operator.getitem)
def _overlay_getitem(overlay, cell):
    if isinstance(overlay, types.NamedTuple) and overlay.instance_class is Overlay and isinstance(cell, types.Integer):
        return lambda overlay, cell: overlay_read(overlay, cell)
    return None


class Column(NamedTuple):
    """The parameters of one agent among those of its block: entry j beside the others' entries j."""

    memory: Any
    first: Any
    width: Any
    shape: Any

    def __getitem__(self, index):
        return self.memory[self.first + np.uint64(index) * self.width]

    def __setitem__(self, index, value):
        self.memory[self.first + np.uint64(index) * self.width] = value


def _is_column(column, index):
    return isinstance(column, types.NamedTuple) and column.instance_class is Column and isinstance(index, types.Integer)


@overload(operator.getitem)
def _column_getitem(column, index):
    return (
        (lambda column, index: column.memory[column.first + np.uint64(index) * column.width])
        if _is_column(column, index)
        else None
    )


@overload(operator.setitem)
def _column_setitem(column, index, value):
    if not _is_column(column, index):
        return None

    def put(column, index, value):
        column.memory[column.first + np.uint64(index) * column.width] = value

    return put


class Stretch(NamedTuple):
    """A round, or the part of it that is run."""

    time: Any
    length: Any
    synced: Any
    row: Any
    """the first cut after its beginning"""
    inside: Any
    """how many cuts lie inside"""
    half: Any


class Sums(NamedTuple):
    """Where a sum of differences is kept."""

    whole: Any
    """uint64 (d)"""
    half: Any
    """uint32: the lower halves from `first` on, and the upper ones `halves` entries behind"""
    first: Any
    halves: Any
    """d, or 0 where the sum is `whole`"""


class Limits(NamedTuple):
    """How differences are rounded in a round."""

    scale: Any
    """2^f"""
    largest: Any
    """2^e: what fits"""


@register_jitable
def whole(value):
    """The nearest whole number."""
    return np.int64(value + 0.5) if value >= 0.0 else np.int64(value - 0.5)


@register_jitable
def add_to(sums, cell, value):
    """Add to a whole number that lies in one piece, or in two halves: shared memory adds only 32 bits at a time."""
    if sums.halves == 0:
        cuda.atomic.add(sums.whole, cell, value)
        return
    low = np.uint32(value & MASK)
    carry = (np.uint64(cuda.atomic.add(sums.half, sums.first + cell, low)) + np.uint64(low)) >> HALF
    high = np.uint32(((value >> HALF) + carry) & MASK)
    cuda.atomic.add(sums.half, sums.first + sums.halves + cell, high)


@register_jitable
def all_finite(params, largest):
    finite = True
    for j in range(params.shape[0]):
        finite &= abs(params[j]) <= largest
    return finite


class Laws(NamedTuple):
    """A plan's `Chain`, packed: a GPU pays for each load, not for its size. All are uint64."""

    policy: Any
    """threshold and alias of each entry, in the lower and the upper half"""
    row: Any
    """first entry and number of entries, likewise"""
    entry: Any
    """threshold, next state and other next state: 32, 16 and 16 bits, or 32 in one word and twice 32 in the next"""
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
    policy, row, first, law = (part.view(np.uint64) for part in (chain.policy, chain.row, chain.first, chain.law))
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
    def transition(laws, mdp, policy, state, action_word, state_word):
        """The action taken in `state`, and where it leads; `mdp` and `policy` are first rows."""
        action = choose_packed(action_word, (policy + state) * laws.num_actions, laws.num_actions, laws.policy)
        row = laws.row[(mdp + state) * laws.num_actions + action]
        product = state_word * (row >> HALF)
        at = (row & MASK) + (product >> HALF)
        if narrow:
            packed = laws.entry[at]
            threshold, outcome, other = packed & MASK, (packed >> HALF) & _SHORT, packed >> np.uint64(48)
        else:
            packed = laws.entry[TWO * at + ONE]
            threshold, outcome, other = laws.entry[TWO * at], packed & MASK, packed >> HALF
        return action, outcome if (product & MASK) < threshold else other

    return cuda.jit(device=True)(transition)


def make_draw_window(transition, window):
    def draw_window(laws, agents, kind, seed, agent, t, states, actions):
        """A window from the stationary law."""
        mdp, policy = np.uint64(agents.mdps[kind]) * laws.num_states, np.uint64(agents.policies[kind]) * laws.num_states
        word, _ = words(seed, agent, t, IID)
        state = choose_packed(word, np.uint64(kind) * laws.num_states, laws.num_states, laws.law)
        states[0] = state
        for l in range(window):
            action_word, state_word = words(seed, agent, t, IID + np.uint64(l) + ONE)
            action, state = transition(laws, mdp, policy, state, action_word, state_word)
            actions[l] = action
            states[l + 1] = state

    return cuda.jit(device=True)(draw_window)


def make_begin(ahead, narrow):
    """The kernel that draws every agent's first window, or the rest of one whose first state is there."""
    transition = make_transition(narrow)

    @cuda.jit
    def begin(job, laws, agents, memory, drawn):
        at = cuda.grid(1)
        for i in range(at, job.num_seeds * job.num_agents, cuda.gridsize(1)):
            which, agent = i // job.num_agents, i % job.num_agents
            seed, states, actions = memory.seeds[which], memory.states, memory.actions
            kind = agents.kinds[agent]
            mdp, policy = np.uint64(agents.mdps[kind]) * laws.num_states, np.uint64(agents.policies[kind]) * laws.num_states
            if drawn:
                word, _ = words(seed, np.uint64(agent), _ZERO, FIRST_STATE)
                states[job.half, which, 0, agent] = choose_packed(word, _ZERO, laws.num_states, laws.first)
            state = np.uint64(states[job.half, which, 0, agent])
            for j in range(ahead - 1):
                action_word, state_word = words(seed, np.uint64(agent), np.uint64(job.begin + j), PATH)
                action, state = transition(laws, mdp, policy, state, action_word, state_word)
                actions[job.half, which, j, agent] = action
                states[job.half, which, j + 1, agent] = state

    return begin


def make_step(form, rule, layout, logged):
    """One step of one agent on its parameters, with the form's own write; whether they stayed finite."""
    rule = cuda.jit(device=True)(rule)

    def cell_step(params, out, path, tables, job, log, k, thread):
        cell, scale = rule(params, path, _ZERO, tables)
        new = params[cell] + job.step_size * scale
        params[cell] = new
        return abs(new) <= job.largest

    def logged_step(params, out, path, tables, job, log, k, thread):
        cell, scale = rule(params, path, _ZERO, tables)
        new = params[cell] + job.step_size * scale
        params[cell] = new
        log[k, thread] = cell
        return abs(new) <= job.largest

    def overlaid_step(params, out, path, tables, job, log, k, thread):
        cell, scale = rule(params, path, _ZERO, tables)
        place, key = overlay_find(params, cell)
        at = params.first_value + place * params.width
        new = (params.base[cell] if key == EMPTY else params.values[at]) + job.step_size * scale
        params.keys[params.first_key + place * params.width] = cell
        params.values[at] = new
        return abs(new) <= job.largest

    def row_step(params, out, path, tables, job, log, k, thread):
        index, scale = rule(params, path, _ZERO, tables)
        factor = job.step_size * scale
        for j in range(params.shape[0]):
            params[j] += factor * tables.rows[index, j]
        return abs(factor) < _CALM or all_finite(params, job.largest)

    def dense_step(params, out, path, tables, job, log, k, thread):
        rule(params, path, _ZERO, tables, out)
        calm = True
        for j in range(params.shape[0]):
            change = job.step_size * out[j]
            params[j] += change
            calm &= abs(change) < _CALM
        return calm or all_finite(params, job.largest)

    one_cell = overlaid_step if layout == "overlay" else logged_step if logged else cell_step
    forms = {"cell": one_cell, "row": row_step, "dense": dense_step}
    return cuda.jit(device=True)(forms[form])


def make_settle(layout, where):
    """What begins a round for an agent, and what adds differences from the average to sums.

    An overlay is its thread's own affair. Whole tables are the block's: all threads of a seed begin all of its tables, and
    each adds up some cells of all tables, so that neighbours read what lies side by side.
    """
    interleaved = where.own

    def forget_whole(params, base):
        for c in range(base.shape[0]):
            params[c] = base[c]

    def forget_overlay(params, base):
        for place in range(params.entries):
            params.keys[params.first_key + place * params.width] = EMPTY

    def begin_whole(job, params, base, tables, slot, lane):
        cuda.syncthreads()
        # Threads beyond the last seed's have no table.
        for c in range(lane if slot < job.slots else job.dim, job.dim, job.lanes):
            value = base[c]
            for i in range(slot * job.lanes, (slot + 1) * job.lanes):
                tables[c * cuda.blockDim.x + i if interleaved else i * job.dim + c] = value
        cuda.syncthreads()

    def add_whole(job, params, base, tables, slot, lane, sums, limits, active):
        cuda.syncthreads()
        square, fits = 0.0, True
        if active:
            for c in range(lane, job.dim, job.lanes):
                mean, total = np.float64(base[c]), np.int64(0)
                for i in range(job.lanes):
                    if interleaved:
                        # Neighbours begin at different agents, whose entries lie in different banks.
                        j = i + lane if i + lane < job.lanes else i + lane - job.lanes
                        at = c * cuda.blockDim.x + slot * job.lanes + j
                    else:
                        at = (slot * job.lanes + i) * job.dim + c
                    change = np.float64(tables[at]) - mean
                    fits &= abs(change) < limits.largest
                    total += whole(change * limits.scale)
                    square += change * change
                if total != 0:
                    add_to(sums, c, np.uint64(total))
        cuda.syncthreads()
        return square, fits

    def begin_overlay(job, params, base, tables, slot, lane):
        for place in range(params.entries):
            params.keys[params.first_key + place * params.width] = EMPTY

    def add_overlay(job, params, base, tables, slot, lane, sums, limits, active):
        square, fits = 0.0, True
        if active:
            for place in range(params.entries):
                cell = params.keys[params.first_key + place * params.width]
                if cell != EMPTY:
                    value = params.values[params.first_value + place * params.width]
                    change = np.float64(value) - np.float64(base[cell])
                    fits &= abs(change) < limits.largest
                    add_to(sums, cell, np.uint64(whole(change * limits.scale)))
                    square += change * change
        return square, fits

    def end_logged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        fits, thread = True, cuda.grid(1)
        if active:
            for k in range(length):
                cell = log[k, thread]
                mean = base[cell]
                change = np.float64(params[cell]) - np.float64(mean)
                # A cell that was met before has been put back.
                if change != 0.0:
                    params[cell] = mean
                    fits &= abs(change) < limits.largest
                    add_to(sums, cell, np.uint64(whole(change * limits.scale)))
        return fits

    add = cuda.jit(device=True)(add_overlay if layout == "overlay" else add_whole)

    def end_unlogged(job, params, base, tables, slot, lane, sums, limits, active, log, length):
        return add(job, params, base, tables, slot, lane, sums, limits, active)[1]

    overlaid, dense = (forget_overlay, begin_overlay), (forget_whole, begin_whole)
    pair = overlaid if layout == "overlay" else dense
    rest = (*pair, end_logged if where.logged else end_unlogged)
    return (add, *(cuda.jit(device=True)(function) for function in rest))


def make_fix(given, name, real):
    """A device function that makes a NamedTuple fit for the inner loop.

    Its small whole numbers become constants, so that loops unroll, and of its small arrays each block makes a copy in shared
    memory, where threads that read different entries do not wait for each other.
    """
    space = {"made": type(given), "cuda": cuda}
    lines, fields = ["def fix(given):"], []
    for field, value in given._asdict().items():
        fields.append(field)
        if is_small(value):
            space[field] = value
        elif is_kept(value):
            space[f"{field}_shape"] = value.shape
            space[f"{field}_type"] = real if value.dtype.kind == "f" else from_dtype(value.dtype)
            strides = np.cumprod((1, *value.shape[:0:-1]))[::-1]
            at = ", ".join(f"i // {stride} % {size}" for stride, size in zip(strides, value.shape, strict=True))
            lines += [
                f"    {field} = cuda.shared.array({field}_shape, {field}_type)",
                f"    for i in range(cuda.threadIdx.x, {value.size}, cuda.blockDim.x):",
                f"        {field}[{at}] = given.{field}[{at}]",
            ]
        else:
            fields[-1] = f"given.{field}"
    lines += ["    cuda.syncthreads()", f"    return made({', '.join(fields)})"]
    # Numba builds a NamedTuple only from arguments that are written out.
    exec(compile("\n".join(lines), f"<{name}>", "exec"), space)
    return cuda.jit(device=True, inline="always")(space["fix"])


def is_small(value):
    return isinstance(value, np.integer) and value <= _UNROLLED


def is_kept(value):
    return isinstance(value, np.ndarray) and 0 < value.nbytes <= _KEPT_BYTES


def make_walk(step, window, iid, narrow):
    """An agent's steps up to a time, with its path."""
    ahead = max(window, 1)
    transition = make_transition(narrow)
    draw_window = make_draw_window(transition, window)

    @cuda.jit(device=True)
    def walk(job, laws, agents, tables, params, out, states, actions, kind, seed, agent, time, stop, log, origin):
        """The steps time..stop-1; the time after the last that left the parameters finite."""
        path = Path(states, actions, kind, agents.mdps[kind], agents.policies[kind])
        mdp, policy = np.uint64(path.mdp) * laws.num_states, np.uint64(path.policy) * laws.num_states
        key_0, key_1, who, thread = seed & MASK, seed >> HALF, np.uint64(agent), cuda.grid(1)
        w0, w1, w2, w3 = _ZERO, _ZERO, _ZERO, _ZERO
        for t in range(time, stop):
            if iid:
                draw_window(laws, agents, kind, seed, who, np.uint64(t), states, actions)
            else:
                tau = np.uint64(t + ahead - 1)
                odd = tau & ONE
                if t == time or odd == _ZERO:
                    pair = tau >> ONE
                    w0, w1, w2, w3 = philox(pair & MASK, pair >> HALF, who, PATH, key_0, key_1)
                action_word, state_word = (w2, w3) if odd == ONE else (w0, w1)
                state = np.uint64(states[ahead - 1])
                action, state = transition(laws, mdp, policy, state, action_word, state_word)
                actions[ahead - 1] = action
                states[ahead] = state
            if not step(params, out, path, tables, job, log, t - origin, thread):
                return t
            if not iid:
                for j in range(ahead):
                    states[j] = states[j + 1]
                for j in range(ahead - 1):
                    actions[j] = actions[j + 1]
        return stop

    return walk


class Where(NamedTuple):
    """What lies where; fixed when the kernel is compiled."""

    sums: bool
    base: bool
    own: bool
    """whether these are in a block's shared memory"""
    entries: int
    """of an overlay"""
    logged: bool
    """a log says which cells an agent has written, so that its table is put back without looking at all of it"""


def make_views(layout, form, real, where, entries):
    """The tables of a block's agents, one agent's parameters, and what a dense rule fills."""

    def shared_tables(job, place, memory):
        return cuda.shared.array(0, real)[place.own : place.own + job.dim * cuda.blockDim.x]

    def global_tables(job, place, memory):
        size = job.dim * cuda.blockDim.x
        return memory.own[cuda.blockIdx.x * size : (cuda.blockIdx.x + 1) * size]

    def no_tables(job, place, memory):
        return memory.own

    def shared_params(job, place, memory, base, tables):
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        return Column(cuda.shared.array(0, real), np.uint64(place.own) + at, width, (job.dim,))

    def global_params(job, place, memory, base, tables):
        return tables[cuda.threadIdx.x * job.dim : (cuda.threadIdx.x + 1) * job.dim]

    def shared_overlay(job, place, memory, base, tables):
        keys, values = cuda.shared.array(0, types.uint32), cuda.shared.array(0, real)
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        first_key, first_value = np.uint64(place.keys) + at, np.uint64(place.own) + at
        return Overlay(base, keys, values, first_key, first_value, width, entries)

    def global_overlay(job, place, memory, base, tables):
        at, width = np.uint64(cuda.grid(1)), np.uint64(cuda.gridsize(1))
        return Overlay(base, memory.keys, memory.values, at, at, width, entries)

    def shared_out(job, place, memory):
        at, width = np.uint64(cuda.threadIdx.x), np.uint64(cuda.blockDim.x)
        return Column(cuda.shared.array(0, real), np.uint64(place.out) + at, width, (job.dim,))

    def global_out(job, place, memory):
        return memory.out[cuda.grid(1)]

    def no_out(job, place, memory):
        return memory.out[0]

    if layout == "overlay":
        tables, params = no_tables, shared_overlay if where.own else global_overlay
    else:
        tables, params = (shared_tables, shared_params) if where.own else (global_tables, global_params)
    out = (shared_out if where.own else global_out) if form == "dense" else no_out
    # Inlined by Numba itself: a device function may not return an array.
    return tuple(cuda.jit(device=True, inline="always")(function) for function in (tables, params, out))


def make_advance(plan, rule, layout, real, iid):
    """The loop over rounds for several agents, or for one, which never averages."""
    form, window, where, together = plan.form, plan.window, layout.where, layout.together
    ahead = max(window, 1)
    window_size = ahead + 1
    fix_laws, fix_tables = make_fix(pack(plan.chain), "laws", real), make_fix(plan.tables, "tables", real)
    shared_sums, shared_base = where.sums, where.base
    walk = make_walk(make_step(form, rule, layout.name, where.logged), window, iid, is_narrow(plan.chain))
    add, forget, begin, end = make_settle(layout.name, where)
    logged = where.logged
    view_tables, view_params, view_out = make_views(layout.name, form, real, where, np.uint64(where.entries))

    @cuda.jit(device=True)
    def load(memory, which, agent, half, states, actions):
        if not iid:
            for j in range(ahead):
                states[j] = memory.states[half, which, j, agent]
            for j in range(ahead - 1):
                actions[j] = memory.actions[half, which, j, agent]

    @cuda.jit(device=True)
    def carry(memory, which, agent, half, states, actions):
        if not iid:
            for j in range(ahead):
                memory.states[half, which, j, agent] = states[j]
            for j in range(ahead - 1):
                memory.actions[half, which, j, agent] = actions[j]

    @cuda.jit(device=True)
    def report_failure(job, memory, which, agent, time):
        cuda.atomic.min(memory.failed, which, (np.uint64(time - job.begin) << HALF) | np.uint64(agent))

    @cuda.jit(device=True)
    def run_agents(job, laws, agents, tables, memory, params, base, own, out, sums, limits, which, rank, slot, lane, alive,
                   most, stretch):  # fmt: skip
        """A round of this thread's agents, one after the other: steps, cuts, differences. Whether all differences fit.

        All threads of a block go through it together; one without an agent only takes part.
        """
        states, actions = cuda.local.array(window_size, types.uint32), cuda.local.array(ahead, types.uint32)
        thread, seed = cuda.grid(1), memory.seeds[which]
        every_fits = True
        for first in range(rank * job.lanes, job.num_agents, job.blocks * job.lanes):
            agent = first + lane
            running = alive and agent < job.num_agents
            agent = agent if running else 0
            if running:
                load(memory, which, agent, stretch.half, states, actions)
            if not logged or first == rank * job.lanes:
                begin(job, params, base, own, slot, lane)
            kind, now = agents.kinds[agent], stretch.time
            for j in range(most + 1):
                at_cut, at_end = alive and j < stretch.inside, alive and j == most
                stop = now
                if at_cut:
                    stop = memory.cuts[which, stretch.row + j]
                elif at_end:
                    stop = stretch.time + stretch.length
                if running:
                    now = walk(
                        job, laws, agents, tables, params, out, states, actions, kind, seed, agent, now, stop, memory.log,
                        stretch.time,
                    )  # fmt: skip
                    if now < stop:
                        report_failure(job, memory, which, agent, now + 1)
                        forget(params, base)
                        running = False
                if j < most:
                    at_once = Sums(memory.totals[which, 1 + j if at_cut else 0], sums.half, sums.first, _ZERO)
                    square, fits = add(job, params, base, own, slot, lane, at_once, limits, at_cut)
                    if at_cut:
                        memory.squares[j, thread] += square
                else:
                    # A logged table is put back also where a round is broken off.
                    ended = running if logged else at_end and stretch.synced
                    fits = end(job, params, base, own, slot, lane, sums, limits, ended, memory.log, stretch.length)
                every_fits = every_fits and fits
            if running and stretch.synced:
                carry(memory, which, agent, 1 - stretch.half, states, actions)
        return every_fits

    @cuda.jit(device=True)
    def block_sum(job, tree, slot, lane, value):
        """The sum over a seed's lanes of this block, in a fixed order; for lane 0."""
        at = cuda.threadIdx.x
        tree[at] = value
        cuda.syncthreads()
        total = 0.0
        if lane % 32 == 0 and slot < job.slots:
            for i in range(lane, min(lane + 32, job.lanes)):
                total += tree[slot * job.lanes + i]
        cuda.syncthreads()
        tree[at] = total
        cuda.syncthreads()
        total = 0.0
        if lane == 0 and slot < job.slots:
            for i in range(0, job.lanes, 32):
                total += tree[slot * job.lanes + i]
        cuda.syncthreads()
        return total

    @cuda.jit(device=True)
    def record_cuts(job, memory, place, stretch, which, rank, slot, lane, alive, most, scale):
        """Averages at the cuts, and this block's share of what the sync errors are made of."""
        tree = cuda.shared.array(0, types.float64)[place.tree : place.tree + cuda.blockDim.x]
        thread, members = cuda.grid(1), job.blocks * job.lanes
        for j in range(most):
            apart, square = 0.0, 0.0
            if alive and j < stretch.inside:
                square = memory.squares[j, thread]
                for c in range(rank * job.lanes + lane, job.dim, members):
                    change = np.float64(np.int64(memory.totals[which, 1 + j, c])) * scale
                    memory.rows[stretch.row + j, which, c] = memory.average[which, c] + change
                    apart += change * change
            square, apart = block_sum(job, tree, slot, lane, square), block_sum(job, tree, slot, lane, apart)
            if alive and j < stretch.inside and lane == 0:
                memory.parts[stretch.row + j, which, rank, 0] = square
                memory.parts[stretch.row + j, which, rank, 1] = apart

    @cuda.jit(device=True)
    def renew_average(job, memory, stretch, which, member, scale):
        """Apply the round's mean difference; the binary exponent of the largest entry that this thread saw."""
        top = 0.0
        recorded = memory.cuts[which, stretch.row + stretch.inside] == stretch.time + stretch.length
        for c in range(member, job.dim, job.blocks * job.lanes):
            change = np.float64(np.int64(memory.totals[which, 0, c])) * scale
            new = memory.average[which, c] + change
            memory.average[which, c] = new
            memory.rounded[which, c] = new
            if recorded:
                memory.rows[stretch.row + stretch.inside, which, c] = new
            top = max(top, abs(new))
        return max(math.frexp(top)[1], 0)

    @cuda.jit(device=True)
    def clear_totals(job, memory, stretch, which, member):
        for j in range(stretch.inside + 1):
            for c in range(member, job.dim, job.blocks * job.lanes):
                memory.totals[which, j, c] = _ZERO

    @cuda.jit(device=True)
    def meet():
        if together:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()

    def advance(job, given_laws, agents, given_tables, memory, place):
        """Rounds from `begin`, a synchronisation, to `stop`. One broken off by `stop` leaves the average as it was."""
        laws, tables = fix_laws(given_laws), fix_tables(given_tables)
        thread, rank = cuda.grid(1), cuda.blockIdx.x % job.blocks
        slot, lane = cuda.threadIdx.x // job.lanes, cuda.threadIdx.x % job.lanes
        which = cuda.blockIdx.x // job.blocks * job.slots + slot
        present = slot < job.slots and which < job.num_seeds
        which = which if present else 0
        member = rank * job.lanes + lane
        domain = 0 if together else cuda.blockIdx.x

        at = min(slot, job.slots - 1) * job.dim
        halves, base = cuda.shared.array(0, types.uint32), memory.rounded[which]
        sums = Sums(memory.totals[which, 0], halves, np.uint64(place.sums + 2 * at), np.uint64(job.dim if shared_sums else 0))
        if shared_base:
            base = cuda.shared.array(0, real)[place.base + at : place.base + at + job.dim]
        most = cuda.shared.array(0, types.int32)[place.most : place.most + 2]
        own = view_tables(job, place, memory)
        params, out = view_params(job, place, memory, base, own), view_out(job, place, memory)

        time, half, row, turn = job.begin, job.half, 0, 0
        while time < job.stop:
            length = min(job.sync_period, job.stop - time)
            synced = length == job.sync_period
            alive = present and np.int64(memory.failed[which] >> HALF) > time - job.begin
            inside = 0
            while alive and memory.cuts[which, row + inside] < time + length + (0 if synced else 1):
                memory.squares[inside, thread] = 0.0
                inside += 1
            stretch = Stretch(time, length, synced, row, inside, half)
            if cuda.threadIdx.x == 0:
                most[0] = 0
            if present:
                for c in range(lane, job.dim, job.lanes):
                    if shared_sums:
                        halves[sums.first + np.uint64(c)] = 0
                        halves[sums.first + np.uint64(job.dim + c)] = 0
                    if shared_base:
                        base[c] = memory.rounded[which, c]
            exponent = memory.size[which, turn % 3] + ROOM + memory.extra[which]
            limits = Limits(math.ldexp(1.0, int(job.fraction - exponent)), math.ldexp(1.0, int(exponent)))
            cuda.syncthreads()
            if inside > most[0]:
                cuda.atomic.max(most, 0, np.int32(inside))
            cuda.syncthreads()
            if not run_agents(
                job, laws, agents, tables, memory, params, base, own, out, sums, limits, which, rank, slot, lane, alive,
                most[0], stretch,
            ):  # fmt: skip
                memory.overflow[which] = 1
                memory.again[turn % 3, domain] = 1
            if shared_sums:
                cuda.syncthreads()
                if alive and synced:
                    for c in range(lane, job.dim, job.lanes):
                        low, high = halves[sums.first + np.uint64(c)], halves[sums.first + np.uint64(job.dim + c)]
                        if low != 0 or high != 0:
                            cuda.atomic.add(memory.totals, (which, 0, c), np.uint64(low) | (np.uint64(high) << HALF))
            meet()

            repeat = memory.again[turn % 3, domain] != 0
            scale = math.ldexp(1.0, int(exponent - job.fraction)) / job.num_agents
            if not repeat and most[0] > 0:
                record_cuts(job, memory, place, stretch, which, rank, slot, lane, alive, most[0], scale)
            if alive and synced and not repeat:
                top = renew_average(job, memory, stretch, which, member, scale)
                if top > memory.size[which, (turn + 1) % 3]:
                    cuda.atomic.max(memory.size, (which, (turn + 1) % 3), np.int32(top))
            if alive:
                clear_totals(job, memory, stretch, which, member)
            if present and member == 0:
                if repeat:
                    memory.size[which, (turn + 1) % 3] = memory.size[which, turn % 3]
                    memory.extra[which] += MORE_ROOM * memory.overflow[which]
                else:
                    memory.extra[which] = 0
                memory.overflow[which] = 0
                memory.size[which, (turn + 2) % 3] = 0
            if rank == 0 and cuda.threadIdx.x == 0:
                memory.again[(turn + 2) % 3, domain] = 0
            if not repeat:
                row += inside
                time += length
                if alive and synced and memory.cuts[which, row] == time:
                    row += 1
                if synced:
                    half = 1 - half
            turn += 1
            meet()

        if present and member == 0:
            last = memory.size[which, turn % 3]
            memory.size[which, 1] = 0
            memory.size[which, 2] = 0
            memory.size[which, 0] = last

    def advance_alone(job, given_laws, agents, given_tables, memory, place):
        """One agent a seed: its steps go from `begin` to `stop` and stay."""
        laws, tables = fix_laws(given_laws), fix_tables(given_tables)
        which = cuda.grid(1)
        if which >= job.num_seeds or memory.failed[which] == _ZERO:
            return
        base, own = memory.rounded[which], view_tables(job, place, memory)
        params, out = view_params(job, place, memory, base, own), view_out(job, place, memory)
        states, actions = cuda.local.array(window_size, types.uint32), cuda.local.array(ahead, types.uint32)
        load(memory, which, 0, job.half, states, actions)
        forget(params, base)
        kind, seed = agents.kinds[0], memory.seeds[which]
        now, row = job.begin, 0
        while now < job.stop:
            stop = min(memory.cuts[which, row], job.stop)
            reached = walk(
                job, laws, agents, tables, params, out, states, actions, kind, seed, 0, now, stop, memory.log, job.begin
            )  # fmt: skip
            if reached < stop:
                report_failure(job, memory, which, 0, reached + 1)
                return
            now = stop
            if memory.cuts[which, row] == now:
                for c in range(job.dim):
                    memory.rows[row, which, c] = params[c]
                row += 1
        carry(memory, which, 0, job.half, states, actions)
        for c in range(job.dim):
            memory.average[which, c] = params[c]
            memory.rounded[which, c] = params[c]

    return compile_kernel(advance_alone if plan.num_agents == 1 else advance, layout.registers)
