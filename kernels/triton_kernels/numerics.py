# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103, SIM108 -- kernels and launchers share the description of the file
"""Arithmetic that must round exactly as eager torch does, shared by the kernels.

Triton's own `exp` and `/` are approximations on CUDA; the accepted path uses the accurate ones,
so these kernels ask for them by name (`libdevice`). Triton's interpreter, which runs the same
kernels on a CPU, has no libdevice and no assembler: there `ON_DEVICE` is off and arithmetic with
the same roundings stands in.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl
from triton.language.extra import libdevice

ON_DEVICE = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1")


@triton.jit
def to_bf16(x):
    """float32 to the nearest BF16, ties to even; finite values only under the interpreter."""
    if ON_DEVICE:
        return x.to(tl.bfloat16)
    # The interpreter's own conversion cuts the low half off, so round it up first.
    pattern = x.to(tl.int32, bitcast=True)
    rounded = pattern + 0x7FFF + ((pattern >> 16) & 1)
    return (rounded & -65536).to(tl.float32, bitcast=True).to(tl.bfloat16)


@triton.jit
def silu_and_mul_bf16(gate, up):
    """silu(gate) rounded to BF16, times up, rounded to BF16."""
    wide = gate.to(tl.float32)
    if ON_DEVICE:
        decay = libdevice.exp(-wide)
    else:
        decay = tl.exp(-wide)
    activated = to_bf16(tl.math.div_rn(wide, 1.0 + decay))
    return to_bf16(activated.to(tl.float32) * up.to(tl.float32))


@triton.jit
def round_half_even(x):
    if ON_DEVICE:
        return libdevice.rint(x)
    # Adding and taking away 1.5 * 2**23 leaves a float32 rounded to an integer, ties to even.
    return (x + 12582912.0) - 12582912.0


@triton.jit
def int8_scales(absmax):
    """(127 / absmax, absmax / 127), both divisions correctly rounded; absmax has a lower limit."""
    limited = tl.maximum(absmax, 1e-10)
    limit = tl.full(limited.shape, 127.0, tl.float32)
    return tl.math.div_rn(limit, limited), tl.math.div_rn(limited, limit)


@triton.jit
def dp4a(left, right):
    """Per int32 lane: the sum of four INT8 products, by CUDA's instruction of that name."""
    if ON_DEVICE:
        return tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, 0;", "=r,r,r", [left, right], tl.int32, is_pure=True, pack=1
        )
    total = tl.zeros_like(left)
    for byte in tl.static_range(4):
        total += ((left << (24 - 8 * byte)) >> 24) * ((right << (24 - 8 * byte)) >> 24)
    return total
