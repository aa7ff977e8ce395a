# ruff: noqa: E501 - the table reads better with a trial a line
"""The lab's space: every path that the lab rejected is refused, with its reason, until it reopens."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from search_spaces import CATALOG, Refusal, SearchSpace, SpaceDocument, Value

ALLOWED = {"w8a8_allow": 1, "w8a8_offsets": 1}
PROLOGUE = {**ALLOWED, "moe_prologue": 1, "moe_prologue_capture": 1}
SMALL = {"spec": "ngram", "capture_sizes": "one_two_four"}
EAGER = {"spec": "ngram", "graph": "none"}
GATES = ("oracle_parity", "device_loss_fix", "row_aligned_traces", "recurrent_state_reproducer")

# Trial or section of the lab's notes, what it tried, the code of the rejection, and the evidence
# that would reopen it.
REJECTED: list[tuple[str, dict[str, Value], str, tuple[str, ...]]] = [
    ("prefix0-sync", {"prefix0_replay": "sync"}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("prefix0-zero-empty", {"prefix0_replay": "zero_empty"}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("prefix0-standard", {"prefix0_replay": "standard"}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("p0strong2", {"strong_output": 1}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("p0pool1", {"per_wrapper_pool": 1}, "device_lost", ("device_loss_fix",)),
    ("p0noglobal2", {"no_global_pool": 1}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("cloneall1", {"clone_outputs": "all"}, "canary_mismatch", ("boundary_reproducer",)),
    ("targeted-clone-5-6", {"clone_outputs": "two"}, "canary_mismatch", ("boundary_reproducer",)),
    ("e3", {"static_input": "broad"}, "compile_error", ("boundary_reproducer",)),
    ("e2", {"sanitize_inputs": 1}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("copy-inputs", {"copy_inputs": True}, "compile_error", ("boundary_reproducer",)),
    ("b7", {"static_input": "narrow", "gdn_fallback": "0", "sampler_torch": 0}, "canary_mismatch", ("gdn_state_repair", "first_divergence_trace")),
    ("b2deep1", {"gdn_fallback": "0", "prefill_replay_off": 0}, "canary_mismatch", ("gdn_state_repair",)),
    ("b12", {"gdn_fallback": "0"}, "canary_mismatch", ("gdn_state_repair",)),
    ("d1", {"gdn_fallback": "decode,prefill"}, "too_slow", ("faster_gdn_fallback",)),
    ("b3", {"sampler_torch": 0}, "canary_mismatch", ("first_divergence_trace",)),
    ("b10", {"sampler_torch": 0, "sampler_xpu": "xpu_topk"}, "canary_mismatch", ("first_divergence_trace",)),
    ("b11", {"sampler_torch": 0, "sampler_xpu": "xpu_topk_sync"}, "canary_mismatch", ("first_divergence_trace",)),
    ("nocache", {"sampler_torch": 0, "sampler_xpu": "xpu_topk_nocache"}, "canary_mismatch", ("first_divergence_trace",)),
    ("bf16g1", {"sampler_bf16": 1}, "canary_mismatch", ("tie_order_proof",)),
    ("fp32topkfast1", {"sampler_code": "fp32_shortcut"}, "canary_mismatch", ("first_divergence_trace",)),
    ("torch-max", {"sampler_code": "torch_max"}, "canary_mismatch", ("first_divergence_trace",)),
    ("maxsafe1", {"sampler_code": "max_kernel"}, "canary_mismatch", ("first_divergence_trace",)),
    ("b4", {"sampler_code": "local_argmax_reuse"}, "device_lost", ("device_loss_fix",)),
    ("f1", {"clone_sampled": 1}, "canary_mismatch", ("first_divergence_trace",)),
    ("samptpsync1", {"sync_sampled": 1}, "device_lost", ("device_loss_fix",)),
    ("a1", {**ALLOWED, "w8a8_prefix_op": 1}, "device_lost", ("device_loss_fix",)),
    ("a4", {**ALLOWED, "moe_layerlet": 1}, "too_slow", ("layerlet_redesign",)),
    ("stacklayer1", {**ALLOWED, "moe_layerlet": 1, "static_input": "narrow"}, "canary_mismatch", ("real_routing_oracle", "layerlet_redesign")),
    ("prol1", {"moe_prologue": 1, "moe_prologue_capture": 1}, "device_lost", ("device_loss_fix", "multi_rank_reproducer")),
    ("prolc1cap1", {**PROLOGUE, "moe_layerlet": 1, "capture_sizes": "one"}, "device_lost", ("device_loss_fix", "multi_rank_reproducer", "layerlet_redesign")),
    ("pprolc1", {**PROLOGUE, "persistent_scratch": 1, "capture_sizes": "one"}, "device_lost", ("device_loss_fix", "multi_rank_reproducer", "layerlet_redesign")),
    ("persist1", {"persistent_scratch": 1}, "too_slow", ("layerlet_redesign",)),
    ("mode123", {"onednn_capture": 1}, "graph_event_wait", ("graph_safe_wait",)),
    ("nocontig1", {"act_handoff": "as_is"}, "canary_mismatch", ("strided_second_product",)),
    ("a19", {"shared_stream": 1}, "graph_event_wait", ("graph_safe_wait",)),
    ("overlap", {"shared_overlap": 1}, "graph_event_wait", ("graph_safe_wait",)),
    ("a21", {"shared_act_quant": 1}, "canary_mismatch", ("aliasing_trace", "rebuilt_kernels")),
    ("sharedact1", {"shared_act_workspace": 1}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("g2deep1", {"shared_add_allreduce": 1}, "too_slow", ("faster_collectives",)),
    ("addinplace1", {"shared_add_inplace": 1}, "canary_mismatch", ("aliasing_trace",)),
    ("oraclefresh1", {"spec": "ngram", "spec_k": 1}, "device_lost", GATES),
    ("oraclec1cap2", {**SMALL, "spec_k": 1}, "parity_mismatch", GATES),
    ("eager1", {**EAGER, "spec_k": 1, "async_scheduling": False}, "parity_mismatch", GATES),
    ("m4", {**SMALL, "spec_k": 2}, "parity_mismatch", GATES),
    ("k4", {**SMALL, "spec_k": 4}, "parity_mismatch", GATES),
    ("m7", {**SMALL, "spec_k": 2, "spec_repair": "suppress_replacement"}, "engine_hung", GATES),
    ("m20", {**SMALL, "spec_k": 2, "spec_repair": "margin_bonus"}, "parity_mismatch", GATES),
    ("m23", {**SMALL, "spec_k": 2, "spec_repair": "preempt"}, "parity_mismatch", GATES),
    ("m24", {**SMALL, "spec_k": 2, "spec_repair": "recompute_row"}, "parity_mismatch", GATES),
    ("nobonus-filter", {**SMALL, "bonus_off": 1, "bonus_filter_input": 1}, "device_lost", GATES),
    ("g28", {**EAGER, "bonus_off": 1, "bonus_recompute": 1}, "parity_mismatch", GATES),
    ("m20-filter", {**SMALL, "bonus_filter_cache": 1}, "parity_mismatch", GATES),
    ("skipd2h", {**SMALL, "skip_accepted_copy": 1}, "device_lost", GATES),
    ("no-mamba-blocks", {**SMALL, "no_mamba_blocks": 1}, "parity_mismatch", GATES),
    ("gdn-draftonly", {**SMALL, "draft_only_commit": 1}, "engine_hung", GATES),
    ("storeall", {**SMALL, "store_accepted_only": 0}, "device_lost", GATES),
    ("graph-gdnserial", {**SMALL, "serial_gdn": 1}, "rpc_timeout", GATES),
    ("serialrecur1", {**EAGER, "serial_gdn": 1}, "parity_mismatch", GATES),
    ("serialconv1", {**EAGER, "serial_gdn": 1, "serial_conv": 1}, "parity_mismatch", GATES),
    ("fix1", {**SMALL, "serial_gdn": 1, "serial_conv": 1, "serial_packed": 1}, "parity_mismatch", GATES),
    ("skip-draft", {**EAGER, "serial_gdn": 1, "serial_skip_draft": 1}, "parity_mismatch", GATES),
    ("g31", {**EAGER, "serial_gdn": 1, "serial_no_commit": 1}, "parity_mismatch", GATES),
    ("g24", {**EAGER, "fa_serial": "progressive"}, "parity_mismatch", GATES),
    ("g26", {**EAGER, "fa_serial": "same"}, "parity_mismatch", GATES),
    ("a8", {"mixed_workspace": 0}, "too_slow", ("device_local_tokens",)),
    ("dirtycur1", {"dirty_commit": "whole", "metadata_copy_allow": 1}, "device_lost", ("device_loss_fix",)),
    ("dirtyrange1", {"dirty_commit": "range", "metadata_copy_allow": 1}, "canary_mismatch", ("graph_lifetime_fix",)),
    ("gmem95", {"gpu_memory_utilization": 0.95}, "too_slow", ("memory_headroom_needed",)),
    ("tp2safe1", {"tp_size": 2}, "too_slow", ("faster_kernels",)),
    ("tnoop2", {"timing_noop": "by_flag"}, "canary_mismatch", ("lane_control_passed",)),
    ("tnoop1", {"timing_noop": "always"}, "compile_error", ("compiler_fix",)),
]  # fmt: skip


@cache
def lab() -> SearchSpace:
    return SpaceDocument.read(CATALOG / "qwen36-xpu-lab.yaml").space()


def refusals(values: dict[str, Value], **facts: Value) -> list[Refusal]:
    given = {f"evidence.{name}": value for name, value in facts.items()}
    return lab().refusals(lab().configure(values), given)


@pytest.mark.parametrize(("trial", "values", "code", "evidence"), REJECTED, ids=str)
def test_is_refused_with_its_reason_and_reopens_with_its_evidence(
    trial: str, values: dict[str, Value], code: str, evidence: tuple[str, ...]
) -> None:
    known = [one for one in refusals(values) if one.code == "known_rejected"]
    assert code in [one.source_code for one in known]
    assert all("it reopens when evidence." in one.reason for one in known)
    assert all("(seen in " in one.reason for one in known)
    assert refusals(values, **dict.fromkeys(evidence, True)) == []
    assert refusals(values, **dict.fromkeys(evidence, False))


def test_every_dead_end_of_the_space_is_one_that_the_list_above_reaches() -> None:
    reached: set[str] = set()
    for _, values, _, _ in REJECTED:
        reached |= {one.rule for one in refusals(values) if one.code == "known_rejected"}
    every = {str(one.where) for one in lab().rejected}
    assert every - reached == {"kernels.build == 'rebuilt-20260615'"}


def test_the_slow_rebuilt_binary_is_known_by_its_build() -> None:
    control = lab().control()
    (refusal,) = lab().refusals(control, {"kernels.build": "rebuilt-20260615"})
    assert refusal.source_code == "too_slow"
    assert lab().refusals(control, {"kernels.build": "backup-20260612"}) == []


@pytest.mark.parametrize(
    "values",
    [
        {"w8a8_offsets": 1},
        {"w8a8_allow": 1, "w8a8_prefix_op": 1},
        {"w8a8_allow": 1, "moe_layerlet": 1},
        {"moe_prologue": 1},
        {"moe_prologue_capture": 1},
        {"persistent_scratch": 1, "mixed_workspace": 0},
        {"dirty_commit": "whole"},
        {"decode_timing_every": 16},
        {"shared_act_quant": 1},
    ],
    ids=str,
)
def test_guards_fail_closed(values: dict[str, Any]) -> None:
    assert "guard" in [one.code for one in refusals(values)]


def test_every_accepted_base_is_open() -> None:
    assert len(lab().bases) == 5
    for name in lab().bases:
        assert lab().refusals(lab().starting_point(name)) == [], name


def test_the_control_launches_the_promoted_base() -> None:
    control = lab().control()
    assert control.args["compilation-config"] == {"cudagraph_mode": "PIECEWISE"}
    expected = {
        "XPU_GRAPH": "1",
        "VLLM_XPU_ENABLE_XPU_GRAPH": "1",
        "VLLM_XPU_FORCE_GRAPH_WITH_COMM": "1",
        "VLLM_XPU_GRAPH_NOOP_COMM_CAPTURE": "1",
        "VLLM_XPU_GDN_NATIVE_FALLBACK": "prefill",
        "VLLM_XPU_GDN_PREFILL_RECURRENT_FALLBACK": "1",
        "VLLM_XPU_DISABLE_PREFILL_CUDAGRAPH_REPLAY": "1",
        "VLLM_XPU_GREEDY_SAMPLE_TOPK_FALLBACK": "1",
        "VLLM_XPU_INT8_MOE_MIXED_WORKSPACE": "1",
    }
    assert expected.items() <= control.env.items()
    assert control.args["gpu-memory-utilization"] == 0.9
