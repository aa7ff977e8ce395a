# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""Bring the experts' rows back to their tokens and add the shared expert, on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.routing import MOE_CASES
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    """`y` rows are sorted by expert; `position[t, j]` is where token t's j-th route lies in it."""
    import torch

    tokens, top_k, hidden = case["tokens"], case["top_k"], case["hidden"]
    rows = tokens * top_k
    y = torch.randn((rows, hidden), generator=rng, device=device)
    shared = torch.randn((tokens, hidden), generator=rng, device=device)
    weight = torch.rand((tokens, top_k), generator=rng, device=device)
    position = torch.randperm(rows, generator=rng, device=device).view(tokens, top_k)
    return {
        "y": y.to(torch.bfloat16),
        "weight": weight / weight.sum(1, keepdim=True),
        "position": position.to(torch.int32),
        "shared": shared.to(torch.bfloat16),
    }


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    return {"out": torch.empty_like(inputs["shared"])}


def cost(case: Case, inputs: Tensors) -> Cost:
    tokens, top_k, hidden = case["tokens"], case["top_k"], case["hidden"]
    return Cost(
        bytes=2 * tokens * hidden * (top_k + 2) + 8 * tokens * top_k,
        operations=tokens * hidden * (2 * top_k + 1),
    )


def combine(y: torch.Tensor, weight: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Weighted sum over a token's routes in route order, in float32, rounded to BF16."""
    rows = y[position.long()].float()
    total = rows[:, 0] * weight[:, :1]
    for route in range(1, weight.shape[1]):
        total = total + rows[:, route] * weight[:, route : route + 1]
    return total.to(y.dtype)


@op(
    name="shared_expert_add",
    cases=MOE_CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("the order of the additions and both roundings to BF16 are fixed"),
    cost=cost,
)
def shared_expert_add(inputs: Tensors) -> Tensors:
    """Weighted sum of a token's expert rows rounded to BF16, plus the shared expert's row.

    No all-reduce lies between the two: a split model reduces their sum once, afterwards.
    """
    routed = combine(inputs["y"], inputs["weight"], inputs["position"])
    return {"out": routed + inputs["shared"]}


@shared_expert_add.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch: gather, a product and a sum per route, the addition."""
    import torch

    routed = combine(inputs["y"], inputs["weight"], inputs["position"])
    torch.add(routed, inputs["shared"], out=outputs["out"])


@shared_expert_add.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space(
        {"BLOCK": (128, 256, 512, 1024, 2048), "num_warps": (1, 2, 4, 8)},
        default={"BLOCK": 512, "num_warps": 4},
    ),
)
def triton_fused(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton kernel over tokens and column blocks, products and sums kept apart."""
    from kernels.triton_kernels.rows import launch_combine

    launch_combine(
        inputs["y"],
        inputs["weight"],
        inputs["position"],
        inputs["shared"],
        outputs["out"],
        block=config["BLOCK"],
        num_warps=config["num_warps"],
    )
