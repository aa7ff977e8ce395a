"""Concurrent load: many requests open at a time, closed (N streams) or open (Poisson arrivals)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from objectives.client import Ask, Client, Completion
from objectives.objective import Slo
from objectives.rate import Repeat, intervals_ms, rate_over_99, sha_of
from objectives.statistics import percentiles
from objectives.workload import Workload


async def run_load(
    client: Client,
    asks: Sequence[Ask],
    workload: Workload,
    *,
    arrivals: random.Random,
    slos: Sequence[Slo],
    origin_s: float,
) -> tuple[Repeat, list[Completion]]:
    """Serve all `asks` as the workload says, and describe them as one repeat.

    With `requests_per_s` the gaps between requests are exponential (a Poisson process), drawn from
    `arrivals`. A request whose turn comes while `streams` are open waits for a seat; that wait is
    part of nobody's latency, so a cap that binds shows up as a lower rate.
    """
    seats = asyncio.Semaphore(workload.streams)

    async def one(ask: Ask) -> Completion:
        async with seats:
            return await client.complete(ask)

    tasks: list[asyncio.Task[Completion]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for ask in asks:
                tasks.append(group.create_task(one(ask)))
                if workload.requests_per_s is not None:
                    await asyncio.sleep(arrivals.expovariate(workload.requests_per_s))
    except BaseExceptionGroup as failures:
        # One request that fails ends the measurement; the first failure is the one to report.
        raise failures.exceptions[0] from None
    answers = [task.result() for task in tasks]
    return _as_repeat(answers, slos, origin_s=origin_s), answers


def goodput(answers: Sequence[Completion], slos: Sequence[Slo]) -> int:
    """How many requests kept every objective, each judged by its own latencies.

    A statistic such as p95 of the time between tokens is taken within the request; time to first
    token and end-to-end time are one number each.
    """
    return sum(all(_keeps(answer, slo) for slo in slos) for answer in answers)


def _keeps(answer: Completion, slo: Slo) -> bool:
    if slo.metric == "ttft_ms":
        return 1000 * (answer.first_token_s - answer.sent_s) <= slo.at_most
    if slo.metric == "e2e_ms":
        return 1000 * (answer.last_token_s - answer.sent_s) <= slo.at_most
    gaps = intervals_ms(answer)
    return not gaps or float(getattr(percentiles(gaps), slo.statistic)) <= slo.at_most


def _as_repeat(answers: Sequence[Completion], slos: Sequence[Slo], *, origin_s: float) -> Repeat:
    start_s = min(answer.sent_s for answer in answers)
    span_s = max(answer.last_token_s for answer in answers) - start_s
    tokens = sum(len(answer.ids) for answer in answers)
    number = len(answers)
    over_99 = [rate for answer in answers if (rate := rate_over_99(answer)) is not None]
    cached = [answer.cached_tokens for answer in answers if answer.cached_tokens is not None]
    return Repeat(
        prompt=f"{number} requests",
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        output_tokens=tokens,
        cached_tokens=sum(cached) if cached else None,
        ttft_ms=1000 * sum(a.first_token_s - a.sent_s for a in answers) / number,
        decode_s=sum(a.last_token_s - a.first_token_s for a in answers) / number,
        total_s=span_s,
        tok_s=tokens / span_s,
        tok_s_99=sum(over_99) / len(over_99) if over_99 else None,
        tok_s_end_to_end=sum(len(a.ids) / (a.last_token_s - a.sent_s) for a in answers) / number,
        output_sha=sha_of([token for answer in answers for token in answer.ids]),
        started_at_s=start_s - origin_s,
        requests=number,
        goodput_rps=goodput(answers, slos) / span_s,
    )
