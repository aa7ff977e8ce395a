# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""SiLU-and-mul, then per-token INT8 quantisation: two steps against one fused kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernels.catalog.fills import fill
from kernels.catalog.steps import quantize_per_token, silu_and_mul
from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch

CASES = tuple(
    Case(f"r{rows}_i{width}_{kind}", {"rows": rows, "intermediate": width, "fill": kind})
    for rows, width, kind in (
        (1, 128, "normal"),
        (8, 128, "normal"),
        (64, 128, "normal"),
        (512, 128, "normal"),
        (8, 768, "normal"),
        (5, 33, "normal"),
        (16, 64, "zero_rows"),
        (16, 64, "outlier"),
        (16, 64, "ties"),
        (16, 64, "tiny"),
    )
)


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    return {"gate_up": fill((case["rows"], 2 * case["intermediate"]), case["fill"], rng, device)}


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    rows, width = case["rows"], case["intermediate"]
    device = inputs["gate_up"].device
    return {
        "q": torch.empty((rows, width), dtype=torch.int8, device=device),
        "scale": torch.empty((rows, 1), dtype=torch.float32, device=device),
    }


def cost(case: Case, inputs: Tensors) -> Cost:
    rows, width = case["rows"], case["intermediate"]
    return Cost(bytes=rows * (4 * width + width + 4), operations=9 * rows * width)


@op(
    name="silu_mul_quant_int8",
    cases=CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("the accepted path rounds to BF16 after SiLU and after the product"),
    cost=cost,
)
def silu_mul_quant_int8(inputs: Tensors) -> Tensors:
    """silu(gate) * up rounded to BF16 after each step, then per-token INT8 quantisation."""
    q, scale = quantize_per_token(silu_and_mul(inputs["gate_up"]))
    return {"q": q, "scale": scale}


def store(outputs: Tensors, q: torch.Tensor, scale: torch.Tensor) -> None:
    outputs["q"].copy_(q)
    outputs["scale"].copy_(scale)


@silu_mul_quant_int8.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch, one kernel per arithmetic step."""
    store(outputs, *quantize_per_token(silu_and_mul(inputs["gate_up"])))


def both_steps(gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return quantize_per_token(silu_and_mul(gate_up))


@functools.cache
def compiled(keep_roundings: bool) -> Callable[[torch.Tensor], Any]:
    import torch

    options: dict[str, Any] = {"emulate_precision_casts": True} if keep_roundings else {}
    made: Callable[[torch.Tensor], Any] = torch.compile(both_steps, dynamic=False, options=options)
    return made


@silu_mul_quant_int8.candidate()
def torch_compile(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.compile as it comes: keeps float32 between the steps, so it is expected to differ."""
    store(outputs, *compiled(False)(inputs["gate_up"]))


@silu_mul_quant_int8.candidate()
def torch_compile_rounded(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.compile told to round between the steps as eager torch does."""
    store(outputs, *compiled(True)(inputs["gate_up"]))


@silu_mul_quant_int8.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8)}, default={"num_warps": 4}),
    separate=True,
)
def triton_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Two Triton kernels with a BF16 tensor between them, as an engine's separate ops do."""
    from kernels.triton_kernels.int8_quant import launch_quant, launch_silu_and_mul

    gate_up = inputs["gate_up"]
    middle = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
    launch_silu_and_mul(gate_up, middle, num_warps=config["num_warps"])
    launch_quant(middle, outputs["q"], outputs["scale"], num_warps=config["num_warps"])


@silu_mul_quant_int8.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8)}, default={"num_warps": 2}),
)
def triton_fused(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton program per row: both steps in registers, both BF16 roundings kept."""
    from kernels.triton_kernels.int8_quant import launch_silu_mul_quant

    launch_silu_mul_quant(
        inputs["gate_up"], outputs["q"], outputs["scale"], num_warps=config["num_warps"]
    )
