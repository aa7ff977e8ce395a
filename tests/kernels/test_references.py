"""The references are the accepted path, shown against independent arithmetic."""

from __future__ import annotations

import pytest
import torch

from kernels import REGISTRY, Case, list_ops
from kernels.catalog import steps
from kernels.exactness import check_candidate, fresh_inputs

list_ops()


def small_cases(op: str) -> list[Case]:
    def small(case: Case) -> bool:
        return bool(case.get("experts", 0) < 256 and case.get("vocabulary", 0) < 10_000)

    return [case for case in REGISTRY[op].cases if small(case)]


@pytest.mark.parametrize("case", REGISTRY["silu_mul_quant_int8"].cases, ids=lambda c: c.name)
def test_quantisation_after_silu_and_mul_equals_the_two_steps_done_by_hand(case: Case) -> None:
    op = REGISTRY["silu_mul_quant_int8"]
    inputs = fresh_inputs(op, case, "cpu", 5)
    gate, up = inputs["gate_up"].chunk(2, dim=1)
    activated = torch.nn.functional.silu(gate.float()).to(torch.bfloat16)
    middle = (activated.float() * up.float()).to(torch.bfloat16).float()
    absmax = middle.abs().amax(1, keepdim=True).clamp_min(1e-10)
    by_hand = torch.round(middle * (torch.full_like(absmax, 127.0) / absmax)).to(torch.int8)
    made = op.reference(inputs)
    assert torch.equal(made["q"], by_hand)
    assert torch.equal(made["scale"], absmax / torch.full_like(absmax, 127.0))


@pytest.mark.parametrize("name", [op.name for op in list_ops()])
def test_every_torch_candidate_is_exact_on_every_small_case(name: str) -> None:
    op = REGISTRY[name]
    for candidate in op.candidates.values():
        if candidate.needs or candidate.name.startswith("torch_compile"):
            continue
        for case in small_cases(name):
            report = check_candidate(op, case, candidate, {}, "cpu", repeats=3, seed=11)
            # Which of equal logits torch.topk returns is not specified.
            if candidate.name != "torch_topk":
                assert report.passed, f"{candidate.name} {case.name}: {report.reason}"


def test_the_grouped_product_equals_integer_arithmetic_row_by_row() -> None:
    op = REGISTRY["grouped_gemm_w8a8"]
    inputs = fresh_inputs(op, op.case("decode_like_sparse_gemm1"), "cpu", 3)
    made = op.reference(inputs)["y"]
    expert = steps.expert_of_row(inputs["offsets"], inputs["a"].shape[0])
    for row, weights in enumerate(expert.tolist()):
        exact = inputs["w"][weights].to(torch.int64) @ inputs["a"][row].to(torch.int64)
        scaled = exact.float() * inputs["a_scale"][row] * inputs["w_scale"][weights]
        assert torch.equal(made[row], scaled.to(torch.bfloat16))


def test_float32_chunks_stay_exact_at_the_largest_values() -> None:
    k = 2 * steps.EXACT_FLOAT32_TERMS
    a = torch.full((1, k), 127, dtype=torch.int8)
    w = torch.full((1, 2, k), -127, dtype=torch.int8)
    w[0, 1, 0] = 126
    ones, offsets = torch.ones((1, 1)), torch.tensor([0, 1])
    arguments = (a, ones, w, torch.ones((1, 2)), offsets)
    assert torch.equal(steps.gathered_matmul(*arguments), steps.grouped_matmul(*arguments))


def test_offsets_start_with_zero_and_pass_over_experts_without_rows() -> None:
    counts = torch.tensor([0, 3, 0, 0, 2], dtype=torch.int32)
    made = REGISTRY["expert_offsets"].reference({"rows_per_expert": counts})["offsets"]
    assert made.tolist() == [0, 0, 3, 3, 3, 5]
    assert made.dtype == torch.int64


def test_the_prologue_sorts_by_expert_and_keeps_route_order() -> None:
    inputs = {
        "routes": torch.tensor([[2, 0], [0, 2]], dtype=torch.int32),
        "x": torch.tensor([[1], [2]], dtype=torch.int8),
        "x_scale": torch.tensor([[0.5], [0.25]]),
        "experts": torch.tensor([3], dtype=torch.int32),
    }
    made = REGISTRY["moe_prologue"].reference(inputs)
    assert made["rows_per_expert"].tolist() == [2, 0, 2]
    assert made["position"].tolist() == [[2, 0], [1, 3]]
    assert made["a"].flatten().tolist() == [1, 2, 1, 2]


def test_a_tie_goes_to_the_lowest_token_and_a_row_of_minus_infinity_to_the_first() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [float("-inf")] * 3])
    assert REGISTRY["greedy_top1"].reference({"logits": logits})["token"].tolist() == [1, 0]


def test_the_vocabulary_case_is_151936_wide() -> None:
    assert REGISTRY["greedy_top1"].case("t1_bf16")["vocabulary"] == 151_936


def test_the_decode_shape_reads_eight_experts_weights_and_little_else() -> None:
    op = REGISTRY["moe_layerlet"]
    case = op.case("decode_tp4_t1")
    assert [case[name] for name in ("experts", "hidden", "intermediate", "top_k")] == [
        256, 2048, 128, 8
    ]  # fmt: skip
    inputs = {
        "a": torch.empty((8, 2048), dtype=torch.int8),
        "offsets": torch.tensor([0, *range(1, 9), *([8] * 248)]),
    }
    cost = op.cost(case, inputs)
    assert 8 * 3 * 128 * 2048 < cost.bytes < 1.03 * 8 * 3 * 128 * 2048
    assert cost.operations == 2 * 8 * 3 * 128 * 2048


def test_the_separate_layerlet_steps_are_its_reference_on_one_decode_token() -> None:
    op = REGISTRY["moe_layerlet"]
    report = check_candidate(
        op, op.case("decode_tp4_t1"), op.pick("torch_steps"), {}, "cpu", repeats=1, seed=2
    )
    assert report.passed, report.reason
