"""Measuring a rate: warm up, run the repeats, read the engine's counters before and after."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from objectives.agreement import doubts
from objectives.client import Ask, Client, Completion
from objectives.endpoint import Endpoint
from objectives.engine_view import engine_view, read_counters
from objectives.gate import Progress, ignore_progress
from objectives.load import run_load
from objectives.objective import Slo
from objectives.prompts import Prompt, make_prompts
from objectives.rate import Rate, Repeat, rate_from, repeat_of
from objectives.workload import Workload

SETTLE_S = 0.05
"""The engine books a request as finished just after it sent the last token; how often to look."""

SETTLE_ATTEMPTS = 20
"""Looks at the engine's counters until it has booked every request, a second in all."""


def measure_rate(
    endpoint: Endpoint,
    workload: Workload,
    *,
    repeats: int,
    seed: int,
    confidence: float = 0.95,
    identity_sha: str | None = None,
    slos: Sequence[Slo] = (),
    earlier: Rate | None = None,
    on_progress: Progress | None = None,
) -> Rate:
    """Serve `workload` `repeats` times in all and say how fast it went.

    Equal seeds ask equal prompts in equal order, so that two sessions can be compared repeat by
    repeat. `slos` matter for goodput only. `earlier` is a rate of this very session, with fewer
    repeats and the same seed: its repeats are kept, only the rest is measured, and nothing is
    warmed up again; latency percentiles and the engine's view are then those of the rest. Raises
    EndpointError.
    """
    if repeats < 1:
        raise ValueError("a rate needs at least one repeat.")
    if earlier is not None and len(earlier.repeats) >= repeats:
        return earlier
    return asyncio.run(
        _measure(
            endpoint,
            workload,
            repeats=repeats,
            seed=seed,
            confidence=confidence,
            identity_sha=identity_sha,
            slos=slos,
            earlier=earlier,
            on_progress=on_progress or ignore_progress,
        )
    )


def measure_interleaved(
    control: Endpoint,
    candidate: Endpoint,
    workload: Workload,
    *,
    repeats: int,
    seed: int,
    confidence: float = 0.95,
    on_progress: Progress | None = None,
) -> tuple[Rate, Rate]:
    """Rates of two servers that run side by side, their repeats taken in turn.

    Who goes first changes with each turn, so that neither gains by it. Only one is asked at a time,
    but both must fit the host without slowing each other. Raises EndpointError.
    """
    report = on_progress or ignore_progress
    rates: dict[Endpoint, Rate | None] = {control: None, candidate: None}
    for turn in range(1, repeats + 1):
        pair = (control, candidate) if turn % 2 else (candidate, control)
        for endpoint in pair:
            rates[endpoint] = measure_rate(
                endpoint,
                workload,
                repeats=turn,
                seed=seed,
                confidence=confidence,
                earlier=rates[endpoint],
            )
        report(turn, repeats)
    first, second = rates[control], rates[candidate]
    if first is None or second is None:
        raise ValueError("a rate needs at least one repeat.")
    return first, second


async def _measure(
    endpoint: Endpoint,
    workload: Workload,
    *,
    repeats: int,
    seed: int,
    confidence: float,
    identity_sha: str | None,
    slos: Sequence[Slo],
    earlier: Rate | None,
    on_progress: Progress,
) -> Rate:
    done = () if earlier is None else earlier.repeats
    async with Client(endpoint, streams=workload.streams) as client:
        prompts = await make_prompts(
            client,
            workload.prompts,
            tokens=workload.prompt_tokens,
            count=repeats * workload.requests_per_repeat,
            seed=seed,
        )
        asks = [_ask(workload, prompt) for prompt in prompts]
        for index in range(0 if done else workload.warmup):
            # Another prompt than the first measured one, so that no cache of the engine is warm
            # for it; but of the same length, so that its shape has been compiled.
            await client.complete(_shortened(asks[-1 - index % len(asks)], workload))
        before = read_counters(await client.metrics())
        started_at, origin_s, cpu_s = time.time(), time.perf_counter(), time.process_time()
        rows: list[Repeat] = []
        answers: list[Completion] = []
        arrivals = random.Random(seed)  # noqa: S311 (a workload, not a secret)
        for index in range(len(done), repeats):
            size = workload.requests_per_repeat
            own = slice(index * size, (index + 1) * size)
            if workload.is_concurrent:
                row, said = await run_load(
                    client, asks[own], workload, arrivals=arrivals, slos=slos, origin_s=origin_s
                )
            else:
                said = [await client.complete(asks[index])]
                row = repeat_of(prompts[index].name, said[0], origin_s=origin_s)
            rows.append(row)
            answers += said
            on_progress(index + 1, repeats)
        client_cpu = (time.process_time() - cpu_s) / max(time.perf_counter() - origin_s, 1e-9)
        for _ in range(SETTLE_ATTEMPTS):
            await asyncio.sleep(SETTLE_S)
            view = engine_view(before, read_counters(await client.metrics()))
            if view is None or view.requests >= len(answers):
                break
    warnings = doubts(workload, rows, answers, view, client_cpu=client_cpu)
    return rate_from(
        [*done, *rows],
        answers,
        workload,
        confidence=confidence,
        engine=view,
        warnings=[*(() if earlier is None else earlier.warnings), *warnings],
        identity_sha=identity_sha,
        started_at=started_at,
        client_cpu=client_cpu,
    )


def _ask(workload: Workload, prompt: Prompt) -> Ask:
    return Ask(prompt=prompt.ids, max_tokens=workload.output_tokens, ignore_eos=workload.ignore_eos)


def _shortened(ask: Ask, workload: Workload) -> Ask:
    """The request as a warm-up, with the number of tokens that the workload gives those."""
    return ask.model_copy(update={"max_tokens": workload.warmup_tokens or workload.output_tokens})
