# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103 -- kernels and launchers share the description of the file
"""Per-token INT8 quantisation, SiLU-and-mul, and both in one: a program per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from kernels.triton_kernels.numerics import int8_scales, round_half_even, silu_and_mul_bf16

if TYPE_CHECKING:
    import torch


@triton.jit
def quant_kernel(x, q, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    value = tl.load(x + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    inverse, step = int8_scales(tl.max(tl.abs(value), axis=0, keep_dims=True))
    quantized = round_half_even(value * inverse).to(tl.int8)
    tl.store(q + row * WIDTH + column, quantized, mask=inside)
    tl.store(scale + row + tl.arange(0, 1), step)


@triton.jit
def silu_and_mul_kernel(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0)
    product = silu_and_mul_bf16(gate, up)
    tl.store(out + row * WIDTH + column, product, mask=inside)


@triton.jit
def silu_mul_quant_kernel(gate_up, q, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0)
    value = silu_and_mul_bf16(gate, up).to(tl.float32)
    inverse, step = int8_scales(tl.max(tl.abs(value), axis=0, keep_dims=True))
    quantized = round_half_even(value * inverse).to(tl.int8)
    tl.store(q + row * WIDTH + column, quantized, mask=inside)
    tl.store(scale + row + tl.arange(0, 1), step)


def launch_quant(x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, *, num_warps: int) -> None:
    """BF16 x [rows, d] -> INT8 q [rows, d], float32 scale [rows, 1]; all contiguous."""
    rows, width = x.shape
    quant_kernel[(rows,)](x, q, scale, width, triton.next_power_of_2(width), num_warps=num_warps)


def launch_silu_and_mul(gate_up: torch.Tensor, out: torch.Tensor, *, num_warps: int) -> None:
    """BF16 [rows, 2 d] -> BF16 [rows, d]."""
    rows, width = out.shape
    silu_and_mul_kernel[(rows,)](
        gate_up, out, width, triton.next_power_of_2(width), num_warps=num_warps
    )


def launch_silu_mul_quant(
    gate_up: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, *, num_warps: int
) -> None:
    """BF16 [rows, 2 d] -> INT8 [rows, d], float32 scale [rows, 1]."""
    rows, width = q.shape
    silu_mul_quant_kernel[(rows,)](
        gate_up, q, scale, width, triton.next_power_of_2(width), num_warps=num_warps
    )
