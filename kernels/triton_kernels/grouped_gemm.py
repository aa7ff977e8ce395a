# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103 -- kernels and launchers share the description of the file
"""W8A8 grouped GEMM with offsets: on the matrix units, optionally split along k, or row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton_kernels.numerics import dp4a, to_bf16
from kernels.triton_kernels.scratch import kept_zeros

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


@triton.jit
def find_tile(
    offsets,
    slot,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BY_TILE: tl.constexpr,
):
    """(expert, first row, end row) of a slot; first >= end when the slot has nothing to do.

    By tile: slot i is the i-th tile counted over all experts. By row: slot i is row i, and only
    a row that begins a tile of its expert works; no scan is needed, but more programs are idle.
    """
    expert = tl.arange(0, EXPERTS_BLOCK)
    inside = expert < EXPERTS
    if BLOCK_M == 1:
        # Every row is a tile of its own: count the experts that end at or before it.
        ends = tl.load(offsets + expert + 1, mask=inside, other=0x7FFFFFFF)
        found = tl.sum((ends <= slot).to(tl.int32))
        return found, slot, tl.where(found < EXPERTS, slot + 1, slot)
    low = tl.load(offsets + expert, mask=inside, other=0).to(tl.int32)
    high = tl.load(offsets + expert + 1, mask=inside, other=0).to(tl.int32)
    if BY_TILE:
        tiles = (high - low + BLOCK_M - 1) // BLOCK_M
        last = tl.cumsum(tiles, 0)
        mine = (slot < last) & (slot >= last - tiles)
        first = tl.sum(tl.where(mine, low + (slot - last + tiles) * BLOCK_M, 0))
        end = tl.sum(tl.where(mine, high, 0))
    else:
        mine = (slot >= low) & (slot < high)
        begins = (slot - low) % BLOCK_M == 0
        first = slot
        end = tl.sum(tl.where(mine & begins, high, 0))
    return tl.sum(tl.where(mine, expert, 0)), first, end


@triton.jit
def grouped_gemm_kernel(
    a,
    a_scale,
    w,
    w_scale,
    offsets,
    out,
    partial,
    arrivals,
    N: tl.constexpr,
    K: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    BY_TILE: tl.constexpr,
    num_stages: tl.constexpr,
):
    slot = tl.program_id(0)
    tile_n = tl.program_id(1)
    split = tl.program_id(2)
    expert, first, end = find_tile(offsets, slot, EXPERTS, EXPERTS_BLOCK, BLOCK_M, BY_TILE)
    if first >= end:
        return
    row = first + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = split * BLOCK_K + tl.arange(0, BLOCK_K)
    row_inside = row < end
    column_inside = column < N
    w_row = expert.to(tl.int64) * N + column
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for step in tl.range(0, K, BLOCK_K * SPLIT_K, num_stages=num_stages):
        k_inside = step + k < K
        left = tl.load(
            a + row[:, None] * K + step + k[None, :],
            mask=row_inside[:, None] & k_inside[None, :],
            other=0,
        )
        right = tl.load(
            w + w_row[:, None] * K + step + k[None, :],
            mask=column_inside[:, None] & k_inside[None, :],
            other=0,
        )
        total = tl.dot(left, tl.trans(right), total, out_dtype=tl.int32)
    place = row[:, None] * N + column[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    if SPLIT_K > 1:
        tl.atomic_add(partial + place, total, mask=inside, sem="relaxed")
        tl.debug_barrier()
        counter = arrivals + slot * tl.num_programs(1) + tile_n
        if tl.atomic_add(counter, 1, sem="acq_rel") != SPLIT_K - 1:
            return
        # The last split to arrive reads the sums, and leaves zeros for the next launch.
        total = tl.load(partial + place, mask=inside, other=0, volatile=True)
        # Small tiles are held by several warps at once: all must have read before one clears.
        tl.debug_barrier()
        tl.store(partial + place, tl.zeros((BLOCK_M, BLOCK_N), tl.int32), mask=inside)
        tl.store(counter, 0)
    row_step = tl.load(a_scale + row, mask=row_inside, other=0.0)
    column_step = tl.load(w_scale + w_row, mask=column_inside, other=0.0)
    scaled = total.to(tl.float32) * row_step[:, None] * column_step[None, :]
    tl.store(out + place, to_bf16(scaled), mask=inside)


def slots(rows: int, experts: int, block_m: int, by_tile: int) -> int:
    """How many row tiles a launch must provide for, whatever the routes turn out to be."""
    if not by_tile:
        return rows
    return min(rows, min(rows, experts) + rows // block_m)


def launch_grouped_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    offsets: torch.Tensor,
    out: torch.Tensor,
    config: Mapping[str, Any],
) -> None:
    """INT8 a [rows, k] and w [experts, n, k], int64 offsets [experts + 1] -> BF16 out [rows, n]."""
    rows, k = a.shape
    experts, n, _ = w.shape
    split_k = config["SPLIT_K"]
    tiles_n = triton.cdiv(n, config["BLOCK_N"])
    tiles_m = slots(rows, experts, config["BLOCK_M"], config["BY_TILE"])
    partial = arrivals = offsets
    if split_k > 1:
        partial = kept_zeros("gemm_partial", rows * n, a.device)
        arrivals = kept_zeros("gemm_arrivals", tiles_m * tiles_n, a.device)
    grouped_gemm_kernel[(tiles_m, tiles_n, split_k)](
        a,
        a_scale,
        w,
        w_scale,
        offsets,
        out,
        partial,
        arrivals,
        n,
        k,
        experts,
        triton.next_power_of_2(experts),
        config["BLOCK_M"],
        config["BLOCK_N"],
        config["BLOCK_K"],
        split_k,
        config["BY_TILE"],
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
    )


@triton.jit
def row_gemm_kernel(
    a,
    a_scale,
    w,
    w_scale,
    offsets,
    out,
    N: tl.constexpr,
    K: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One row times BLOCK_N of its expert's columns, four products an instruction."""
    row = tl.program_id(0)
    expert, first, end = find_tile(offsets, row, EXPERTS, EXPERTS_BLOCK, 1, 0)
    if first >= end:
        return
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    column_inside = column < N
    w_row = expert.to(tl.int64) * N + column
    packed = tl.arange(0, BLOCK_K // 4)
    a4 = a.to(tl.pointer_type(tl.int32))
    w4 = w.to(tl.pointer_type(tl.int32))
    sums = tl.zeros((BLOCK_N, BLOCK_K // 4), tl.int32)
    for step in tl.static_range(0, K // 4, BLOCK_K // 4):
        k_inside = step + packed < K // 4
        left = tl.load(a4 + row * (K // 4) + step + packed, mask=k_inside, other=0)
        place = w_row[:, None] * (K // 4) + step + packed[None, :]
        inside = column_inside[:, None] & k_inside[None, :]
        right = tl.load(w4 + place, mask=inside, other=0)
        sums += dp4a(tl.broadcast_to(left[None, :], (BLOCK_N, BLOCK_K // 4)), right)
    row_step = tl.load(a_scale + row)
    column_step = tl.load(w_scale + w_row, mask=column_inside, other=0.0)
    scaled = tl.sum(sums, axis=1).to(tl.float32) * row_step * column_step
    tl.store(out + row * N + column, to_bf16(scaled), mask=column_inside)


def launch_row_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    offsets: torch.Tensor,
    out: torch.Tensor,
    *,
    block_n: int,
    block_k: int,
    num_warps: int,
) -> None:
    """As `launch_grouped_gemm`, a program per row; k is a multiple of 4."""
    rows, k = a.shape
    experts, n, _ = w.shape
    row_gemm_kernel[(rows, triton.cdiv(n, block_n))](
        a,
        a_scale,
        w,
        w_scale,
        offsets,
        out,
        n,
        k,
        experts,
        triton.next_power_of_2(experts),
        block_n,
        min(block_k, triton.next_power_of_2(k)),
        num_warps=num_warps,
    )
