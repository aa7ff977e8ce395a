"""What a measured rate says, and what it warns of."""

from __future__ import annotations

import pytest

from objectives import EndpointError, Workload, measure_interleaved, measure_rate
from objectives.client import Completion
from objectives.rate import intervals_ms, rate_over_99, repeat_of
from tests.objectives.conftest import Serve


def said(*events: tuple[float, int], ids: int) -> Completion:
    return Completion(
        text="",
        ids=tuple(range(ids)),
        prompt_tokens=8,
        cached_tokens=0,
        finish_reason="length",
        sent_s=0.0,
        events=events,
        ended_s=events[-1][0],
    )


def test_the_corrected_rate_leaves_out_the_wait_for_the_first_token() -> None:
    answer = said((5.0, 1), (6.0, 2), (7.0, 3), ids=3)
    row = repeat_of("p", answer, origin_s=0.0)
    assert row.tok_s == pytest.approx(1.0)
    assert row.ttft_ms == pytest.approx(5000)
    assert row.tok_s_end_to_end == pytest.approx(3 / 7)


def test_tokens_that_come_with_the_first_event_have_no_interval_before_them() -> None:
    answer = said((1.0, 4), (2.0, 8), ids=8)
    assert repeat_of("p", answer, origin_s=0.0).tok_s == pytest.approx(4.0)
    assert intervals_ms(answer) == [250.0] * 4


def test_the_rate_over_99_intervals_ends_at_token_100() -> None:
    steady = [(0.1 * n, n) for n in range(1, 101)]
    answer = said(*steady, (1000.0, 101), ids=101)
    assert rate_over_99(answer) == pytest.approx(10.0)
    assert rate_over_99(said((1.0, 1), (2.0, 2), ids=2)) is None


def test_a_rate_agrees_with_the_pace_of_the_engine_and_with_its_metrics(
    serve: Serve, workload: Workload
) -> None:
    rate = measure_rate(serve("--tok-s", "200"), workload, repeats=3, seed=0)
    assert rate.tok_s.mean == pytest.approx(200, rel=0.03)
    assert rate.tok_s_99 is not None
    assert rate.tok_s_99.mean == pytest.approx(200, rel=0.03)
    assert rate.engine is not None
    assert rate.engine.requests == 3
    assert rate.engine.decode_tok_s == pytest.approx(rate.tok_s.mean, rel=0.02)
    assert [row.prompt_tokens for row in rate.repeats] == [64] * 3
    assert rate.tok_s.low is not None
    assert rate.tok_s.low <= rate.tok_s.mean <= (rate.tok_s.high or 0)


@pytest.mark.parametrize("kind", ["suite", "text", "natural-chat", "random"])
def test_every_kind_of_prompt_has_exactly_the_tokens_asked_for(serve: Serve, kind: str) -> None:
    workload = Workload(name="w", prompts=kind, prompt_tokens=333, output_tokens=2, warmup=0)
    rate = measure_rate(serve("--tok-s", "0"), workload, repeats=3, seed=5)
    assert {row.prompt_tokens for row in rate.repeats} == {333}


def test_equal_seeds_ask_equal_prompts_and_other_seeds_others(serve: Serve) -> None:
    endpoint = serve("--tok-s", "0")
    workload = Workload(name="w", prompts="random", prompt_tokens=40, output_tokens=4, warmup=0)
    shas = [
        [row.output_sha for row in measure_rate(endpoint, workload, repeats=2, seed=s).repeats]
        for s in (1, 1, 2)
    ]
    assert shas[0] == shas[1] != shas[2]


def test_tokens_are_counted_by_id_when_one_event_holds_several(
    serve: Serve, workload: Workload
) -> None:
    rate = measure_rate(serve("--tok-s", "400", "--chunk", "4"), workload, repeats=2, seed=0)
    assert {row.output_tokens for row in rate.repeats} == {120}
    assert rate.tok_s.mean == pytest.approx(400, rel=0.04)


def test_cached_prompt_tokens_are_warned_of(serve: Serve, workload: Workload) -> None:
    rate = measure_rate(serve("--cached-tokens", "16"), workload, repeats=2, seed=0)
    assert any("32 prompt tokens came from the prefix cache" in text for text in rate.warnings)


def test_a_slow_first_repeat_is_called_a_warm_up(serve: Serve) -> None:
    workload = Workload(name="w", prompt_tokens=32, output_tokens=40, warmup=0)
    endpoint = serve("--tok-s", "200", "--first-slow", "1.3")
    rate = measure_rate(endpoint, workload, repeats=5, seed=0)
    assert any("warm-up" in text for text in rate.warnings)
    warm = measure_rate(endpoint, workload, repeats=5, seed=0)
    assert not any("warm-up" in text for text in warm.warnings)


def test_an_engine_that_corrupts_the_same_prompt_is_called_nondeterministic(serve: Serve) -> None:
    workload = Workload(name="w", prompts="text", prompt_tokens=32, output_tokens=16, warmup=0)
    endpoint = serve("--tok-s", "0", "--corrupt-probability", "0.5")
    rate = measure_rate(endpoint, workload, repeats=12, seed=0)
    assert any("not deterministic" in text for text in rate.warnings)


def test_repeats_of_an_earlier_rung_are_kept_and_not_measured_again(
    serve: Serve, workload: Workload
) -> None:
    endpoint = serve("--tok-s", "1000")
    first = measure_rate(endpoint, workload, repeats=1, seed=0)
    more = measure_rate(endpoint, workload, repeats=3, seed=0, earlier=first)
    assert more.repeats[0] == first.repeats[0]
    assert len(more.repeats) == 3
    assert len({row.prompt for row in more.repeats}) == 3
    assert measure_rate(endpoint, workload, repeats=2, seed=0, earlier=more) is more


def test_two_servers_can_take_turns(serve: Serve, workload: Workload) -> None:
    slow, fast = serve("--tok-s", "1000"), serve("--tok-s", "2000")
    control, candidate = measure_interleaved(slow, fast, workload, repeats=2, seed=0)
    assert [row.prompt for row in control.repeats] == [row.prompt for row in candidate.repeats]
    assert len(control.repeats) == 2
    assert candidate.tok_s.mean > 1.3 * control.tok_s.mean


@pytest.mark.parametrize(
    ("flags", "phase", "status"),
    [
        (("--fail-request", "2", "--fail-status", "500"), "request", 500),
        (("--die-at", "midstream:2"), "stream", None),
        (("--die-at", "request:2"), "request", None),
    ],
)
def test_an_engine_that_fails_is_an_endpoint_error_with_its_phase(
    serve: Serve, workload: Workload, flags: tuple[str, ...], phase: str, status: int | None
) -> None:
    with pytest.raises(EndpointError) as caught:
        measure_rate(serve("--tok-s", "2000", *flags), workload, repeats=3, seed=0)
    assert (caught.value.phase, caught.value.status) == (phase, status)


def test_nobody_there_is_an_endpoint_error_too(workload: Workload) -> None:
    from objectives import Endpoint

    with pytest.raises(EndpointError, match="cannot connect"):
        measure_rate(Endpoint("http://127.0.0.1:9", "m"), workload, repeats=1, seed=0)
