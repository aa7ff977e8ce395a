# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""Where each expert's rows begin: the exclusive prefix that a grouped GEMM walks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.routing import MOE_CASES, draw_routes
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    import torch

    routes = draw_routes(case, rng, device).flatten().long()
    counts = torch.bincount(routes, minlength=case["experts"])
    return {"rows_per_expert": counts.to(torch.int32)}


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    counts = inputs["rows_per_expert"]
    return {"offsets": torch.empty(counts.numel() + 1, dtype=torch.int64, device=counts.device)}


def cost(case: Case, inputs: Tensors) -> Cost:
    experts = case["experts"]
    return Cost(bytes=4 * experts + 8 * (experts + 1), operations=experts)


@op(
    name="expert_offsets",
    cases=MOE_CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("integers"),
    cost=cost,
)
def expert_offsets(inputs: Tensors) -> Tensors:
    """Rows per expert -> int64 offsets: a leading 0, then the inclusive prefix."""
    import torch

    counts = inputs["rows_per_expert"].to(torch.int64)
    return {"offsets": torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])}


@expert_offsets.candidate(separate=True)
def torch_cumsum(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Write the 0, then torch.cumsum into the rest."""
    import torch

    outputs["offsets"][:1].zero_()
    torch.cumsum(inputs["rows_per_expert"], 0, dtype=torch.int64, out=outputs["offsets"][1:])


@expert_offsets.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8)}, default={"num_warps": 2}),
)
def triton_scan(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton program scans all experts and writes the 0 as well."""
    from kernels.triton_kernels.routes import launch_offsets

    launch_offsets(inputs["rows_per_expert"], outputs["offsets"], num_warps=config["num_warps"])
