"""The accepted path in plain torch, one function per step. References are made of these alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

INT8_LIMIT = 127.0
SMALLEST_ABSMAX = 1e-10
"""A row of zeros gets the scale SMALLEST_ABSMAX / 127 instead of a division by zero."""

EXACT_FLOAT32_TERMS = 1024
"""127 * 127 * 1024 < 2**24: so many INT8 products add up exactly in float32, in any order."""


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """[rows, 2 d] -> [rows, d]: silu of the first half, rounded, times the second, rounded."""
    import torch

    half = gate_up.shape[-1] // 2
    return torch.nn.functional.silu(gate_up[..., :half]) * gate_up[..., half:]


def quantize_per_token(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, d] -> INT8 [rows, d] and float32 scales [rows, 1]; symmetric, ties to even.

    Both divisions are between tensors: torch on CUDA turns a division by a Python number into a
    multiplication by its reciprocal, which rounds differently from the CPU.
    """
    import torch

    wide = x.float()
    absmax = wide.abs().amax(dim=-1, keepdim=True).clamp_min(SMALLEST_ABSMAX)
    limit = torch.full_like(absmax, INT8_LIMIT)
    quantized = torch.round(wide * (limit / absmax)).to(torch.int8)
    return quantized, absmax / limit


def grouped_matmul(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """INT8 rows sorted by expert times each expert's weights, scaled, rounded to BF16.

    a [rows, k], a_scale [rows, 1], w [experts, n, k], w_scale [experts, n], offsets
    [experts + 1] -> [rows, n]. The integer sums are exact: float64 holds every one of them.
    The scaling order is (sum * a_scale) * w_scale in float32.
    """
    import torch

    out = torch.empty((a.shape[0], w.shape[1]), dtype=torch.bfloat16, device=a.device)
    for expert, (low, high) in enumerate(pairwise(offsets.tolist())):
        if high > low:
            exact = a[low:high].double() @ w[expert].double().t()
            scaled = exact.float() * a_scale[low:high] * w_scale[expert]
            out[low:high] = scaled.to(torch.bfloat16)
    return out


def expert_of_row(offsets: torch.Tensor, rows: int) -> torch.Tensor:
    """int64 [rows]: the expert whose range of offsets holds each row; no host synchronisation."""
    import torch

    row = torch.arange(rows, device=offsets.device)
    return torch.searchsorted(offsets[1:].contiguous(), row, right=True)


def gathered_matmul(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """`grouped_matmul` without reading sizes on the host: gathers weights per row, then one bmm.

    torch has no batched INT8 product on CUDA, so it multiplies in float32, exactly, by keeping
    each product to EXACT_FLOAT32_TERMS terms.
    """
    import torch

    expert = expert_of_row(offsets, a.shape[0])
    total = torch.zeros((), dtype=torch.float64, device=a.device)
    for start in range(0, a.shape[1], EXACT_FLOAT32_TERMS):
        a_part = a[:, start : start + EXACT_FLOAT32_TERMS]
        w_part = w[:, :, start : start + EXACT_FLOAT32_TERMS]
        part = torch.bmm(a_part.float()[:, None, :], w_part[expert].float().transpose(1, 2))
        total = total + part.double()
    scaled = total[:, 0, :].float() * a_scale * w_scale[expert]
    return scaled.to(torch.bfloat16)
