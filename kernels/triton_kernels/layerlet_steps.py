"""The MoE middle layerlet as four separate launches: what the fused ones must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton

from kernels.triton_kernels.grouped_gemm import launch_grouped_gemm, launch_row_gemm
from kernels.triton_kernels.int8_quant import launch_quant, launch_silu_and_mul

if TYPE_CHECKING:
    from collections.abc import Mapping


def launch_separate(i: dict[str, torch.Tensor], y: torch.Tensor, config: Mapping[str, Any]) -> None:
    """Four launches with BF16 and INT8 tensors between them; both GEMMs on the matrix units."""
    width = i["w2"].shape[2]
    gate_up, middle, q, scale = between_steps(i)
    shared = {name: config[name] for name in ("BLOCK_M", "BY_TILE", "num_warps", "num_stages")}
    first = {"BLOCK_N": config["BLOCK_N1"], "BLOCK_K": config["BLOCK_K1"]}
    second = {"BLOCK_N": config["BLOCK_N2"], "BLOCK_K": max(32, triton.next_power_of_2(width))}
    launch_grouped_gemm(
        i["a"],
        i["a_scale"],
        i["w1"],
        i["w1_scale"],
        i["offsets"],
        gate_up,
        {**shared, **first, "SPLIT_K": config["SPLIT_K1"]},
    )
    launch_silu_and_mul(gate_up, middle, num_warps=1)
    launch_quant(middle, q, scale, num_warps=1)
    launch_grouped_gemm(
        q, scale, i["w2"], i["w2_scale"], i["offsets"], y, {**shared, **second, "SPLIT_K": 1}
    )


def launch_separate_rows(
    i: dict[str, torch.Tensor], y: torch.Tensor, config: Mapping[str, Any]
) -> None:
    """Four launches, both GEMMs row by row."""
    gate_up, middle, q, scale = between_steps(i)
    launch_row_gemm(
        i["a"],
        i["a_scale"],
        i["w1"],
        i["w1_scale"],
        i["offsets"],
        gate_up,
        block_n=config["BLOCK_N1"],
        block_k=config["BLOCK_K1"],
        num_warps=config["num_warps"],
    )
    launch_silu_and_mul(gate_up, middle, num_warps=1)
    launch_quant(middle, q, scale, num_warps=1)
    launch_row_gemm(
        q,
        scale,
        i["w2"],
        i["w2_scale"],
        i["offsets"],
        y,
        block_n=config["BLOCK_N2"],
        block_k=i["w2"].shape[2],
        num_warps=config["num_warps2"],
    )


def between_steps(i: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """What the separate steps hand on: gate and up, their product, its INT8 and its scales."""
    rows, width = i["a"].shape[0], i["w2"].shape[2]
    device = i["a"].device
    return (
        torch.empty((rows, 2 * width), dtype=torch.bfloat16, device=device),
        torch.empty((rows, width), dtype=torch.bfloat16, device=device),
        torch.empty((rows, width), dtype=torch.int8, device=device),
        torch.empty((rows, 1), dtype=torch.float32, device=device),
    )
