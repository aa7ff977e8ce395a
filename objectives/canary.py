"""Canaries: a fixed prompt, decoded greedily again and again, that must always say the same.

Corruption that strikes one answer in a hundred hides from every short test. Repeats find it, and N
clean repeats prove how rare it must be: the bound stands in the result.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pydantic import BaseModel, ConfigDict

from objectives.answer import answer_problem, ask_for, shown
from objectives.client import Client, Completion
from objectives.endpoint import Endpoint, EndpointError
from objectives.gate import (
    UNPROVEN,
    GateKind,
    GateResult,
    GateStatus,
    Progress,
    ignore_progress,
)
from objectives.objective import Canary
from objectives.statistics import corruption_bound
from objectives.trace import parting

TOP = 5
"""Alternatives asked for at a mismatch; the right token is rarely further down than this."""


class CanaryBaseline(BaseModel):
    """What the control answers to a canary.

    `problem` says why it cannot serve as a reference: its own repeats differ, or it does not give
    the expected answer. Then the lane is unhealthy or the canary does not suit the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    canary: str
    text: str
    ids: tuple[int, ...]
    repeats: int
    problem: str | None = None


class Recheck(BaseModel):
    """The prompt of a mismatch asked once more, with log-probabilities.

    `index` is the 0-based place where the answers part. `was_top`: whether the wrong token led
    there when asked again; if so the model's state had drifted before sampling, if not the sampler
    or the transfer is to blame. `margin` is log p(wrong) - log p(right), None where the right token
    was not among the top ones. `repeated`: whether the wrong answer came again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    wrong: int | None
    right: int | None
    was_top: bool | None
    margin: float | None
    repeated: bool


def learn_canary(
    endpoint: Endpoint,
    canary: Canary,
    *,
    repeats: int = 8,
    on_progress: Progress | None = None,
) -> CanaryBaseline:
    """Ask the control, and say whether it can be a reference. Raises EndpointError."""
    return asyncio.run(_learn(endpoint, canary, repeats, on_progress or ignore_progress))


def canary_gate(
    endpoint: Endpoint,
    canary: Canary,
    *,
    repeats: int,
    rung: str,
    baseline: CanaryBaseline | None = None,
    already: int = 0,
    confidence: float = 0.95,
    on_progress: Progress | None = None,
) -> GateResult:
    """Repeat the canary until it fails or `repeats` are clean.

    The first `already` of them were clean on an earlier rung of this very session; they count, and
    are not asked again.

    An answer is right when it fits the expected value and schema and has the very tokens of the
    baseline (with `expected: control`), else of this session's first answer. Without an expected
    value and without a baseline the gate is missing: agreement of a session with itself proves
    nothing about the control. Raises EndpointError.
    """
    if repeats < 1:
        raise ValueError("a canary gate needs at least one repeat.")
    return asyncio.run(
        _gate(
            endpoint,
            canary,
            range(already, repeats),
            rung,
            baseline,
            confidence,
            on_progress or ignore_progress,
        )
    )


async def _learn(
    endpoint: Endpoint, canary: Canary, repeats: int, on_progress: Progress
) -> CanaryBaseline:
    ask = ask_for(canary.prompt, canary.api, max_tokens=canary.max_tokens)
    async with Client(endpoint) as client:
        first = await client.complete(ask)
        problem = _wrong(canary, first)
        for index in range(1, repeats):
            on_progress(index, repeats)
            again = await client.complete(ask)
            if again.ids != first.ids:
                problem = (
                    f"the control itself said {shown(again.text)} at repeat {index + 1} after "
                    f"{shown(first.text)}"
                )
                break
    on_progress(repeats, repeats)
    return CanaryBaseline(
        canary=canary.name, text=first.text, ids=first.ids, repeats=repeats, problem=problem
    )


async def _gate(
    endpoint: Endpoint,
    canary: Canary,
    asked: range,
    rung: str,
    baseline: CanaryBaseline | None,
    confidence: float,
    on_progress: Progress,
) -> GateResult:
    name, repeats = f"canary.{canary.name}", asked.stop
    started_s = time.perf_counter()
    if canary.expected == "control" and baseline is None:
        return GateResult(
            gate=name,
            kind=GateKind.CANARY,
            rung=rung,
            status=GateStatus.MISSING,
            reason="The control's answer to this canary has not been learned.",
            constraint=UNPROVEN,
        )
    ask = ask_for(canary.prompt, canary.api, max_tokens=canary.max_tokens)
    reference = baseline.ids if baseline is not None and canary.expected == "control" else None
    async with Client(endpoint) as client:
        for index in asked:
            answer = await client.complete(ask)
            problem = _wrong(canary, answer)
            if problem is None and reference is not None and answer.ids != reference:
                problem = f"said {shown(answer.text)}, which is not what was said before"
            if problem is not None:
                return await _failure(
                    client, canary, answer, problem, reference, index, repeats, rung, started_s
                )
            reference = reference or answer.ids
            on_progress(index + 1, repeats)
    bound = corruption_bound(repeats, confidence=confidence)
    return GateResult(
        gate=name,
        kind=GateKind.CANARY,
        rung=rung,
        status=GateStatus.PASSED,
        reason=f"{repeats} of {repeats} repeats are clean, which bounds the corruption rate to "
        f"{100 * bound:.2f} % ({100 * confidence:g} %, one-sided).",
        constraint=-bound if bound < 1 else 0.0,
        seconds=time.perf_counter() - started_s,
        evidence={"repeats": repeats, "corruption_bound": bound, "confidence": confidence},
    )


async def _failure(
    client: Client,
    canary: Canary,
    answer: Completion,
    problem: str,
    reference: tuple[int, ...] | None,
    index: int,
    repeats: int,
    rung: str,
    started_s: float,
) -> GateResult:
    recheck = await _recheck(client, canary, answer, reference)
    reason = f"Repeat {index + 1} of {repeats} {problem}."
    if recheck is not None and recheck.was_top is not None:
        led = "led" if recheck.was_top else "did not lead"
        by = "" if recheck.margin is None else f", by {recheck.margin:+.3f} in log-probability"
        reason += f" Asked again, the wrong token {led} at index {recheck.index}{by}."
    evidence: dict[str, Any] = {
        "failed_at": index + 1,
        "requested": repeats,
        "answer": answer.text,
        "ids": list(answer.ids),
        "expected_ids": None if reference is None else list(reference),
        "recheck": None if recheck is None else recheck.model_dump(),
    }
    return GateResult(
        gate=f"canary.{canary.name}",
        kind=GateKind.CANARY,
        rung=rung,
        status=GateStatus.FAILED,
        code="canary_mismatch",
        reason=reason,
        # An early failure is the worse one; what fails late is nearer to a working neighbour.
        constraint=max(1.0 / (index + 1), 0.05),
        seconds=time.perf_counter() - started_s,
        evidence=evidence,
    )


async def _recheck(
    client: Client, canary: Canary, answer: Completion, reference: tuple[int, ...] | None
) -> Recheck | None:
    """Ask once more with log-probabilities; None where the engine cannot or has just died."""
    ask = ask_for(canary.prompt, canary.api, max_tokens=canary.max_tokens, top=TOP)
    try:
        again = await client.complete(ask)
    except EndpointError:
        return None
    right_ids = reference or (again.ids if again.ids != answer.ids else None)
    if right_ids is None:
        return Recheck(index=0, wrong=None, right=None, was_top=None, margin=None, repeated=True)
    index = parting(answer.ids, right_ids)
    wrong = answer.ids[index] if index < len(answer.ids) else None
    right = right_ids[index] if index < len(right_ids) else None
    # The alternatives at `index` mean something only if the new answer took the same way there.
    on_the_way = again.ids[:index] == answer.ids[:index] and index < len(again.top)
    top = again.top[index] if on_the_way else {}
    margin = None
    if wrong is not None and right is not None and wrong in top and right in top:
        margin = top[wrong] - top[right]
    return Recheck(
        index=index,
        wrong=wrong,
        right=right,
        was_top=max(top, key=lambda token: top[token]) == wrong if top else None,
        margin=margin,
        repeated=again.ids == answer.ids,
    )


def _wrong(canary: Canary, answer: Completion) -> str | None:
    expected = None if canary.expected == "control" else canary.expected
    return answer_problem(answer.text, expected=expected, json_schema=canary.json_schema)
