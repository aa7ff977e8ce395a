"""The engine's own view of a measurement: what its `/metrics` counted between two readings.

Only sums and counts are used, as differences. Bucket edges of a histogram are far too coarse for a
comparison at the percent level; its sum and count are exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

_LINE = re.compile(r"^vllm:([a-z0-9_]+)(?:\{([^}]*)\})?\s+(\S+)$", re.MULTILINE)
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


class EngineView(BaseModel):
    """What the engine counted while a workload ran; None where it does not tell.

    Times are means per request in ms. `decode_tok_s` is (tokens - 1) over the time from first to
    last token, summed over requests, which is the client's corrected rate seen from inside.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int
    generation_tokens: int
    prompt_tokens: int
    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    ttft_ms: float | None = None
    decode_tok_s: float | None = None
    tokens_per_step: float | None = None
    cached_tokens: int | None = None
    cache_queries: int | None = None
    cache_hits: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None without speculation."""
        if not self.draft_tokens or self.accepted_tokens is None:
            return None
        return self.accepted_tokens / self.draft_tokens


def read_counters(text: str) -> dict[str, float]:
    """Every vLLM series of a Prometheus text, summed over its labels; buckets are left out."""
    totals: dict[str, float] = {}
    for name, _labels, value in _LINE.findall(text):
        if not name.endswith(("_bucket", "_created")) and name != _PER_POSITION:
            totals[name] = totals.get(name, 0.0) + float(value)
    return totals


def engine_view(before: Mapping[str, float], after: Mapping[str, float]) -> EngineView | None:
    """What happened between two readings, or None where the engine shows no metrics."""

    def delta(name: str) -> float | None:
        return after[name] - before.get(name, 0.0) if name in after else None

    def count(name: str) -> int | None:
        found = delta(name)
        return None if found is None else round(found)

    def mean_ms(name: str) -> float | None:
        total, number = delta(f"{name}_sum"), delta(f"{name}_count")
        return 1000.0 * total / number if total is not None and number else None

    tokens, prompt = count("generation_tokens_total"), count("prompt_tokens_total")
    if tokens is None or prompt is None:
        return None
    requests = count("request_decode_time_seconds_count") or 0
    decode_s = delta("request_decode_time_seconds_sum")
    steps = delta("iteration_tokens_total_count")
    return EngineView(
        requests=requests,
        generation_tokens=tokens,
        prompt_tokens=prompt,
        queue_ms=mean_ms("request_queue_time_seconds"),
        prefill_ms=mean_ms("request_prefill_time_seconds"),
        decode_ms=mean_ms("request_decode_time_seconds"),
        ttft_ms=mean_ms("time_to_first_token_seconds"),
        decode_tok_s=(tokens - requests) / decode_s if decode_s and requests else None,
        tokens_per_step=(delta("iteration_tokens_total_sum") or 0.0) / steps if steps else None,
        cached_tokens=count("prompt_tokens_cached_total"),
        cache_queries=count("prefix_cache_queries_total"),
        cache_hits=count("prefix_cache_hits_total"),
        drafts=count("spec_decode_num_drafts_total"),
        draft_tokens=count("spec_decode_num_draft_tokens_total"),
        accepted_tokens=count("spec_decode_num_accepted_tokens_total"),
    )
