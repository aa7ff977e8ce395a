# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""Greedy sampling: the one best token of a 151,936-wide vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.space import Config, Space

if TYPE_CHECKING:
    import torch

VOCABULARY = 151_936

CASES = tuple(
    Case(name, {"rows": rows, "vocabulary": vocabulary, "dtype": dtype, "pattern": pattern})
    for name, rows, vocabulary, dtype, pattern in (
        ("t1_bf16", 1, VOCABULARY, "bfloat16", "normal"),
        ("t8_bf16", 8, VOCABULARY, "bfloat16", "normal"),
        ("t64_bf16", 64, VOCABULARY, "bfloat16", "normal"),
        ("t1_fp32", 1, VOCABULARY, "float32", "normal"),
        ("t8_ties", 8, VOCABULARY, "bfloat16", "ties"),
        ("t8_ends", 8, VOCABULARY, "float32", "ends"),
        ("t4_masked", 4, VOCABULARY, "bfloat16", "masked"),
        ("t3_small", 3, 1000, "bfloat16", "ties"),
    )
)


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    """Random logits with what greedy sampling may trip over.

    `ties`: a handful of distinct values; `ends`: the best at the first and last place too;
    `masked`: nearly all -inf, some rows wholly so.
    """
    import torch

    shape = (case["rows"], case["vocabulary"])
    pattern = case["pattern"]
    x = torch.randn(shape, generator=rng, device=device)
    if pattern == "ties":
        x = torch.randint(0, 4, shape, generator=rng, device=device).float()
        x[:, : shape[1] // 3] = torch.minimum(x[:, : shape[1] // 3], torch.ones_like(x[:, :1]))
    elif pattern == "ends":
        best = x.amax(1) + 1
        x[:, -1] = best
        x[::2, 0] = best[::2]
    elif pattern == "masked":
        keep = torch.rand(shape, generator=rng, device=device) < 2e-5
        keep[0] = False
        x = torch.where(keep, x, torch.full_like(x, float("-inf")))
    return {"logits": x.to(getattr(torch, case["dtype"]))}


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    return {"token": torch.empty(case["rows"], dtype=torch.int64, device=inputs["logits"].device)}


def cost(case: Case, inputs: Tensors) -> Cost:
    elements = case["rows"] * case["vocabulary"]
    width = inputs["logits"].element_size()
    return Cost(bytes=elements * width + 8 * case["rows"], operations=elements)


@op(
    name="greedy_top1",
    cases=CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("token numbers; of equal logits the lowest token number wins"),
    cost=cost,
)
def greedy_top1(inputs: Tensors) -> Tensors:
    """Index of the largest logit per row; a tie goes to the lowest index; logits hold no NaN.

    A row of -inf alone gives 0. The rule is written out rather than left to argmax: among the
    positions equal to the maximum, the smallest.
    """
    import torch

    logits = inputs["logits"]
    place = torch.arange(logits.shape[1], device=logits.device)
    at_maximum = logits == logits.amax(dim=1, keepdim=True)
    return {"token": torch.where(at_maximum, place, logits.shape[1]).amin(dim=1)}


@greedy_top1.candidate(separate=True)
def torch_argmax(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.argmax, documented to return the first of equal maxima."""
    import torch

    torch.argmax(inputs["logits"], dim=1, out=outputs["token"])


@greedy_top1.candidate()
def torch_max(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.max along the vocabulary, its index output."""
    import torch

    logits = inputs["logits"]
    best = logits.new_empty((logits.shape[0],))
    torch.max(logits, 1, out=(best, outputs["token"]))


@greedy_top1.candidate()
def torch_topk(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch.topk with k = 1; which of equal logits it returns is not specified."""
    import torch

    outputs["token"].copy_(torch.topk(inputs["logits"], 1, dim=1).indices[:, 0])


@greedy_top1.candidate(
    needs=("triton",),
    devices=("cuda", "xpu"),
    space=Space(
        {
            "BLOCK": (1024, 2048, 4096, 8192),
            "SPLITS": (1, 8, 16, 32, 64, 128),
            "num_warps": (4, 8),
            "ONE_LAUNCH": (0, 1),
        },
        default={"BLOCK": 2048, "SPLITS": 64, "num_warps": 4, "ONE_LAUNCH": 1},
    ),
)
def triton_split(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Splits the vocabulary; the last split to finish, or a second launch, picks the best."""
    from kernels.triton_kernels.top1 import launch_top1

    launch_top1(inputs["logits"], outputs["token"], **config)
