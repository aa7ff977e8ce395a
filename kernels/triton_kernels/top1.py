# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: D103 -- kernels and launchers share the description of the file
"""Greedy top-1 over a wide vocabulary: each split finds its best, then one program picks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.triton_kernels.scratch import kept_zeros


@triton.jit
def pick(best, place, token, row, SPLITS: tl.constexpr):
    """Largest of the splits' bests; of equal ones the lowest place."""
    split = tl.arange(0, SPLITS)
    value = tl.load(best + row * SPLITS + split, volatile=True)
    where = tl.load(place + row * SPLITS + split, volatile=True)
    top = tl.max(value, axis=0)
    tl.store(token + row, tl.min(tl.where(value == top, where, 0x7FFFFFFF), axis=0).to(tl.int64))


@triton.jit
def split_kernel(
    logits,
    best,
    place,
    arrivals,
    token,
    VOCABULARY: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_LAUNCH: tl.constexpr,
):
    row = tl.program_id(0)
    split = tl.program_id(1)
    PER_SPLIT: tl.constexpr = ((VOCABULARY + SPLITS - 1) // SPLITS + BLOCK - 1) // BLOCK * BLOCK
    start = split * PER_SPLIT
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.full((BLOCK,), 0x7FFFFFFF, tl.int32)
    for step in range(0, PER_SPLIT, BLOCK):
        column = start + step + tl.arange(0, BLOCK)
        inside = column < VOCABULARY
        value = tl.load(
            logits + row.to(tl.int64) * VOCABULARY + column, mask=inside, other=float("-inf")
        ).to(tl.float32)
        # A lane sees its columns in rising order, so only a larger value takes its place; the
        # first column is taken even when it is -inf.
        better = inside & ((value > top) | (where == 0x7FFFFFFF))
        top = tl.where(better, value, top)
        where = tl.where(better, column, where)
    largest = tl.max(top, axis=0)
    lowest = tl.min(tl.where(top == largest, where, 0x7FFFFFFF), axis=0)
    tl.store(best + row * SPLITS + split, largest)
    tl.store(place + row * SPLITS + split, lowest)
    if ONE_LAUNCH:
        tl.debug_barrier()
        ticket = tl.atomic_add(arrivals + row, 1, sem="acq_rel")
        if ticket == SPLITS - 1:
            pick(best, place, token, row, SPLITS)
            tl.store(arrivals + row, 0)


@triton.jit
def pick_kernel(best, place, token, SPLITS: tl.constexpr):
    pick(best, place, token, tl.program_id(0), SPLITS)


def launch_top1(
    logits: torch.Tensor,
    token: torch.Tensor,
    *,
    BLOCK: int,
    SPLITS: int,
    num_warps: int,
    ONE_LAUNCH: int,
) -> None:
    """Logits [rows, vocabulary] -> token int64 [rows]; lowest index of equal maxima, no NaN."""
    rows, vocabulary = logits.shape
    best = logits.new_empty((rows, SPLITS), dtype=torch.float32)
    place = kept_zeros("top1_place", rows * SPLITS, logits.device)
    arrivals = kept_zeros("top1_arrivals", rows, logits.device)
    split_kernel[(rows, SPLITS)](
        logits,
        best,
        place,
        arrivals,
        token,
        vocabulary,
        SPLITS,
        BLOCK,
        ONE_LAUNCH,
        num_warps=num_warps,
    )
    if not ONE_LAUNCH:
        pick_kernel[(rows,)](best, place, token, SPLITS, num_warps=1)
