"""Rates built in place, for the tests of what is decided from them."""

from __future__ import annotations

from collections.abc import Sequence

from objectives import Rate, Repeat, Workload
from objectives.statistics import percentiles, summarize

WORKLOAD = Workload(name="w", prompt_tokens=64, output_tokens=101)


def rate_of(
    values: Sequence[float],
    *,
    prompts: Sequence[str] = (),
    at: float = 0.0,
    workload: Workload = WORKLOAD,
    ttft_ms: float = 100.0,
) -> Rate:
    """A session whose repeats ran at `values` tokens per second."""
    rows = tuple(
        Repeat(
            prompt=prompts[index] if prompts else f"p{index}",
            prompt_tokens=64,
            output_tokens=101,
            cached_tokens=0,
            ttft_ms=ttft_ms,
            decode_s=100 / value,
            total_s=100 / value + ttft_ms / 1000,
            tok_s=value,
            tok_s_99=value,
            tok_s_end_to_end=101 / (100 / value + ttft_ms / 1000),
            output_sha="s",
            started_at_s=float(index),
        )
        for index, value in enumerate(values)
    )
    return Rate(
        tok_s=summarize([row.tok_s for row in rows]),
        tok_s_99=None,
        tok_s_end_to_end=summarize([row.tok_s_end_to_end for row in rows]),
        ttft_ms=summarize([row.ttft_ms for row in rows]),
        itl_ms=percentiles([1000 / value for value in values]),
        e2e_ms=percentiles([1000 * row.total_s for row in rows]),
        ttft_percentiles_ms=percentiles([row.ttft_ms for row in rows]),
        repeats=rows,
        engine=None,
        workload=workload,
        started_at=at,
    )
