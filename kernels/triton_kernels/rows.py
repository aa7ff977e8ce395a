# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103, SIM108 -- kernels and launchers share the description of the file
"""Row-wise kernels: RMSNorm, and the weighted sum of expert rows plus the shared expert's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from kernels.triton_kernels.numerics import to_bf16

if TYPE_CHECKING:
    import torch


@triton.jit
def rms_norm_kernel(x, weight, y, epsilon, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < HIDDEN
    value = tl.load(x + row * HIDDEN + column, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    mean_square = tl.sum(value * value, axis=0) / HIDDEN
    normal = to_bf16(value * tl.rsqrt(mean_square + epsilon)).to(tl.float32)
    tl.store(y + row * HIDDEN + column, to_bf16(normal * gain), mask=inside)


def launch_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, epsilon: float, *, num_warps: int
) -> None:
    rows, hidden = x.shape
    rms_norm_kernel[(rows,)](
        x, weight, y, epsilon, hidden, triton.next_power_of_2(hidden), num_warps=num_warps
    )


@triton.jit
def combine_kernel(
    y, weight, position, shared, out, HIDDEN: tl.constexpr, TOP_K: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < HIDDEN
    total = tl.zeros((BLOCK,), tl.float32)
    for route in tl.static_range(TOP_K):
        place = tl.load(position + token * TOP_K + route)
        share = tl.load(weight + token * TOP_K + route)
        row = tl.load(y + place * HIDDEN + column, mask=inside, other=0.0).to(tl.float32)
        if route == 0:
            total = row * share
        else:
            total = total + row * share
    routed = to_bf16(total).to(tl.float32)
    added = routed + tl.load(shared + token * HIDDEN + column, mask=inside, other=0.0)
    tl.store(out + token * HIDDEN + column, to_bf16(added), mask=inside)


def launch_combine(
    y: torch.Tensor,
    weight: torch.Tensor,
    position: torch.Tensor,
    shared: torch.Tensor,
    out: torch.Tensor,
    *,
    block: int,
    num_warps: int,
) -> None:
    """Fused multiply-add stays off: the accepted path rounds each product before adding it."""
    tokens, top_k = position.shape
    hidden = shared.shape[1]
    combine_kernel[(tokens, triton.cdiv(hidden, block))](
        y,
        weight,
        position,
        shared,
        out,
        hidden,
        top_k,
        block,
        num_warps=num_warps,
        enable_fp_fusion=False,
    )
