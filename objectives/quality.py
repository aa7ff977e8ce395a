"""The quality suite: easy questions with known answers, each case with a verdict of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from objectives.answer import answer_problem, ask_for, shown
from objectives.client import Ask, Client
from objectives.endpoint import Endpoint
from objectives.gate import (
    UNPROVEN,
    GateKind,
    GateResult,
    GateStatus,
    Progress,
    ignore_progress,
)
from objectives.objective import Objective
from objectives.prompt_suite import SUITE
from objectives.quality_cases import Quality, QualityCase
from objectives.tasks import read_task

NEEDLE = "The access code of the northern gate is 7315."
QUESTION = "What is the access code of the northern gate? Answer with the number only."
NEEDLE_ANSWER = "7315"


class CaseAnswer(BaseModel):
    """What was said to one case, and what is wrong with it, if anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    ids: tuple[int, ...]
    problem: str | None


class QualityBaseline(BaseModel):
    """The control's answers by case, and for each task which of its questions it got right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    answers: Mapping[str, CaseAnswer]
    tasks: Mapping[str, tuple[bool, ...]] = {}

    def sentence(self) -> str:
        """Which cases the control itself fails; those can only be compared."""
        failed = sorted(name for name, answer in self.answers.items() if answer.problem)
        if not failed:
            return "The control passes every case of the quality suite."
        return (
            f"The control itself fails {', '.join(failed)}; there a candidate must say what the "
            "control says."
        )


def record_quality(
    endpoint: Endpoint, objective: Objective, *, on_progress: Progress | None = None
) -> QualityBaseline:
    """Ask the control every case. Raises EndpointError."""
    answers, tasks, _ = asyncio.run(
        _ask_all(endpoint, objective.quality, on_progress or ignore_progress)
    )
    return QualityBaseline(answers=answers, tasks=tasks)


def quality_gates(
    endpoint: Endpoint,
    objective: Objective,
    *,
    baseline: QualityBaseline | None,
    rung: str,
    on_progress: Progress | None = None,
) -> list[GateResult]:
    """One gate for each case. Without a baseline, cases that need the control are missing.

    Raises EndpointError.
    """
    suite = objective.quality
    answers, tasks, seconds = asyncio.run(_ask_all(endpoint, suite, on_progress or ignore_progress))
    gates = [
        _case_gate(name, answer, suite, baseline, rung=rung, seconds=seconds[name])
        for name, answer in answers.items()
    ]
    for task in suite.tasks:
        right = None if baseline is None else baseline.tasks.get(task.name)
        gates.append(
            _task_gate(
                task.name,
                tasks[task.name],
                right,
                task.allowed_regressions,
                rung=rung,
                seconds=seconds[task.name],
            )
        )
    return gates


async def _ask_all(
    endpoint: Endpoint, suite: Quality, on_progress: Progress
) -> tuple[dict[str, CaseAnswer], dict[str, tuple[bool, ...]], dict[str, float]]:
    """Answers by case, right or wrong by task question, and seconds by either name."""
    answers: dict[str, CaseAnswer] = {}
    tasks: dict[str, tuple[bool, ...]] = {}
    seconds: dict[str, float] = {}
    total = len(suite.names())
    async with Client(endpoint) as client:
        for name in suite.names():
            started_s = time.perf_counter()
            task = next((task for task in suite.tasks if task.name == name), None)
            case = next((case for case in suite.asked() if case.name == name), None)
            if task is not None:
                questions = read_task(task)
                tasks[name] = tuple([await question.is_right(client) for question in questions])
            elif case is not None:
                answers[name] = await _ask_case(client, case)
            elif name == "repeat":
                answers[name] = await _ask_repeat(client, suite)
            else:
                answers[name] = await _ask_long_context(client, suite.long_context_tokens)
            seconds[name] = time.perf_counter() - started_s
            on_progress(len(seconds), total)
    return answers, tasks, seconds


async def _ask_case(client: Client, case: QualityCase) -> CaseAnswer:
    said = await client.complete(ask_for(case.prompt, case.api, max_tokens=case.max_tokens))
    problem = answer_problem(
        said.text, expected=case.expected, contains=case.contains, json_schema=case.json_schema
    )
    return CaseAnswer(text=said.text, ids=said.ids, problem=problem)


async def _ask_repeat(client: Client, suite: Quality) -> CaseAnswer:
    """One longer answer, several times: every one must have the same tokens."""
    prompt = SUITE[1].passage + "\n\n" + SUITE[1].task
    ask = Ask(prompt=prompt, max_tokens=suite.repeat_tokens)
    first = await client.complete(ask)
    for index in range(1, suite.repeat_runs):
        again = await client.complete(ask)
        if again.ids != first.ids:
            problem = f"run {index + 1} of {suite.repeat_runs} said {shown(again.text)} instead"
            return CaseAnswer(text=first.text, ids=first.ids, problem=problem)
    return CaseAnswer(text=first.text, ids=first.ids, problem=None)


async def _ask_long_context(client: Client, tokens: int) -> CaseAnswer:
    """A fact stated early in a long text, asked for at its end; the prompt has `tokens` tokens."""
    needle = await client.tokenize(NEEDLE + "\n\n")
    question = await client.tokenize(f"\n\nQuestion: {QUESTION}\nAnswer:")
    passages: tuple[int, ...] = ()
    index = 0
    room = max(tokens - len(needle) - len(question), 0)
    while len(passages) < room:
        passages += await client.tokenize(SUITE[index % len(SUITE)].passage + "\n\n")
        index += 1
    passages = passages[:room]
    cut = room // 4
    prompt = passages[:cut] + needle + passages[cut:] + question
    said = await client.complete(Ask(prompt=prompt, max_tokens=12))
    return CaseAnswer(
        text=said.text, ids=said.ids, problem=answer_problem(said.text, contains=NEEDLE_ANSWER)
    )


def _case_gate(
    name: str,
    answer: CaseAnswer,
    suite: Quality,
    baseline: QualityBaseline | None,
    *,
    rung: str,
    seconds: float,
) -> GateResult:
    control = None if baseline is None else baseline.answers.get(name)
    needs_control = suite.match_control or answer.problem is not None
    evidence: dict[str, Any] = {
        "answer": answer.text,
        "control": None if control is None else control.text,
        "control_problem": None if control is None else control.problem,
    }

    def gate(status: GateStatus, reason: str, constraint: float) -> GateResult:
        return GateResult(
            gate=f"quality.{name}",
            kind=GateKind.QUALITY,
            rung=rung,
            status=status,
            code="quality_failed" if status is GateStatus.FAILED else None,
            reason=reason,
            constraint=constraint,
            seconds=seconds,
            evidence=evidence,
        )

    # What the control passes must be passed; a run that disagrees with itself is always wrong.
    is_own_fault = answer.problem is not None and (
        name == "repeat" or control is None or control.problem is None
    )
    if is_own_fault:
        return gate(GateStatus.FAILED, f"The case {name} {answer.problem}.", 0.5)
    if needs_control and control is None:
        return gate(
            GateStatus.MISSING,
            f"The control's answer to {name} has not been recorded, so it cannot be compared.",
            UNPROVEN,
        )
    if control is not None and needs_control and answer.ids != control.ids:
        return gate(
            GateStatus.FAILED,
            f"The case {name} said {shown(answer.text)}; the control says {shown(control.text)}.",
            0.25,
        )
    if answer.problem is not None:
        return gate(
            GateStatus.PASSED,
            f"The case {name} says what the control says (both are wrong: it {answer.problem}).",
            0.0,
        )
    also = " and is the control's, token for token" if suite.match_control else ""
    return gate(GateStatus.PASSED, f"The answer to {name} is right{also}.", 0.0)


def _task_gate(
    name: str,
    right: tuple[bool, ...],
    control: tuple[bool, ...] | None,
    allowed: int,
    *,
    rung: str,
    seconds: float,
) -> GateResult:
    share = sum(right) / len(right)
    evidence: dict[str, Any] = {"right": sum(right), "questions": len(right)}
    if control is None or len(control) != len(right):
        return GateResult(
            gate=f"quality.{name}",
            kind=GateKind.QUALITY,
            rung=rung,
            status=GateStatus.MISSING,
            reason=f"The control's answers to the task {name} have not been recorded.",
            constraint=UNPROVEN,
            seconds=seconds,
            evidence=evidence,
        )
    lost = sum(was and not now for was, now in zip(control, right, strict=True))
    passed = lost <= allowed
    evidence |= {"control_right": sum(control), "lost": lost, "allowed": allowed}
    return GateResult(
        gate=f"quality.{name}",
        kind=GateKind.QUALITY,
        rung=rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        code=None if passed else "quality_failed",
        reason=f"The task {name}: {100 * share:.1f} % of {len(right)} right; {lost} that the "
        f"control gets right are lost, {allowed} may be.",
        constraint=0.0 if passed else min((lost - allowed) / len(right) + 0.01, 1.0),
        seconds=seconds,
        evidence=evidence,
    )
