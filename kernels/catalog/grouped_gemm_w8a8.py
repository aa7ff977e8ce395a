# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""W8A8 grouped GEMM: INT8 rows sorted by expert, each expert's rows times its own INT8 weights."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kernels.catalog.fills import int8, scales
from kernels.catalog.steps import gathered_matmul, grouped_matmul
from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.routing import MOE_CASES, draw_routes, offsets_of
from kernels.space import Config, Constraint, DeviceLimits, Space

if TYPE_CHECKING:
    import torch

STAGES = ("gemm1", "gemm2")


def staged(case: Case, stage: str) -> Case:
    """The GEMM of one stage of a MoE layer: gemm1 makes gate and up, gemm2 goes back to hidden."""
    hidden, intermediate = case["hidden"], case["intermediate"]
    n, k = (2 * intermediate, hidden) if stage == "gemm1" else (hidden, intermediate)
    return Case(f"{case.name}_{stage}", {**case.params, "n": n, "k": k})


CASES = tuple(staged(case, stage) for case in MOE_CASES for stage in STAGES)


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    experts, n, k = case["experts"], case["n"], case["k"]
    routes = draw_routes(case, rng, device)
    rows = routes.numel()
    return {
        "a": int8((rows, k), rng, device),
        "a_scale": scales((rows, 1), 1e-2, rng, device),
        "w": int8((experts, n, k), rng, device),
        "w_scale": scales((experts, n), 4e-4, rng, device),
        "offsets": offsets_of(routes, experts),
    }


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    a = inputs["a"]
    return {"y": torch.empty((a.shape[0], case["n"]), dtype=torch.bfloat16, device=a.device)}


def active_experts(offsets: torch.Tensor) -> int:
    return sum(high > low for low, high in pairwise(offsets.tolist()))


def cost(case: Case, inputs: Tensors) -> Cost:
    rows, n, k = inputs["a"].shape[0], case["n"], case["k"]
    active = active_experts(inputs["offsets"])
    weights = active * (n * k + 4 * n)
    return Cost(
        bytes=weights + rows * (k + 4 + 2 * n) + 8 * (case["experts"] + 1),
        operations=2 * rows * n * k,
    )


@op(
    name="grouped_gemm_w8a8",
    cases=CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("integer sums do not depend on their order; the scaling order is fixed"),
    cost=cost,
)
def grouped_gemm_w8a8(inputs: Tensors) -> Tensors:
    """Exact INT8 products summed per expert, times row scale, times column scale, to BF16."""
    return {"y": grouped_matmul(**inputs)}


@grouped_gemm_w8a8.candidate(separate=True)
def torch_gathered(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch that a graph can hold: gather each row's weights, batched product in float32."""
    outputs["y"].copy_(gathered_matmul(**inputs))


@grouped_gemm_w8a8.candidate(graph_safe=False, devices=("cpu", "cuda"))
def torch_int_mm(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """torch._int_mm per expert; reads the offsets on the host, so no graph can hold it."""
    import torch

    for expert, (low, high) in enumerate(pairwise(inputs["offsets"].tolist())):
        if high == low:
            continue
        rows = high - low
        # The CUDA kernel behind _int_mm wants more than 16 rows.
        padded = inputs["a"].new_zeros((max(32, rows), inputs["a"].shape[1]))
        padded[:rows] = inputs["a"][low:high]
        exact = torch._int_mm(padded, inputs["w"][expert].t())[:rows]
        scaled = exact.float() * inputs["a_scale"][low:high] * inputs["w_scale"][expert]
        outputs["y"][low:high] = scaled.to(torch.bfloat16)


def tile_rows_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return int(config["BLOCK_M"]) <= max(16, int(params["tokens"]))


def columns_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return int(config["BLOCK_N"]) <= int(params["n"])


def splits_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return int(config["BLOCK_K"]) * int(config["SPLIT_K"]) <= max(64, int(params["k"]))


def stages_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    steps = -(-int(params["k"]) // (int(config["BLOCK_K"]) * int(config["SPLIT_K"])))
    return int(config["num_stages"]) <= max(2, steps)


def shared_memory_fits(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    tile = (int(config["BLOCK_M"]) + int(config["BLOCK_N"])) * int(config["BLOCK_K"])
    return int(config["num_stages"]) * tile <= limits.shared_memory_bytes


def registers_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    threads = int(config["num_warps"]) * limits.warp_size
    accumulators = int(config["BLOCK_M"]) * int(config["BLOCK_N"]) // threads
    return accumulators <= ACCUMULATORS_PER_THREAD and threads * 64 <= limits.registers


ACCUMULATORS_PER_THREAD = 128
"""Half of the 255 registers a thread can have; the rest holds operands and addresses."""

GEMM_CONSTRAINTS = (
    Constraint("a tile would hold more rows than any expert can have", tile_rows_fit),
    Constraint("a tile would be wider than the matrix", columns_fit),
    Constraint("a split would have nothing to add", splits_fit),
    Constraint("more pipeline stages than steps along k", stages_fit),
    Constraint("the pipeline's tiles exceed shared memory", shared_memory_fits),
    Constraint("the accumulators exceed a thread's registers", registers_fit),
)

GEMM_SPACE = Space(
    {
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (64, 128, 256, 512),
        "SPLIT_K": (1, 2, 4, 8),
        "BY_TILE": (0, 1),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4, 5),
    },
    GEMM_CONSTRAINTS,
    default={
        "BLOCK_M": 16,
        "BLOCK_N": 32,
        "BLOCK_K": 128,
        "SPLIT_K": 1,
        "BY_TILE": 0,
        "num_warps": 4,
        "num_stages": 2,
    },
)


@grouped_gemm_w8a8.candidate(needs=("triton",), devices=("cuda", "xpu"), space=GEMM_SPACE)
def triton_grouped(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Matrix-unit tiles; one program per (row tile, column tile, split of k)."""
    from kernels.triton_kernels.grouped_gemm import launch_grouped_gemm

    launch_grouped_gemm(**inputs, out=outputs["y"], config=config)


def row_registers_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    threads = int(config["num_warps"]) * limits.warp_size
    step = min(int(config["BLOCK_K"]), max(32, int(params["k"])))
    return int(config["BLOCK_N"]) * step // 4 // threads <= ACCUMULATORS_PER_THREAD


def row_step_fits(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return int(config["BLOCK_K"]) <= max(128, int(params["k"]))


@grouped_gemm_w8a8.candidate(
    needs=("triton",),
    devices=("cuda",),
    space=Space(
        {
            "BLOCK_N": (1, 2, 4, 8, 16, 32, 64, 128),
            "BLOCK_K": (128, 256, 512, 1024, 2048),
            "num_warps": (1, 2, 4, 8),
        },
        (
            Constraint("the tile exceeds a thread's registers", row_registers_fit),
            Constraint("a step along k is longer than k", row_step_fits),
        ),
        default={"BLOCK_N": 2, "BLOCK_K": 1024, "num_warps": 1},
    ),
)
def triton_rows(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """No matrix units: one program per row and few columns, four products an instruction."""
    from kernels.triton_kernels.grouped_gemm import launch_row_gemm

    launch_row_gemm(
        **inputs,
        out=outputs["y"],
        block_n=config["BLOCK_N"],
        block_k=config["BLOCK_K"],
        num_warps=config["num_warps"],
    )
