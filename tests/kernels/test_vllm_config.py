"""Tuned tiles in the engine's own file, and as a knob."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernels
from kernels import Ceilings, DeviceLimits, KernelError, KernelTrial, TuneResult
from kernels.vllm_config import file_name

TILE = {
    "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256, "SPLIT_K": 1, "BY_TILE": 0,
    "num_warps": 4, "num_stages": 3,
}  # fmt: skip


def result(tokens: int, *, tile: dict[str, int] | None = None) -> TuneResult:
    case = kernels.REGISTRY["grouped_gemm_w8a8"].case(f"decode_tp4_t{tokens}_gemm1")
    best = None if tile is None else KernelTrial(0, tile, "exact", "", us=5.0)
    return TuneResult(
        "grouped_gemm_w8a8", case, "triton_grouped",
        {"device": "NVIDIA H200", "triton": "3.6.0"}, DeviceLimits(1, 1, 1, 1),
        Ceilings(1, 1, 1, 1, 1), (), best, None, None, None,
    )  # fmt: skip


def test_the_file_has_the_name_and_keys_that_vllm_reads(tmp_path: Path) -> None:
    path = kernels.write_fused_moe_config([result(8, tile=TILE), result(1, tile=TILE)], tmp_path)
    assert path.name == "E=256,N=128,device_name=NVIDIA_H200.json"
    content = json.loads(path.read_text())
    assert content["triton_version"] == "3.6.0"
    assert list(content) == ["triton_version", "1", "8"]
    assert content["1"] == {
        "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256,
        "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3,
    }  # fmt: skip


def test_device_families_and_dtypes_are_named_as_vllm_names_them() -> None:
    assert file_name(8, 14336, "NVIDIA H200 NVL") == "E=8,N=14336,device_name=NVIDIA_H200.json"
    assert file_name(8, 64, "NVIDIA A100-SXM4-80GB", "fp8_w8a8") == (
        "E=8,N=64,device_name=NVIDIA_A100-SXM4-80GB,dtype=fp8_w8a8.json"
    )


def test_a_result_without_a_proven_tile_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="no proven tile"):
        kernels.write_fused_moe_config([result(1)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_knob_offers_the_engines_own_tiles_and_ours(tmp_path: Path) -> None:
    knob = kernels.endpoint_knob(tmp_path)["moe_tiles"]
    assert knob["env"] == "VLLM_TUNED_CONFIG_FOLDER"
    assert knob["choices"] == [None, str(tmp_path)]
