"""On a GPU: faults are caught under graph replay, and shipped kernels are exact."""

from __future__ import annotations

import pytest
import torch

import kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_planted_faults_are_caught_under_graph_replay() -> None:
    outcomes = kernels.self_test(repeats=40)
    assert [outcome for outcome in outcomes if not outcome.as_expected] == []
    assert any("cuda_graph" in outcome.reason for outcome in outcomes)


def test_the_fused_quantisation_is_bit_exact_on_all_cases() -> None:
    table = kernels.check(["silu_mul_quant_int8"], candidates=["triton_fused"], repeats=200)
    assert {row.status for row in table.rows} == {"exact"}


def test_the_layerlet_at_one_token_is_twice_as_fast_as_the_separate_steps() -> None:
    table = kernels.bench(["moe_layerlet"], cases=["decode_tp4_t1"])
    rows = {row.candidate: row for row in table.rows}
    fused = rows["triton_two_launches"]
    assert fused.status == "exact"
    assert fused.speedup is not None
    assert fused.speedup >= 2
