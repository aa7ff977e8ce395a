"""The Triton kernels' arithmetic, on a CPU, in Triton's interpreter. Skipped without Triton."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed"
    ),
]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from kernels import REGISTRY, list_ops
from kernels.exactness import check_candidate
list_ops()
for op, candidate, case, change in json.loads(sys.argv[1]):
    found = REGISTRY[op].pick(candidate)
    config = {**found.space.default, **change}
    report = check_candidate(REGISTRY[op], REGISTRY[op].case(case), found, config, "cpu",
                             repeats=2, seed=1)
    print(json.dumps([op, candidate, case, report.passed, report.reason]))
"""
RUNS: list[tuple[str, str, str, dict[str, object]]] = [
    ("per_token_quant_int8", "triton_row", "r16_w256_ties", {}),
    ("silu_mul_quant_int8", "triton_fused", "r8_i128_normal", {}),
    ("silu_mul_quant_int8", "triton_fused", "r5_i33_normal", {}),
    ("silu_mul_quant_int8", "triton_steps", "r16_i64_outlier", {}),
    ("expert_offsets", "triton_scan", "decode_like_sparse", {}),
    ("moe_prologue", "triton_fused", "tiny_sparse", {}),
    ("greedy_top1", "triton_split", "t3_small", {"SPLITS": 8, "BLOCK": 1024}),
    ("rms_norm", "triton_row", "r5_h131", {}),
    ("shared_expert_add", "triton_fused", "tiny_sparse", {}),
    ("grouped_gemm_w8a8", "triton_grouped", "tiny_sparse_gemm1", {"SPLIT_K": 2, "BLOCK_K": 64}),
    ("grouped_gemm_w8a8", "triton_grouped", "tiny_sparse_gemm2", {"BY_TILE": 1}),
    ("grouped_gemm_w8a8", "triton_rows", "tiny_sparse_gemm1", {}),
    ("moe_layerlet", "triton_row_steps", "tiny_sparse", {}),
    ("moe_layerlet", "triton_two_launches", "tiny_sparse", {"EARLY": 0}),
    ("moe_layerlet", "triton_two_launches", "tiny_sparse",
     {"EARLY": 0, "MATH": "dot", "BLOCK_N1": 16}),
]  # fmt: skip


def test_every_kernel_is_exact_in_the_interpreter() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(RUNS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    reports = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(reports) == len(RUNS)
    assert [report for report in reports if not report[3]] == []
