# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

"""The MoE middle layerlet in two launches and in one.

The one-launch kernel needs every program of a row to be on the device at the same time, because
they wait for one another between the two GEMMs. Two launches on two streams at once could keep
each other from that; run it on one stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from kernels.triton_kernels.grouped_gemm import find_tile, slots
from kernels.triton_kernels.numerics import (
    dp4a,
    int8_scales,
    round_half_even,
    silu_and_mul_bf16,
    to_bf16,
)
from kernels.triton_kernels.scratch import kept_zeros

if TYPE_CHECKING:
    from collections.abc import Mapping


@triton.jit
def pack_four(q, LANES: tl.constexpr):
    """INT8 values held as int32 [4 * LANES] -> int32 [LANES], lowest byte first, as in memory."""
    shift = (tl.arange(0, 4 * LANES) % 4) * 8
    return tl.sum(tl.reshape((q & 0xFF) << shift, (LANES, 4)), axis=1)


@triton.jit
def gate_and_up_row(
    a,
    w1,
    row,
    gate_row_start,
    tile_n,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One row's integer gate and up sums, int32 [1, BLOCK_N] each, both summed in one pass."""
    packed = tl.arange(0, BLOCK_K // 4)
    both = tl.arange(0, 2 * BLOCK_N)
    w_row = gate_row_start + (both // BLOCK_N) * WIDTH + tile_n * BLOCK_N + both % BLOCK_N
    a4 = a.to(tl.pointer_type(tl.int32))
    w4 = w1.to(tl.pointer_type(tl.int32))
    sums = tl.zeros((2 * BLOCK_N, BLOCK_K // 4), tl.int32)
    for step in tl.static_range(0, K // 4, BLOCK_K // 4):
        k_inside = step + packed < K // 4
        left = tl.load(a4 + row * (K // 4) + step + packed, mask=k_inside, other=0)
        place = w_row[:, None] * (K // 4) + step + packed[None, :]
        right = tl.load(w4 + place, mask=k_inside[None, :], other=0)
        sums += dp4a(tl.broadcast_to(left[None, :], (2 * BLOCK_N, BLOCK_K // 4)), right)
    halves = tl.trans(tl.reshape(tl.sum(sums, axis=1), (2, BLOCK_N)))
    gate, up = tl.split(halves)
    return gate[None, :], up[None, :]


@triton.jit
def gate_and_up(
    a,
    a_scale,
    w1,
    w1_scale,
    expert,
    first,
    end,
    tile_n,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DOT: tl.constexpr,
    num_stages: tl.constexpr,
):
    """GEMM1's gate and up columns of a tile, BF16 [BLOCK_M, BLOCK_N]; by dp4a of one row."""
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    gate_row_start = expert.to(tl.int64) * 2 * WIDTH
    gate_row = gate_row_start + column
    gate_step = tl.load(w1_scale + gate_row)
    up_step = tl.load(w1_scale + gate_row + WIDTH)
    if DOT:
        row = first + tl.arange(0, BLOCK_M)
        inside = row < end
        k = tl.arange(0, BLOCK_K)
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
        for step in tl.range(0, K, BLOCK_K, num_stages=num_stages):
            k_inside = step + k < K
            both = inside[:, None] & k_inside[None, :]
            left = tl.load(a + row[:, None] * K + step + k[None, :], mask=both, other=0)
            place = gate_row[:, None] * K + step + k[None, :]
            right = tl.load(w1 + place, mask=k_inside[None, :], other=0)
            gate = tl.dot(left, tl.trans(right), gate, out_dtype=tl.int32)
            right = tl.load(w1 + place + WIDTH * K, mask=k_inside[None, :], other=0)
            up = tl.dot(left, tl.trans(right), up, out_dtype=tl.int32)
        row_step = tl.load(a_scale + row, mask=inside, other=0.0)[:, None]
    else:
        gate, up = gate_and_up_row(a, w1, first, gate_row_start, tile_n, WIDTH, K, BLOCK_N, BLOCK_K)
        row_step = tl.load(a_scale + first)
    gate16 = to_bf16(gate.to(tl.float32) * row_step * gate_step[None, :])
    up16 = to_bf16(up.to(tl.float32) * row_step * up_step[None, :])
    return gate16, up16


@triton.jit
def first_half_kernel(
    a,
    a_scale,
    w1,
    w1_scale,
    offsets,
    middle,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BY_TILE: tl.constexpr,
    DOT: tl.constexpr,
    EARLY: tl.constexpr,
    num_stages: tl.constexpr,
):
    """GEMM1 and SiLU-and-mul -> BF16 [rows, width]."""
    if EARLY:
        # Launched under its predecessor's end: nothing may be read or written before this.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    expert, first, end = find_tile(
        offsets, tl.program_id(0), EXPERTS, EXPERTS_BLOCK, BLOCK_M, BY_TILE
    )
    if first >= end:
        return
    tile_n = tl.program_id(1)
    gate, up = gate_and_up(
        a, a_scale, w1, w1_scale, expert, first, end, tile_n,
        WIDTH, K, BLOCK_M, BLOCK_N, BLOCK_K, DOT, num_stages,
    )  # fmt: skip
    product = silu_and_mul_bf16(gate, up)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if DOT:
        row = first + tl.arange(0, BLOCK_M)
        place = middle + row[:, None] * WIDTH + column[None, :]
        tl.store(place, product, mask=(row < end)[:, None])
    else:
        tl.store(middle + first * WIDTH + column[None, :], product)


@triton.jit
def second_half_kernel(
    middle,
    w2,
    w2_scale,
    offsets,
    y,
    WIDTH: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    HIDDEN: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BY_TILE: tl.constexpr,
    DOT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """INT8 quantisation of BF16 [rows, width] and GEMM2 -> BF16 [rows, hidden]."""
    expert, first, end = find_tile(
        offsets, tl.program_id(0), EXPERTS, EXPERTS_BLOCK, BLOCK_M, BY_TILE
    )
    if first >= end:
        return
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    column_inside = column < HIDDEN
    w_row = expert.to(tl.int64) * HIDDEN + column
    k = tl.arange(0, WIDTH_BLOCK)
    k_inside = k < WIDTH
    if DOT:
        w_inside = column_inside[:, None] & k_inside[None, :]
        right = tl.load(w2 + w_row[:, None] * WIDTH + k[None, :], mask=w_inside, other=0)
    else:
        lane = tl.arange(0, WIDTH_BLOCK // 4)
        w_inside = column_inside[:, None] & (lane < WIDTH // 4)[None, :]
        w4 = w2.to(tl.pointer_type(tl.int32))
        right = tl.load(w4 + w_row[:, None] * (WIDTH // 4) + lane[None, :], mask=w_inside, other=0)
    column_step = tl.load(w2_scale + w_row, mask=column_inside, other=0.0)
    if EARLY:
        # Weights and routes are older than the first kernel; only `middle` must be waited for.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if DOT:
        row = first + tl.arange(0, BLOCK_M)
        row_inside = row < end
        inside = row_inside[:, None] & k_inside[None, :]
        value = tl.load(middle + row[:, None] * WIDTH + k[None, :], mask=inside, other=0.0)
        value = value.to(tl.float32)
        inverse, step = int8_scales(tl.max(tl.abs(value), axis=1, keep_dims=True))
        q = round_half_even(value * inverse).to(tl.int8)
        total = tl.dot(q, tl.trans(right), out_dtype=tl.int32)
        scaled = total.to(tl.float32) * step * column_step[None, :]
        place = y + row[:, None] * HIDDEN + column[None, :]
        out_inside = row_inside[:, None] & column_inside[None, :]
        tl.store(place, to_bf16(scaled), mask=out_inside)
    else:
        value = tl.load(middle + first * WIDTH + k, mask=k_inside, other=0.0).to(tl.float32)
        inverse, step = int8_scales(tl.max(tl.abs(value), axis=0, keep_dims=True))
        left = pack_four(round_half_even(value * inverse).to(tl.int32), WIDTH_BLOCK // 4)
        spread = tl.broadcast_to(left[None, :], (BLOCK_N, WIDTH_BLOCK // 4))
        total = tl.sum(dp4a(spread, right), axis=1)
        scaled = total.to(tl.float32) * step * column_step
        tl.store(y + first * HIDDEN + column, to_bf16(scaled), mask=column_inside)


def launch_two(i: dict[str, torch.Tensor], y: torch.Tensor, config: Mapping[str, Any]) -> None:
    """GEMM1 + SiLU-and-mul, then quantisation + GEMM2; BF16 [rows, width] lies between them."""
    rows, k = i["a"].shape
    experts, hidden, width = i["w2"].shape
    experts_block = triton.next_power_of_2(experts)
    middle = torch.empty((rows, width), dtype=torch.bfloat16, device=y.device)
    dot, early = config["MATH"] == "dot", bool(config["EARLY"])
    launch_options = {"launch_pdl": True} if early else {}
    tiles = slots(rows, experts, config["BLOCK_M"], config["BY_TILE"]) if dot else rows
    block_m = config["BLOCK_M"] if dot else 1
    block_n = min(config["BLOCK_N1"], width)
    first_half_kernel[(tiles, triton.cdiv(width, block_n))](
        i["a"],
        i["a_scale"],
        i["w1"],
        i["w1_scale"],
        i["offsets"],
        middle,
        width,
        k,
        experts,
        experts_block,
        block_m,
        block_n,
        min(config["BLOCK_K1"], triton.next_power_of_2(k)),
        config["BY_TILE"] if dot else 0,
        dot,
        early,
        num_warps=config["num_warps"],
        num_stages=config["num_stages"],
        **launch_options,
    )
    second_half_kernel[(tiles, triton.cdiv(hidden, config["BLOCK_N2"]))](
        middle,
        i["w2"],
        i["w2_scale"],
        i["offsets"],
        y,
        width,
        max(32, triton.next_power_of_2(width)),
        hidden,
        experts,
        experts_block,
        block_m,
        config["BLOCK_N2"],
        config["BY_TILE"] if dot else 0,
        dot,
        early,
        num_warps=config["num_warps2"],
        **launch_options,
    )


@triton.jit
def load_acquire(pointer):
    """An int32 that other programs write: everything they wrote before it is visible after it."""
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [pointer], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def one_launch_kernel(
    a,
    a_scale,
    w1,
    w1_scale,
    w2,
    w2_scale,
    offsets,
    y,
    middle,
    arrivals,
    WIDTH: tl.constexpr,
    HIDDEN: tl.constexpr,
    EXPERTS: tl.constexpr,
    EXPERTS_BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PREFETCH: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Program (g, row): columns g of GEMM1 and SiLU-and-mul, meet, columns g of GEMM2."""
    GROUPS: tl.constexpr = WIDTH // BLOCK_N
    COLUMNS: tl.constexpr = HIDDEN // GROUPS
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    group = tl.program_id(0)
    row = tl.program_id(1)
    expert, first, end = find_tile(offsets, row, EXPERTS, EXPERTS_BLOCK, 1, 0)
    if first >= end:
        return
    column = group * COLUMNS + tl.arange(0, COLUMNS)
    w_row = expert.to(tl.int64) * HIDDEN + column
    packed = tl.arange(0, WIDTH // 4)
    w4 = w2.to(tl.pointer_type(tl.int32))
    if PREFETCH:
        right = tl.load(w4 + w_row[:, None] * (WIDTH // 4) + packed[None, :])
        column_step = tl.load(w2_scale + w_row)
    gate, up = gate_and_up(
        a, a_scale, w1, w1_scale, expert, first, end, group,
        WIDTH, HIDDEN, 1, BLOCK_N, BLOCK_K, False, 1,
    )  # fmt: skip
    product = silu_and_mul_bf16(gate, up)
    mine = group * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(middle + row * WIDTH + mine[None, :], product)
    # Every thread's store must be done before the one arrival that announces it.
    tl.debug_barrier()
    ticket = tl.atomic_add(arrivals + row, 1, sem="release")
    # The counter is never reset: this launch's programs took the tickets of one round.
    goal = (ticket // GROUPS + 1) * GROUPS
    seen = load_acquire(arrivals + row)
    while seen - goal < 0:
        seen = load_acquire(arrivals + row)
    tl.debug_barrier()
    k = tl.arange(0, WIDTH)
    value = tl.load(middle + row * WIDTH + k, volatile=True).to(tl.float32)
    inverse, step = int8_scales(tl.max(tl.abs(value), axis=0, keep_dims=True))
    left = pack_four(round_half_even(value * inverse).to(tl.int32), WIDTH // 4)
    if not PREFETCH:
        right = tl.load(w4 + w_row[:, None] * (WIDTH // 4) + packed[None, :])
        column_step = tl.load(w2_scale + w_row)
    spread = tl.broadcast_to(left[None, :], (COLUMNS, WIDTH // 4))
    total = tl.sum(dp4a(spread, right), axis=1)
    scaled = total.to(tl.float32) * step * column_step
    tl.store(y + row * HIDDEN + column, to_bf16(scaled))


def launch_one(i: dict[str, torch.Tensor], y: torch.Tensor, config: Mapping[str, Any]) -> None:
    """The whole layerlet in one launch; intermediate and hidden sizes are powers of two."""
    rows, hidden = i["a"].shape
    experts, _, width = i["w2"].shape
    middle = torch.empty((rows, width), dtype=torch.bfloat16, device=y.device)
    groups = width // config["BLOCK_N1"]
    early = bool(config["EARLY"])
    arrivals = kept_zeros(f"layerlet_of_{groups}", rows, y.device)
    one_launch_kernel[(groups, rows)](
        i["a"],
        i["a_scale"],
        i["w1"],
        i["w1_scale"],
        i["w2"],
        i["w2_scale"],
        i["offsets"],
        y,
        middle,
        arrivals,
        width,
        hidden,
        experts,
        triton.next_power_of_2(experts),
        config["BLOCK_N1"],
        min(config["BLOCK_K1"], hidden),
        bool(config["PREFETCH"]),
        early,
        num_warps=config["num_warps"],
        **({"launch_pdl": True} if early else {}),
    )
