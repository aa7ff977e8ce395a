# ruff: noqa: ARG001, D103 -- roles and arguments are fixed by kernels.ops.Op and explained there
"""The middle of a W8A8 mixture-of-experts layer: GEMM1, SiLU-and-mul, INT8 quantisation, GEMM2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernels.catalog.fills import int8, scales
from kernels.catalog.grouped_gemm_w8a8 import active_experts, tile_rows_fit
from kernels.catalog.steps import (
    gathered_matmul,
    grouped_matmul,
    quantize_per_token,
    silu_and_mul,
)
from kernels.ops import BitExact, Case, Cost, Tensors, op
from kernels.routing import MOE_CASES, draw_routes, offsets_of
from kernels.space import Config, Constraint, DeviceLimits, Space

if TYPE_CHECKING:
    import torch


def make_inputs(case: Case, rng: torch.Generator, device: str) -> Tensors:
    experts, hidden, intermediate = case["experts"], case["hidden"], case["intermediate"]
    routes = draw_routes(case, rng, device)
    rows = routes.numel()
    return {
        "a": int8((rows, hidden), rng, device),
        "a_scale": scales((rows, 1), 1e-2, rng, device),
        "w1": int8((experts, 2 * intermediate, hidden), rng, device),
        "w1_scale": scales((experts, 2 * intermediate), 4e-4, rng, device),
        "w2": int8((experts, hidden, intermediate), rng, device),
        "w2_scale": scales((experts, hidden), 4e-4, rng, device),
        "offsets": offsets_of(routes, experts),
    }


def make_outputs(case: Case, inputs: Tensors) -> Tensors:
    import torch

    a = inputs["a"]
    return {"y": torch.empty((a.shape[0], case["hidden"]), dtype=torch.bfloat16, device=a.device)}


def cost(case: Case, inputs: Tensors) -> Cost:
    rows, hidden, intermediate = inputs["a"].shape[0], case["hidden"], case["intermediate"]
    per_expert = 3 * intermediate * hidden + 4 * (2 * intermediate + hidden)
    weights = active_experts(inputs["offsets"]) * per_expert
    return Cost(
        bytes=weights + rows * (hidden + 4 + 2 * hidden) + 8 * (case["experts"] + 1),
        operations=2 * rows * 3 * intermediate * hidden,
    )


@op(
    name="moe_layerlet",
    cases=MOE_CASES,
    make_inputs=make_inputs,
    make_outputs=make_outputs,
    exactness=BitExact("exact integer sums, and every rounding of the separate steps kept"),
    cost=cost,
)
def moe_layerlet(inputs: Tensors) -> Tensors:
    """GEMM1 -> SiLU-and-mul -> per-token INT8 -> GEMM2, as four separate accepted steps."""
    i = inputs
    gate_up = grouped_matmul(i["a"], i["a_scale"], i["w1"], i["w1_scale"], i["offsets"])
    q, scale = quantize_per_token(silu_and_mul(gate_up))
    return {"y": grouped_matmul(q, scale, i["w2"], i["w2_scale"], i["offsets"])}


@moe_layerlet.candidate(separate=True)
def torch_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Plain torch that a graph can hold, step by step."""
    i = inputs
    gate_up = gathered_matmul(i["a"], i["a_scale"], i["w1"], i["w1_scale"], i["offsets"])
    q, scale = quantize_per_token(silu_and_mul(gate_up))
    outputs["y"].copy_(gathered_matmul(q, scale, i["w2"], i["w2_scale"], i["offsets"]))


SEPARATE_SPACE = Space(
    {
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N1": (16, 32, 64),
        "BLOCK_K1": (128, 256, 512),
        "SPLIT_K1": (1, 2, 4, 8),
        "BLOCK_N2": (32, 64, 128),
        "BY_TILE": (0, 1),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4),
    },
    (Constraint("a tile would hold more rows than any expert can have", tile_rows_fit),),
    default={
        "BLOCK_M": 16,
        "BLOCK_N1": 16,
        "BLOCK_K1": 512,
        "SPLIT_K1": 1,
        "BLOCK_N2": 64,
        "BY_TILE": 0,
        "num_warps": 4,
        "num_stages": 4,
    },
)


@moe_layerlet.candidate(
    needs=("triton",), devices=("cuda", "xpu"), space=SEPARATE_SPACE, separate=True
)
def triton_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Four tuned Triton kernels, one per step, as an engine's separate ops do."""
    from kernels.triton_kernels.layerlet_steps import launch_separate

    launch_separate(inputs, outputs["y"], config)


ROW_STEPS_SPACE = Space(
    {
        "BLOCK_N1": (1, 2, 4, 8),
        "BLOCK_K1": (1024, 2048),
        "BLOCK_N2": (16, 32, 64, 128),
        "num_warps": (1, 2, 4),
        "num_warps2": (1, 2, 4),
    },
    default={"BLOCK_N1": 2, "BLOCK_K1": 1024, "BLOCK_N2": 64, "num_warps": 1, "num_warps2": 1},
)


