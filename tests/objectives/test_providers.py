"""Result files of other load generators become the same kind of rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from objectives import ProviderError, Workload, read_guidellm, read_vllm_bench

ALONE = Workload(name="w", prompt_tokens=64, output_tokens=11)
TOGETHER = ALONE.model_copy(update={"streams": 2, "requests": 2})


def vllm_file(folder: Path, **more: Any) -> Path:
    content = {
        "duration": 2.5,
        "completed": 2,
        "input_lens": [64, 64],
        "output_lens": [11, 11],
        "start_times": [100.0, 101.0],
        "ttfts": [0.2, 0.4],
        "itls": [[0.1] * 10, [0.05] * 10],
        "errors": ["", ""],
        **more,
    }
    path = folder / "vllm.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def guidellm_file(folder: Path) -> Path:
    request = {
        "request_start_time": 50.0,
        "prompt_tokens": 64,
        "output_tokens": 11,
        "time_to_first_token_ms": 200.0,
        "inter_token_latency_ms": 100.0,
    }
    faster = {**request, "request_start_time": 52.0, "inter_token_latency_ms": 50.0}
    report = {"requests": {"successful": [request, faster], "errored": [{}], "incomplete": []}}
    path = folder / "guidellm.json"
    path.write_text(json.dumps({"benchmarks": [report]}), encoding="utf-8")
    return path


def test_vllm_bench_serve_gives_a_repeat_for_each_request(tmp_path: Path) -> None:
    rate = read_vllm_bench(vllm_file(tmp_path), ALONE, identity_sha="i")
    assert [row.tok_s for row in rate.repeats] == pytest.approx([10.0, 20.0])
    assert [row.ttft_ms for row in rate.repeats] == pytest.approx([200.0, 400.0])
    assert rate.samples("decode_tok_s") == pytest.approx((10.0, 20.0))
    assert (rate.source, rate.identity_sha, rate.warnings) == ("vllm bench serve", "i", ())


def test_a_concurrent_run_is_one_repeat_with_its_whole_throughput(tmp_path: Path) -> None:
    rate = read_vllm_bench(vllm_file(tmp_path), TOGETHER)
    [row] = rate.repeats
    assert row.tok_s == pytest.approx(22 / 1.9)
    assert row.requests == 2


def test_guidellm_gives_the_same_rates(tmp_path: Path) -> None:
    rate = read_guidellm(guidellm_file(tmp_path), ALONE)
    assert [row.tok_s for row in rate.repeats] == pytest.approx([10.0, 20.0])
    assert rate.started_at == 50.0
    assert any("1 requests failed" in text for text in rate.warnings)


def test_prompts_of_another_length_and_failed_requests_are_warned_of(tmp_path: Path) -> None:
    path = vllm_file(tmp_path, input_lens=[60, 64], errors=["", "timeout"])
    rate = read_vllm_bench(path, ALONE)
    assert len(rate.repeats) == 1
    assert len(rate.warnings) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"output_throughput": 3}', "--save-detailed"), ("[]", "one JSON object"), ("x", "not JSON")],
)
def test_a_file_without_single_requests_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "r.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ProviderError, match=message):
        read_vllm_bench(path, ALONE)


def test_a_report_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"benchmarks": []}', encoding="utf-8")
    with pytest.raises(ProviderError, match="GuideLLM"):
        read_guidellm(path, ALONE)


def test_a_metric_that_a_file_does_not_hold_is_refused_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tok_s_99"):
        read_vllm_bench(vllm_file(tmp_path), ALONE).samples("tok_s_99")
