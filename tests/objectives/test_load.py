"""Concurrent workloads: streams, arrivals, goodput, and what they cost the client."""

from __future__ import annotations

import pytest

from objectives import Slo, Workload, measure_rate
from tests.objectives.conftest import Serve


def test_streams_add_up_to_their_number_times_the_pace(serve: Serve) -> None:
    workload = Workload(
        name="c8", prompt_tokens=16, output_tokens=60, warmup=0, streams=8, requests=16
    )
    rate = measure_rate(serve("--tok-s", "100"), workload, repeats=2, seed=0)
    assert rate.tok_s.mean == pytest.approx(800, rel=0.1)
    assert [row.requests for row in rate.repeats] == [16, 16]
    assert rate.engine is not None
    assert rate.engine.requests == 32


def test_open_arrivals_are_as_many_a_second_as_asked(serve: Serve) -> None:
    workload = Workload(
        name="poisson",
        prompt_tokens=8,
        output_tokens=2,
        warmup=0,
        streams=64,
        requests_per_s=100,
        requests=150,
    )
    rate = measure_rate(serve("--tok-s", "0"), workload, repeats=1, seed=3)
    assert 150 / rate.repeats[0].total_s == pytest.approx(100, rel=0.3)


def test_goodput_counts_only_requests_within_every_objective(serve: Serve) -> None:
    workload = Workload(
        name="c2", prompt_tokens=8, output_tokens=21, warmup=0, streams=2, requests=4
    )
    endpoint = serve("--tok-s", "100", "--ttft-s", "0.05")
    slos = (Slo(metric="ttft_ms", at_most=500), Slo(metric="itl_ms", at_most=100))
    kept = measure_rate(endpoint, workload, repeats=1, seed=0, slos=slos)
    assert kept.goodput_rps is not None
    assert kept.goodput_rps.mean == pytest.approx(4 / kept.repeats[0].total_s)
    tight = (*slos, Slo(metric="ttft_ms", at_most=10))
    missed = measure_rate(endpoint, workload, repeats=1, seed=0, slos=tight)
    assert missed.goodput_rps is not None
    assert missed.goodput_rps.mean == 0


def test_256_streams_cost_the_client_less_than_one_core(serve: Serve) -> None:
    workload = Workload(name="c256", prompt_tokens=32, output_tokens=60, warmup=0, streams=256)
    workload = workload.model_copy(update={"requests": 256})
    endpoint = serve("--tok-s", "10", "--max-num-seqs", "512")
    rate = measure_rate(endpoint, workload, repeats=1, seed=0)
    assert rate.repeats[0].requests == 256
    assert rate.repeats[0].output_tokens == 256 * 60
    assert rate.client_cpu < 1.0
