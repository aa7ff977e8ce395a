# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103 -- kernels and launchers share the description of the file
"""Kernels over routes and rows per expert: the offsets' prefix sum, and the MoE prologue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch


@triton.jit
def offsets_kernel(counts, offsets, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    expert = tl.arange(0, BLOCK)
    inside = expert < EXPERTS
    rows = tl.load(counts + expert, mask=inside, other=0).to(tl.int64)
    ends = tl.cumsum(rows, 0)
    tl.store(offsets + 1 + expert, ends, mask=inside)
    tl.store(offsets + expert, ends * 0, mask=expert == 0)


def launch_offsets(counts: torch.Tensor, offsets: torch.Tensor, *, num_warps: int) -> None:
    """int32 rows per expert [experts] -> int64 offsets [experts + 1]."""
    experts = counts.numel()
    offsets_kernel[(1,)](
        counts, offsets, experts, triton.next_power_of_2(experts), num_warps=num_warps
    )


@triton.jit
def prologue_kernel(
    routes,
    x,
    x_scale,
    counts,
    position,
    a,
    a_scale,
    ROUTES: tl.constexpr,
    ROUTES_BLOCK: tl.constexpr,
    TOP_K: tl.constexpr,
    EXPERTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    HIDDEN_BLOCK: tl.constexpr,
):
    """Program i < ROUTES places route i; every program i < EXPERTS counts expert i's rows."""
    me = tl.program_id(0)
    route = tl.arange(0, ROUTES_BLOCK)
    inside = route < ROUTES
    expert = tl.load(routes + route, mask=inside, other=EXPERTS)
    if me < EXPERTS:
        tl.store(counts + me, tl.sum((expert == me).to(tl.int32)))
    if me < ROUTES:
        mine = tl.load(routes + me)
        before = (expert < mine) | ((expert == mine) & (route < me))
        place = tl.sum((before & inside).to(tl.int32))
        tl.store(position + me, place)
        token = me // TOP_K
        column = tl.arange(0, HIDDEN_BLOCK)
        within = column < HIDDEN
        row = tl.load(x + token * HIDDEN + column, mask=within, other=0)
        tl.store(a + place * HIDDEN + column, row, mask=within)
        tl.store(a_scale + place, tl.load(x_scale + token))


def launch_prologue(
    routes: torch.Tensor,
    x: torch.Tensor,
    x_scale: torch.Tensor,
    outputs: dict[str, torch.Tensor],
    *,
    num_warps: int,
) -> None:
    """Routes int32 [tokens, top_k], x INT8 [tokens, hidden] -> the prologue's four outputs."""
    experts = outputs["rows_per_expert"].numel()
    prologue_kernel[(max(routes.numel(), experts),)](
        routes,
        x,
        x_scale,
        outputs["rows_per_expert"],
        outputs["position"],
        outputs["a"],
        outputs["a_scale"],
        routes.numel(),
        triton.next_power_of_2(routes.numel()),
        routes.shape[1],
        experts,
        x.shape[1],
        triton.next_power_of_2(x.shape[1]),
        num_warps=num_warps,
    )
