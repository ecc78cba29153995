"""GPU instructions that Numba does not offer, and their stand-ins in its simulator."""

# What Numba compiles for a GPU, its type stubs do not describe.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalCall=false, reportIndexIssue=false
# pyright: reportAssignmentType=false, reportRedeclaration=false

from __future__ import annotations

import threading

import numpy as np
from numba import cuda, types
from numba.core import config


def inlined(function):
    """A device function that Numba inlines itself, so that it may return arrays: a part of one
    other function."""
    return cuda.jit(device=True, inline="always")(function)


if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]

    def load_acquire(counts, index):
        """A count as it is now; writes before its release are visible after this load."""
        return counts[index]

    @cuda.jit(device=True)
    def add_release(counts, index, value):
        """Add to a count; earlier writes are visible to a thread that acquires it."""
        cuda.atomic.add(counts, index, value)

    _adding = threading.Lock()

    def add_relaxed(counts, index, value):
        """Add without waiting for the result."""
        with _adding, np.errstate(over="ignore"):
            counts[index] += value

    def opaque(number):
        """The same 64-bit number, but the compiler knows nothing of its value.

        So it cannot compute anything from it before the surrounding loop, which would occupy a
        register during the whole loop.
        """
        return number

else:
    from llvmlite import ir
    from numba.cuda.extending import intrinsic

    _WORD = ir.IntType(64)
    _PLACE = _WORD.as_pointer()

    def _is_counter(counts):
        return isinstance(counts, types.Array) and (counts.dtype, counts.ndim, counts.layout) == (
            types.uint64,
            1,
            "C",
        )

    def _place(context, builder, signature, args):
        counts = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.gep(
            counts.data, [context.cast(builder, args[1], signature.args[1], types.int64)]
        )

    # Numba's fences wait for more than these do, the compiler hoists its uncached loads out of
    # waiting loops, and its atomics wait for the old value.
    @intrinsic
    def load_acquire(typingctx, counts, index):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(_WORD, [_PLACE])
            load = ir.InlineAsm(kind, "ld.acquire.gpu.global.u64 $0, [$1];", "=l,l,~{memory}", True)
            return builder.call(load, [_place(context, builder, signature, args)])

        return (types.uint64(counts, index), codegen) if _is_counter(counts) else None

    def _make_add(order):
        @intrinsic
        def add(typingctx, counts, index, value):
            def codegen(context, builder, signature, args):
                kind = ir.FunctionType(ir.VoidType(), [_PLACE, _WORD])
                instruction = ir.InlineAsm(
                    kind, f"red.{order}.gpu.global.add.u64 [$0], $1;", "l,l,~{memory}", True
                )
                builder.call(instruction, [_place(context, builder, signature, args), args[2]])
                return context.get_dummy_value()

            return (
                (types.none(counts, index, types.uint64), codegen) if _is_counter(counts) else None
            )

        return add

    @intrinsic
    def opaque(typingctx, number):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(_WORD, [_WORD])
            return builder.call(ir.InlineAsm(kind, "mov.u64 $0, $1;", "=l,l", True), [args[0]])

        return (
            (number(number), codegen)
            if isinstance(number, types.Integer) and number.bitwidth == 64
            else None
        )

    add_release, add_relaxed = _make_add("release"), _make_add("relaxed")
