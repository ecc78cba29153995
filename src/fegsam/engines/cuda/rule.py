"""What a kernel takes from the rule and the problem when it is compiled: small numbers, copies of
small arrays, and the step.

A kernel is made for one rule, so its constants unroll its loops, and each form has a step with its
own write.
"""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.extending import register_jitable
from numba.np.numpy_support import from_dtype

from fegsam.engines.cuda.instructions import inlined
from fegsam.engines.cuda.memory import KernelProblem
from fegsam.engines.cuda.params import EMPTY, overlay_find
from fegsam.engines.cuda.paths import pack

_ZERO = np.uint64(0)
_UNROLLED = 32
"""Whole numbers up to this are compiled in."""
_COPY = 1 << 13
"""Bytes of an array that each block copies into shared memory, at most."""
_COPIES = 40 * 1024
"""Bytes of all copies of a block, at most; the compiler allows 48 KB of arrays of fixed size."""
CALM = 1e20
"""Increments below this cannot make a finite parameter non-finite, in either precision."""


def copies(job):
    """The arrays that each block copies into shared memory, with their bytes."""
    groups = {"chain": pack(job.chain), "tables": job.tables}
    arrays = {
        (name, field): value.nbytes
        for name, group in groups.items()
        for field, value in group._asdict().items()
        if isinstance(value, np.ndarray) and 0 < value.nbytes <= _COPY
    }
    total, found = 0, {}
    for key in sorted(arrays, key=lambda key: (arrays[key], key)):
        total += arrays[key]
        if total <= _COPIES:
            found[key] = arrays[key]
    return found


def make_fix(given, name, real, copied):
    """A device function that prepares a NamedTuple for the inner loop.

    Its small whole numbers become constants, so that loops unroll. Each block copies some of its
    arrays into shared memory, where threads that read different entries do not wait for each other.
    """
    space = {"made": type(given), "cuda": cuda}
    lines, fields = ["def fix(given):"], []
    for field, value in given._asdict().items():
        fields.append(field)
        if is_small(value):
            space[field] = value
        elif (name, field) in copied:
            space[f"{field}_shape"] = value.shape
            space[f"{field}_type"] = real if value.dtype.kind == "f" else from_dtype(value.dtype)
            strides = np.cumprod((1, *value.shape[:0:-1]))[::-1]
            at = ", ".join(
                f"i // {stride} % {size}" for stride, size in zip(strides, value.shape, strict=True)
            )
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
    return inlined(space["fix"])


def make_fix_problem(job, real, copied):
    """The same for a whole problem."""
    fix_chain = make_fix(pack(job.chain), "chain", real, copied)
    fix_tables = make_fix(job.tables, "tables", real, copied)

    @inlined
    def fix_problem(chain, agents, tables):
        return KernelProblem(fix_chain(chain), agents, fix_tables(tables))

    return fix_problem


def is_small(value):
    return isinstance(value, np.integer) and value <= _UNROLLED


@register_jitable
def all_finite(params, largest):
    finite = True
    for j in range(params.shape[0]):
        finite &= abs(params[j]) <= largest
    return finite


def make_step(spec, rule):
    """One step of one agent on its parameters, with the form's own write; it returns whether they
    stayed finite."""
    rule = cuda.jit(device=True)(rule)
    if spec.form == "row":
        step = _make_row_step(rule)
    elif spec.form == "dense":
        step = _make_dense_step(rule)
    elif spec.layout == "overlay":
        step = _make_overlaid_step(rule)
    else:
        step = _make_logged_step(rule) if spec.where.logged else _make_cell_step(rule)
    return cuda.jit(device=True)(step)


def _make_cell_step(rule):
    def cell_step(launch, view, path, tables, entry):
        params = view.params
        cell, scale = rule(params, path, _ZERO, tables)
        new = params[cell] + launch.step_size * scale
        params[cell] = new
        return abs(new) <= launch.largest

    return cell_step


def _make_logged_step(rule):
    def logged_step(launch, view, path, tables, entry):
        params = view.params
        cell, scale = rule(params, path, _ZERO, tables)
        at = params.first + np.uint64(cell) * params.width
        mean, change = params.base[cell], params.memory[at] + launch.step_size * scale
        params.memory[at] = change
        view.log.cells[entry] = cell
        return abs(mean + change) <= launch.largest

    return logged_step


def _make_overlaid_step(rule):
    def overlaid_step(launch, view, path, tables, entry):
        params = view.params
        cell, scale = rule(params, path, _ZERO, tables)
        place, key = overlay_find(params, cell)
        at = params.first_value + place * params.width
        new = (params.base[cell] if key == EMPTY else params.values[at]) + launch.step_size * scale
        params.keys[params.first_key + place * params.width] = cell
        params.values[at] = new
        return abs(new) <= launch.largest

    return overlaid_step


def _make_row_step(rule):
    def row_step(launch, view, path, tables, entry):
        params = view.params
        index, scale = rule(params, path, _ZERO, tables)
        factor = launch.step_size * scale
        for j in range(params.shape[0]):
            params[j] += factor * tables.rows[index, j]
        return abs(factor) < CALM or all_finite(params, launch.largest)

    return row_step


def _make_dense_step(rule):
    def dense_step(launch, view, path, tables, entry):
        params, out = view.params, view.out
        rule(params, path, _ZERO, tables, out)
        calm = True
        for j in range(params.shape[0]):
            change = launch.step_size * out[j]
            params[j] += change
            calm &= abs(change) < CALM
        return calm or all_finite(params, launch.largest)

    return dense_step
