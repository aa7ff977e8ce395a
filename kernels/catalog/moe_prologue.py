# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""What comes before the expert GEMMs: count rows per expert, sort routes, copy their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.catalog.fills import int8, scales
from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.routing import MOE_CASES, draw_routes
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    import torch

    tokens, hidden = case["tokens"], case["hidden"]
    return {
        "routes": draw_routes(case, rng, device),
        "x": int8((tokens, hidden), rng, device),
        "x_scale": scales((tokens, 1), 1e-2, rng, device),
        "experts": torch.full((1,), case["experts"], dtype=torch.int32, device=device),
    }


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    routes = inputs["routes"]
    rows, device = routes.numel(), routes.device
    return {
        "rows_per_expert": torch.empty(case["experts"], dtype=torch.int32, device=device),
        "position": torch.empty(routes.shape, dtype=torch.int32, device=device),
        "a": torch.empty((rows, case["hidden"]), dtype=torch.int8, device=device),
        "a_scale": torch.empty((rows, 1), dtype=torch.float32, device=device),
    }


def cost(case: Case, inputs: Tensors) -> Cost:
    tokens, hidden, rows = case["tokens"], case["hidden"], inputs["routes"].numel()
    moved = tokens * (hidden + 4) + rows * (hidden + 4) + 8 * rows + 4 * case["experts"]
    return Cost(bytes=moved, operations=rows)


def expand(routes: torch.Tensor, x: torch.Tensor, x_scale: torch.Tensor, experts: int) -> Tensors:
    """Stable sort by expert; no size is read on the host."""
    import torch

    flat = routes.flatten().long()
    order = torch.sort(flat, stable=True).indices
    position = torch.empty_like(order)
    position[order] = torch.arange(flat.numel(), device=flat.device)
    token = torch.div(order, routes.shape[1], rounding_mode="floor")
    counts = torch.zeros(experts, dtype=torch.int32, device=flat.device)
    counts.index_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
    return {
        "rows_per_expert": counts,
        "position": position.to(torch.int32).view(routes.shape),
        "a": x[token],
        "a_scale": x_scale[token],
    }


@op(
    name="moe_prologue",
    cases=MOE_CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("counts, places and copies; rows of one expert keep their route order"),
    cost=cost,
)
def moe_prologue(inputs: Tensors) -> Tensors:
    """Routes -> rows per expert, each route's place when sorted by expert, rows copied there."""
    experts = int(inputs["experts"].item())
    return expand(inputs["routes"], inputs["x"], inputs["x_scale"], experts)


@moe_prologue.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch: sort, scatter, count, gather."""
    made = expand(
        inputs["routes"], inputs["x"], inputs["x_scale"], outputs["rows_per_expert"].numel()
    )
    for name, tensor in made.items():
        outputs[name].copy_(tensor)


@moe_prologue.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8)}, default={"num_warps": 4}),
)
def triton_fused(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton program per route finds its place by counting, and copies its row."""
    from kernels.triton_kernels.routes import launch_prologue

    launch_prologue(
        inputs["routes"], inputs["x"], inputs["x_scale"], outputs, num_warps=config["num_warps"]
    )
