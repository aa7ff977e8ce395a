# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""Per-token INT8 quantisation of BF16 activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.catalog.fills import fill
from kernels.catalog.steps import quantize_per_token
from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch

CASES = tuple(
    Case(f"r{rows}_w{width}_{kind}", {"rows": rows, "width": width, "fill": kind})
    for rows, width, kind in (
        (1, 2048, "normal"),
        (8, 2048, "normal"),
        (64, 2048, "normal"),
        (8, 128, "normal"),
        (7, 129, "normal"),
        (16, 256, "zero_rows"),
        (16, 256, "outlier"),
        (16, 256, "ties"),
        (16, 256, "tiny"),
    )
)


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    return {"x": fill((case["rows"], case["width"]), case["fill"], rng, device)}


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    x = inputs["x"]
    return {
        "q": torch.empty(x.shape, dtype=torch.int8, device=x.device),
        "scale": torch.empty((x.shape[0], 1), dtype=torch.float32, device=x.device),
    }


def cost(case: Case, inputs: Tensors) -> Cost:
    rows, width = case["rows"], case["width"]
    return Cost(bytes=rows * (2 * width + width + 4), operations=4 * rows * width)


@op(
    name="per_token_quant_int8",
    cases=CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("a maximum and one rounding per element leave nothing to reorder"),
    cost=cost,
)
def per_token_quant_int8(inputs: Tensors) -> Tensors:
    """Per-token INT8 quantisation: scale = max|x| / 127 per row, q = round-half-even(x / scale)."""
    q, scale = quantize_per_token(inputs["x"])
    return {"q": q, "scale": scale}


@per_token_quant_int8.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch, one kernel per arithmetic step."""
    q, scale = quantize_per_token(inputs["x"])
    outputs["q"].copy_(q)
    outputs["scale"].copy_(scale)


@per_token_quant_int8.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8, 16)}, default={"num_warps": 4}),
)
def triton_row(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton program per row, the row in registers."""
    from kernels.triton_kernels.int8_quant import launch_quant

    launch_quant(inputs["x"], outputs["q"], outputs["scale"], num_warps=config["num_warps"])