@moe_layerlet.candidate(needs=("triton",), devices=("cuda",), space=ROW_STEPS_SPACE, separate=True)
def triton_row_steps(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """Four Triton kernels, one per step, with the row-by-row GEMM that suits one token best."""
    from kernels.triton_kernels.layerlet_steps import launch_separate_rows

    launch_separate_rows(inputs, outputs["y"], config)


def rows_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    if config["MATH"] == "dot":
        return int(config["BLOCK_M"]) <= max(16, int(params["tokens"]))
    return int(config["BLOCK_M"]) == 16 and not config["BY_TILE"]


def columns_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    narrowest = 16 if config["MATH"] == "dot" else 1
    return narrowest <= int(config["BLOCK_N1"]) <= int(params["intermediate"])


def steps_along_k_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return int(config["BLOCK_K1"]) <= max(512, int(params["hidden"]))


def shared_memory_fits(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    if config["MATH"] != "dot":
        return True
    tile = (int(config["BLOCK_M"]) + 2 * int(config["BLOCK_N1"])) * int(config["BLOCK_K1"])
    return int(config["num_stages"]) * tile <= limits.shared_memory_bytes


def registers_fit(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    """The dp4a path keeps both weight tiles of a step in registers, four bytes in each."""
    threads = int(config["num_warps"]) * limits.warp_size
    if config["MATH"] == "dot":
        return 2 * int(config["BLOCK_M"]) * int(config["BLOCK_N1"]) // threads <= 128
    first = 2 * int(config["BLOCK_N1"]) * int(config["BLOCK_K1"]) // 4 // threads
    second_threads = int(config["num_warps2"]) * limits.warp_size
    second = int(config["BLOCK_N2"]) * int(params["intermediate"]) // 4 // second_threads
    return first <= 128 and second <= 128


def one_stage_without_dot(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    return config["MATH"] == "dot" or int(config["num_stages"]) == 2


TWO_LAUNCH_SPACE = Space(
    {
        "MATH": ("dot", "dp4a"),
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N1": (1, 2, 4, 8, 16, 32),
        "BLOCK_K1": (256, 512, 1024, 2048),
        "BLOCK_N2": (16, 32, 64, 128, 256),
        "BY_TILE": (0, 1),
        "EARLY": (0, 1),
        "num_warps": (1, 2, 4, 8),
        "num_warps2": (1, 2, 4),
        "num_stages": (2, 3, 4),
    },
    (
        Constraint("a tile would hold more rows than any expert can have", rows_fit),
        Constraint("a column tile does not fit the intermediate size", columns_fit),
        Constraint("a step along k is longer than k", steps_along_k_fit),
        Constraint("pipeline stages mean nothing without matrix-unit tiles", one_stage_without_dot),
        Constraint("the pipeline's tiles exceed shared memory", shared_memory_fits),
        Constraint("the tiles exceed a thread's registers", registers_fit),
    ),
    default={
        "MATH": "dp4a",
        "BLOCK_M": 16,
        "BLOCK_N1": 1,
        "BLOCK_K1": 1024,
        "BLOCK_N2": 64,
        "BY_TILE": 0,
        "EARLY": 1,
        "num_warps": 1,
        "num_warps2": 1,
        "num_stages": 2,
    },
)


@moe_layerlet.candidate(needs=("triton",), devices=("cuda",), space=TWO_LAUNCH_SPACE)
def triton_two_launches(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """GEMM1 with SiLU-and-mul in its epilogue; GEMM2 with the quantisation in its prologue.

    EARLY lets each kernel be launched under its predecessor's end, and the second one fetch its
    weights while the first still runs.
    """
    from kernels.triton_kernels.layerlet import launch_two

    launch_two(inputs, outputs["y"], config)


def programs_are_resident(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    """All programs of a row wait for one another, so all must fit on the device at once."""
    groups = int(params["intermediate"]) // int(config["BLOCK_N1"])
    programs = int(params["tokens"]) * int(params["top_k"]) * groups
    threads = int(config["num_warps"]) * limits.warp_size
    per_unit = limits.registers // (threads * ASSUMED_REGISTERS_PER_THREAD)
    return programs <= limits.units * per_unit


ASSUMED_REGISTERS_PER_THREAD = 128


def groups_divide(config: Config, params: Mapping[str, Any], limits: DeviceLimits) -> bool:
    intermediate, hidden = int(params["intermediate"]), int(params["hidden"])
    block = int(config["BLOCK_N1"])
    if block > intermediate or intermediate % block:
        return False
    groups = intermediate // block
    columns = hidden // groups
    power_of_two = columns > 0 and columns & (columns - 1) == 0
    return power_of_two and hidden % groups == 0 and steps_along_k_fit(config, params, limits)


def one_launch_registers_fit(
    config: Config, params: Mapping[str, Any], limits: DeviceLimits
) -> bool:
    threads = int(config["num_warps"]) * limits.warp_size
    intermediate, hidden = int(params["intermediate"]), int(params["hidden"])
    block = int(config["BLOCK_N1"])
    first = 2 * block * int(config["BLOCK_K1"]) // 4 // threads
    second = (hidden * block // intermediate) * intermediate // 4 // threads
    return first + second <= 144


ONE_LAUNCH_SPACE = Space(
    {
        "BLOCK_N1": (1, 2, 4, 8, 16, 32),
        "BLOCK_K1": (512, 1024, 2048),
        "PREFETCH": (0, 1),
        "EARLY": (0, 1),
        "num_warps": (1, 2, 4, 8),
    },
    (
        Constraint("the programs of a row do not divide its columns evenly", groups_divide),
        Constraint("the tiles exceed a thread's registers", one_launch_registers_fit),
        Constraint(
            "programs that wait for one another would not all be resident", programs_are_resident
        ),
    ),
    default={"BLOCK_N1": 4, "BLOCK_K1": 1024, "PREFETCH": 1, "EARLY": 1, "num_warps": 4},
)


@moe_layerlet.candidate(needs=("triton",), devices=("cuda",), space=ONE_LAUNCH_SPACE)
def triton_one_launch(inputs: Tensors, outputs: Tensors, config: Config) -> None:
    """All four steps in one kernel: the programs of a row meet at a counter between the GEMMs."""
    from kernels.triton_kernels.layerlet import launch_one

    launch_one(inputs, outputs["y"], config)
