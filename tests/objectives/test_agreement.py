"""Engine and client views of one measurement, and what is said when they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from objectives import Workload
from objectives.agreement import doubts
from objectives.client import Completion
from objectives.engine_view import EngineView, engine_view, read_counters

METRICS = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 512.0
vllm:generation_tokens_total{engine="1",model_name="m"} 488.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 256.0
vllm:request_decode_time_seconds_bucket{engine="0",le="1.0",model_name="m"} 3.0
vllm:request_decode_time_seconds_sum{engine="0",model_name="m"} 9.96
vllm:request_decode_time_seconds_count{engine="0",model_name="m"} 4.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 0.02
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 4.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 1256.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 628.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 216.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 90.0
"""
WORKLOAD = Workload(name="w", prompt_tokens=8, output_tokens=101)


def answer(tok_s: float, per_event: int = 1) -> Completion:
    events = tuple((n / tok_s, n) for n in range(1, 102, per_event))
    return Completion(
        text="",
        ids=tuple(range(events[-1][1])),
        prompt_tokens=8,
        cached_tokens=0,
        finish_reason="length",
        sent_s=0.0,
        events=events,
        ended_s=events[-1][0],
    )


def view(decode_tok_s: float, requests: int = 1) -> EngineView:
    return EngineView(
        requests=requests, generation_tokens=101, prompt_tokens=8, decode_tok_s=decode_tok_s
    )


def test_the_engines_view_comes_from_sums_and_counts_over_all_engines() -> None:
    seen = engine_view({}, read_counters(METRICS))
    assert seen is not None
    assert seen.generation_tokens == 1000
    assert seen.decode_tok_s == pytest.approx((1000 - 4) / 9.96)
    assert seen.queue_ms == pytest.approx(5.0)
    assert seen.tokens_per_step == pytest.approx(2.0)
    assert seen.acceptance_rate == pytest.approx(0.72)
    assert seen.drafts == 100


def test_only_what_happened_in_between_is_counted() -> None:
    before = read_counters(METRICS)
    seen = engine_view(before, read_counters(METRICS))
    assert seen is not None
    assert seen.generation_tokens == 0
    assert seen.decode_tok_s is None
    assert engine_view({}, {}) is None


def test_two_percent_between_client_and_engine_is_tolerated_and_three_is_not() -> None:
    told = doubts(WORKLOAD, [], [answer(100)], view(101.5), client_cpu=0.1)
    assert told == ()
    [doubt] = doubts(WORKLOAD, [], [answer(100)], view(103.5), client_cpu=0.1)
    assert "-3.4 %" in doubt
    assert "no cause found" in doubt


@pytest.mark.parametrize(
    ("said", "cpu", "cause"),
    [(answer(100), 0.95, "95 % of a core"), (answer(100, per_event=5), 0.1, "tokens on average")],
)
def test_the_likely_cause_of_a_disagreement_is_looked_for(
    said: Completion, cpu: float, cause: str
) -> None:
    [doubt] = doubts(WORKLOAD, [], [said], view(90.0), client_cpu=cpu)
    assert cause in doubt


def test_requests_of_somebody_else_are_noticed() -> None:
    [doubt] = doubts(WORKLOAD, [], [answer(100)], view(100, requests=3), client_cpu=0.1)
    assert "somebody else" in doubt


def test_answers_that_end_early_although_they_must_not_are_noticed() -> None:
    longer = WORKLOAD.model_copy(update={"output_tokens": 200})
    [doubt] = doubts(longer, [], [answer(100)], None, client_cpu=0.1)
    assert "fewer than 200 tokens" in doubt


def test_the_real_engines_metrics_are_read() -> None:
    sample = Path(__file__).parent / "data" / "vllm-0.32-metrics.txt"
    seen = engine_view({}, read_counters(sample.read_text(encoding="utf-8")))
    assert seen is not None
    assert seen.requests > 0
    assert seen.decode_tok_s is not None
    assert seen.prefill_ms is not None
