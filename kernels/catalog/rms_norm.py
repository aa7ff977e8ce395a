# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""RMSNorm of BF16 activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernels.ops import Bound, Case, Cost, Tensors, op
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch

EPSILON = 1e-6

CASES = tuple(
    Case(f"r{rows}_h{hidden}", {"rows": rows, "hidden": hidden})
    for rows, hidden in ((1, 2048), (8, 2048), (64, 2048), (3, 576), (5, 131))
)


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    import torch

    x = torch.randn((case["rows"], case["hidden"]), generator=rng, device=device)
    weight = 1.0 + 0.1 * torch.randn((case["hidden"],), generator=rng, device=device)
    return {"x": x.to(torch.bfloat16), "weight": weight.to(torch.bfloat16)}


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    return {"y": torch.empty_like(inputs["x"])}


def cost(case: Case, inputs: Tensors) -> Cost:
    rows, hidden = case["rows"], case["hidden"]
    return Cost(bytes=4 * rows * hidden + 2 * hidden, operations=4 * rows * hidden)


def normalise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    import torch

    wide = x.float()
    mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + EPSILON)).to(x.dtype) * weight


@op(
    name="rms_norm",
    cases=CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=Bound(
        2,
        "the sum of squares may be added in any order, which can flip the rounding to BF16 "
        "before the weight and, through it, the one after",
    ),
    cost=cost,
)
def rms_norm(inputs: Tensors) -> Tensors:
    """X / sqrt(mean(x^2) + 1e-6) in float32, rounded to BF16, times the weight, rounded again."""
    return {"y": normalise(inputs["x"], inputs["weight"])}


@rms_norm.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch, one kernel per arithmetic step."""
    outputs["y"].copy_(normalise(inputs["x"], inputs["weight"]))


@functools.cache
def compiled() -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    import torch

    made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.compile(
        normalise, dynamic=False
    )
    return made


@rms_norm.candidate()
def torch_compile(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.compile of the same steps."""
    outputs["y"].copy_(compiled()(inputs["x"], inputs["weight"]))


@rms_norm.candidate()
def torch_functional(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.nn.functional.rms_norm."""
    import torch

    x, weight = inputs["x"], inputs["weight"]
    outputs["y"].copy_(torch.nn.functional.rms_norm(x, weight.shape, weight, EPSILON))


@rms_norm.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space({"num_warps": (1, 2, 4, 8, 16)}, default={"num_warps": 8}),
)
def triton_row(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """One Triton program per row, the row in registers."""
    from kernels.triton_kernels.rows import launch_rms_norm

    launch_rms_norm(
        inputs["x"], inputs["weight"], outputs["y"], EPSILON, num_warps=config["num_warps"]
    )
