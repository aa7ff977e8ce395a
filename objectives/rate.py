"""A rate: how fast an engine served a workload, with all that makes the number believable."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from objectives.client import Completion
from objectives.engine_view import EngineView
from objectives.statistics import Percentiles, Summary, percentiles, summarize
from objectives.workload import Workload


class Repeat(BaseModel):
    """One measured repeat: a single request, or one run of all requests of a concurrent workload.

    `tok_s` is the corrected decode rate: (tokens - 1) over the time from first to last token. For a
    concurrent repeat it is the output tokens of all requests over the time from the first request
    sent to the last token; TTFT and the rest are means over its requests. `started_at_s` counts
    from the start of the session's first repeat. `output_sha` tells whether two repeats said the
    same tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    ttft_ms: float
    decode_s: float
    total_s: float
    tok_s: float
    tok_s_99: float | None
    tok_s_end_to_end: float
    output_sha: str
    started_at_s: float
    requests: int = 1
    goodput_rps: float | None = None


class Rate(BaseModel):
    """The rate of one server session under one workload.

    `tok_s` corrected decode rate, `tok_s_99` over the 99 intervals between tokens 1 and 100,
    `tok_s_end_to_end` tokens over the whole time of the request; all in tokens per second.
    `itl_ms` are the times between tokens: an event with k tokens counts as k equal intervals.
    `engine` is the engine's own view, None where it shows no metrics. `client_cpu` is the share of
    one core that the client itself used. `source` says who measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tok_s: Summary
    tok_s_99: Summary | None
    tok_s_end_to_end: Summary
    ttft_ms: Summary
    itl_ms: Percentiles
    e2e_ms: Percentiles
    ttft_percentiles_ms: Percentiles
    repeats: tuple[Repeat, ...]
    engine: EngineView | None
    workload: Workload
    warnings: tuple[str, ...] = ()
    identity_sha: str | None = None
    started_at: float = 0.0
    client_cpu: float = 0.0
    source: str = "tuner"
    goodput_rps: Summary | None = None

    def samples(self, metric: str) -> tuple[float, ...]:
        """The value of an objective's metric in each repeat, in order.

        Raises ValueError for a metric that this rate does not hold.
        """
        if metric == "tok_s_99":
            values = [row.tok_s_99 for row in self.repeats]
        elif metric == "goodput_rps":
            values = [row.goodput_rps for row in self.repeats]
        else:
            field = {
                "decode_tok_s": "tok_s",
                "output_tok_s": "tok_s",
                "end_to_end_tok_s": "tok_s_end_to_end",
                "ttft_ms": "ttft_ms",
            }[metric]
            values = [getattr(row, field) for row in self.repeats]
        present = tuple(float(value) for value in values if value is not None)
        if len(present) != len(self.repeats):
            raise ValueError(
                f"this rate holds no {metric}: the workload {self.workload.name} does not give it."
            )
        return present


def repeat_of(prompt: str, answer: Completion, *, origin_s: float) -> Repeat:
    """The row of one single-stream request."""
    decode_s = answer.last_token_s - answer.first_token_s
    tokens = len(answer.ids)
    first = answer.events[0][1]
    total_s = answer.last_token_s - answer.sent_s
    return Repeat(
        prompt=prompt,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=tokens,
        cached_tokens=answer.cached_tokens,
        ttft_ms=1000 * (answer.first_token_s - answer.sent_s),
        decode_s=decode_s,
        total_s=total_s,
        # Tokens of the first event have no interval before them, however many they are.
        tok_s=(tokens - first) / decode_s if decode_s > 0 else 0.0,
        tok_s_99=rate_over_99(answer),
        tok_s_end_to_end=tokens / total_s,
        output_sha=sha_of(answer.ids),
        started_at_s=answer.sent_s - origin_s,
    )


def rate_over_99(answer: Completion) -> float | None:
    """Tokens per second over the intervals between tokens 1 and 100, None for a shorter answer.

    Where events hold several tokens it runs from the first event to the first one that reaches
    token 100, over the tokens that came between.
    """
    first_s, first = answer.events[0]
    for when_s, tokens in answer.events:
        if tokens >= 100 and when_s > first_s:
            return (tokens - first) / (when_s - first_s)
    return None


def intervals_ms(answer: Completion) -> list[float]:
    """Times between tokens; k tokens of one event share the time since the event before equally."""
    found: list[float] = []
    for (before_s, before), (now_s, now) in zip(answer.events, answer.events[1:], strict=False):
        found += [1000 * (now_s - before_s) / (now - before)] * (now - before)
    return found


def sha_of(ids: Sequence[int]) -> str:
    """A short hash of token ids."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def rate_from(
    repeats: Sequence[Repeat],
    answers: Sequence[Completion],
    workload: Workload,
    *,
    confidence: float,
    engine: EngineView | None,
    warnings: Sequence[str],
    identity_sha: str | None,
    started_at: float,
    client_cpu: float,
) -> Rate:
    """Put a rate together from its rows and the answers behind them."""
    over_99 = [row.tok_s_99 for row in repeats if row.tok_s_99 is not None]
    goodput = [row.goodput_rps for row in repeats if row.goodput_rps is not None]
    return Rate(
        tok_s=summarize([row.tok_s for row in repeats], confidence=confidence),
        tok_s_99=summarize(over_99, confidence=confidence) if over_99 else None,
        tok_s_end_to_end=summarize([r.tok_s_end_to_end for r in repeats], confidence=confidence),
        ttft_ms=summarize([row.ttft_ms for row in repeats], confidence=confidence),
        itl_ms=percentiles([gap for answer in answers for gap in intervals_ms(answer)] or [0.0]),
        e2e_ms=percentiles([1000 * (a.last_token_s - a.sent_s) for a in answers]),
        ttft_percentiles_ms=percentiles([1000 * (a.first_token_s - a.sent_s) for a in answers]),
        repeats=tuple(repeats),
        engine=engine,
        workload=workload,
        warnings=tuple(warnings),
        identity_sha=identity_sha,
        started_at=started_at,
        client_cpu=client_cpu,
        goodput_rps=summarize(goodput, confidence=confidence) if goodput else None,
    )
