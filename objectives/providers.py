"""Rates measured by other tools: the result files of `vllm bench serve` and of GuideLLM.

Both are read per request, so that they become the same `Rate` as our own, with its repeats. What a
file does not tell stays empty: neither holds token ids, so neither can show determinism, and
neither reads the engine's counters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from objectives.rate import Rate, Repeat
from objectives.statistics import percentiles, summarize
from objectives.workload import Workload


class ProviderError(ValueError):
    """A result file cannot be read as a rate; the message names the file and what is missing."""


class Request(BaseModel):
    """One request as another tool saw it; times in seconds, `gaps_s` between its events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    started_at: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    gaps_s: tuple[float, ...]

    @property
    def decode_s(self) -> float:
        """Time from first to last token."""
        return sum(self.gaps_s)

    @property
    def total_s(self) -> float:
        """Time from the request to its last token."""
        return self.ttft_s + self.decode_s


def read_vllm_bench(path: Path, workload: Workload, *, identity_sha: str | None = None) -> Rate:
    """A rate from the file of `vllm bench serve --save-result --save-detailed`.

    Raises ProviderError; without `--save-detailed` the file has only means, which make no repeats.
    """
    content = _read(path)
    if "itls" not in content or "output_lens" not in content:
        raise ProviderError(f"{path}: holds no single requests; run it with --save-detailed.")
    starts = content.get("start_times") or [0.0] * len(content["itls"])
    errors = content.get("errors") or [""] * len(content["itls"])
    rows = zip(
        starts,
        content["input_lens"],
        content["output_lens"],
        content["ttfts"],
        content["itls"],
        errors,
        strict=True,
    )
    requests = [
        Request(
            started_at=start,
            prompt_tokens=prompt,
            output_tokens=output,
            ttft_s=ttft,
            gaps_s=tuple(gaps),
        )
        for start, prompt, output, ttft, gaps, error in rows
        if not error
    ]
    failed = len(errors) - len(requests)
    return _rate(path, requests, failed, workload, "vllm bench serve", identity_sha)


def read_guidellm(
    path: Path, workload: Workload, *, benchmark: int = 0, identity_sha: str | None = None
) -> Rate:
    """A rate from a JSON report of GuideLLM; `benchmark` picks one of a sweep.

    Raises ProviderError. GuideLLM keeps the mean time between tokens of each request, not each
    single one, so the percentiles of that latency are percentiles over requests.
    """
    try:
        report = _read(path)["benchmarks"][benchmark]["requests"]
        rows: Sequence[Mapping[str, Any]] = report["successful"]
        failed = len(report.get("errored") or ()) + len(report.get("incomplete") or ())
        requests = [
            Request(
                started_at=row["request_start_time"],
                prompt_tokens=row["prompt_tokens"],
                output_tokens=row["output_tokens"],
                ttft_s=row["time_to_first_token_ms"] / 1000,
                gaps_s=(row["inter_token_latency_ms"] / 1000,) * (row["output_tokens"] - 1),
            )
            for row in rows
        ]
    except (KeyError, IndexError, TypeError) as error:
        raise ProviderError(
            f"{path}: is not a GuideLLM report with requests ({error!r})."
        ) from None
    return _rate(path, requests, failed, workload, "guidellm", identity_sha)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProviderError(f"{path}: cannot read this file ({error.strerror}).") from None
    except ValueError as error:
        raise ProviderError(f"{path}: is not JSON ({error}).") from None
    if not isinstance(content, dict):
        raise ProviderError(f"{path}: must hold one JSON object.")
    return content


def _rate(
    path: Path,
    requests: Sequence[Request],
    failed: int,
    workload: Workload,
    source: str,
    identity_sha: str | None,
) -> Rate:
    usable = [request for request in requests if request.output_tokens > 1 and request.decode_s > 0]
    if not usable:
        raise ProviderError(f"{path}: holds no request that gave more than one token.")
    warnings = []
    if failed:
        warnings.append(f"{failed} requests failed and are not part of this rate.")
    if any(request.prompt_tokens != workload.prompt_tokens for request in usable):
        warnings.append(
            f"not every prompt has the {workload.prompt_tokens} tokens of the workload."
        )
    origin_s = min(request.started_at for request in usable)
    if workload.is_concurrent:
        rows = [_together(usable, origin_s)]
    else:
        rows = [_alone(index, request, origin_s) for index, request in enumerate(usable)]
    return Rate(
        tok_s=summarize([row.tok_s for row in rows]),
        tok_s_99=None,
        tok_s_end_to_end=summarize([row.tok_s_end_to_end for row in rows]),
        ttft_ms=summarize([row.ttft_ms for row in rows]),
        itl_ms=percentiles([1000 * gap for request in usable for gap in request.gaps_s]),
        e2e_ms=percentiles([1000 * request.total_s for request in usable]),
        ttft_percentiles_ms=percentiles([1000 * request.ttft_s for request in usable]),
        repeats=tuple(rows),
        engine=None,
        workload=workload,
        warnings=tuple(warnings),
        identity_sha=identity_sha,
        started_at=origin_s,
        source=source,
    )


def _alone(index: int, request: Request, origin_s: float) -> Repeat:
    return Repeat(
        prompt=f"request-{index}",
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        cached_tokens=None,
        ttft_ms=1000 * request.ttft_s,
        decode_s=request.decode_s,
        total_s=request.total_s,
        tok_s=(request.output_tokens - 1) / request.decode_s,
        tok_s_99=None,
        tok_s_end_to_end=request.output_tokens / request.total_s,
        output_sha="",
        started_at_s=request.started_at - origin_s,
    )


def _together(requests: Sequence[Request], origin_s: float) -> Repeat:
    """All requests of a concurrent run as one repeat, as in `objectives.load`."""
    number = len(requests)
    span_s = max(request.started_at + request.total_s for request in requests) - origin_s
    tokens = sum(request.output_tokens for request in requests)
    return Repeat(
        prompt=f"{number} requests",
        prompt_tokens=sum(request.prompt_tokens for request in requests),
        output_tokens=tokens,
        cached_tokens=None,
        ttft_ms=1000 * sum(request.ttft_s for request in requests) / number,
        decode_s=sum(request.decode_s for request in requests) / number,
        total_s=span_s,
        tok_s=tokens / span_s,
        tok_s_99=None,
        tok_s_end_to_end=sum(r.output_tokens / r.total_s for r in requests) / number,
        output_sha="",
        started_at_s=0.0,
        requests=number,
    )
