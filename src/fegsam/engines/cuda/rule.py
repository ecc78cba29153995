"""What of a rule and its problem is compiled into a kernel: small numbers, copies of small arrays,
and the step.

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

from fegsam.engines.cuda.params import EMPTY, overlay_find
from fegsam.engines.cuda.paths import pack

_ZERO = np.uint64(0)
_UNROLLED = 32
_COPY = 1 << 13
"""Bytes of an array that each block keeps a copy of in shared memory."""
_COPIES = 40 * 1024
"""Bytes of all copies of a block; the compiler allows 48 KB of what has a fixed size."""
_CALM = 1e20
"""Increments below this cannot take a finite parameter out of the finite numbers, in either
precision."""


def copies(plan):
    """Of which arrays each block makes copies, with their bytes."""
    groups = {"laws": pack(plan.chain), "tables": plan.tables}
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
    """A device function that makes a NamedTuple fit for the inner loop.

    Its small whole numbers become constants, so that loops unroll, and of some of its arrays each
    block makes a copy in shared memory, where threads that read different entries do not wait for
    each other.
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
    return cuda.jit(device=True, inline="always")(space["fix"])


def is_small(value):
    return isinstance(value, np.integer) and value <= _UNROLLED


@register_jitable
def all_finite(params, largest):
    finite = True
    for j in range(params.shape[0]):
        finite &= abs(params[j]) <= largest
    return finite


def make_step(form, rule, layout, logged):
    """One step of one agent on its parameters, with the form's own write; whether they stayed
    finite."""
    rule = cuda.jit(device=True)(rule)

    def cell_step(params, out, path, tables, job, log, entry):
        cell, scale = rule(params, path, _ZERO, tables)
        new = params[cell] + job.step_size * scale
        params[cell] = new
        return abs(new) <= job.largest

    def logged_step(params, out, path, tables, job, log, entry):
        cell, scale = rule(params, path, _ZERO, tables)
        at = params.first + np.uint64(cell) * params.width
        mean, change = params.base[cell], params.memory[at] + job.step_size * scale
        params.memory[at] = change
        log[entry] = cell
        return abs(mean + change) <= job.largest

    def overlaid_step(params, out, path, tables, job, log, entry):
        cell, scale = rule(params, path, _ZERO, tables)
        place, key = overlay_find(params, cell)
        at = params.first_value + place * params.width
        new = (params.base[cell] if key == EMPTY else params.values[at]) + job.step_size * scale
        params.keys[params.first_key + place * params.width] = cell
        params.values[at] = new
        return abs(new) <= job.largest

    def row_step(params, out, path, tables, job, log, entry):
        index, scale = rule(params, path, _ZERO, tables)
        factor = job.step_size * scale
        for j in range(params.shape[0]):
            params[j] += factor * tables.rows[index, j]
        return abs(factor) < _CALM or all_finite(params, job.largest)

    def dense_step(params, out, path, tables, job, log, entry):
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
