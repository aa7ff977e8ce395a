"""The parity gate: does the candidate say, token for token, what the oracle says?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from objectives.client import Ask, Client, Completion
from objectives.endpoint import Endpoint, EndpointError
from objectives.engine_view import read_counters
from objectives.gate import (
    UNPROVEN,
    GateKind,
    GateResult,
    GateStatus,
    Progress,
    ignore_progress,
)
from objectives.objective import Objective, ParityPolicy
from objectives.oracle import Oracle, SelfParity, Trace
from objectives.trace import parting

DRAFTS = "spec_decode_num_drafts_total"


class Divergence(BaseModel):
    """The first place where candidate and oracle differ on one prompt; indices count from 0.

    A side that had already ended has no token there. `margin` is the reference's first choice over
    its second at that place; `candidate_margin` the candidate's own, asked again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    index: int
    expected_id: int | None
    expected_text: str | None
    got_id: int | None
    got_text: str | None
    margin: float | None
    candidate_margin: float | None = None
    role: str | None = None

    def sentence(self) -> str:
        """The difference in words."""
        return (
            f"prompt {self.prompt} differs first at index {self.index}: expected "
            f"{_named(self.expected_id, self.expected_text)}, got "
            f"{_named(self.got_id, self.got_text)}"
            + ("" if self.margin is None else f" (the reference's margin there: {self.margin:.4f})")
        )


def parity_gate(
    endpoint: Endpoint,
    oracle: Oracle,
    objective: Objective,
    *,
    rung: str,
    prompts: int | None,
    self_parity: SelfParity | None = None,
    skip: int = 0,
    reference_sha: str | None = None,
    speculates: bool | None = None,
    on_progress: Progress | None = None,
) -> GateResult:
    """Compare with the oracle on its first `prompts` prompts (all with None).

    The first `skip` of them have passed on an earlier rung of this very session and are not asked
    again; a greedy engine that answers them differently later is the canaries' prey.
    Exact mode stops at the first difference. An engine that speculates must show that it drafted
    tokens, else the gate is missing: equal tokens without a draft prove nothing about speculation.
    Whether it does, its metrics tell (vLLM counts drafts only then), unless `speculates` says.
    With `reference_sha`, the lane's present reference, an oracle of another identity is refused:
    the gate is missing, and nothing is asked. Raises EndpointError.
    """
    if reference_sha is not None and oracle.is_stale(reference_sha):
        return GateResult(
            gate="parity",
            kind=GateKind.PARITY,
            rung=rung,
            status=GateStatus.MISSING,
            reason=f"The oracle is stale: it was recorded under identity "
            f"{oracle.identity_sha[:12]}, and the lane's reference is {reference_sha[:12]}.",
            constraint=UNPROVEN,
            evidence={"stale": True, "oracle_sha": oracle.identity_sha},
        )
    return asyncio.run(
        _gate(
            endpoint,
            oracle.traces[:prompts][skip:],
            skip,
            objective.parity,
            rung,
            self_parity,
            speculates,
            on_progress or ignore_progress,
        )
    )


async def _gate(
    endpoint: Endpoint,
    traces: Sequence[Trace],
    skipped: int,
    policy: ParityPolicy,
    rung: str,
    own: SelfParity | None,
    speculates: bool | None,
    on_progress: Progress,
) -> GateResult:
    started_s = time.perf_counter()
    divergences: list[Divergence] = []
    tokens = 0
    async with Client(endpoint) as client:
        for number, trace in enumerate(traces, start=1):
            answer = await client.complete(
                Ask(prompt=trace.prompt_ids, max_tokens=policy.output_tokens)
            )
            tokens += len(answer.ids)
            if answer.ids != trace.ids:
                divergences.append(await _divergence(client, trace, answer, policy))
                if policy.mode == "exact":
                    break
            on_progress(number, len(traces))
        drafts = await _drafts(client)
    return judge_parity(
        divergences,
        policy,
        rung=rung,
        prompts=len(traces),
        skipped=skipped,
        tokens=tokens,
        drafts=drafts,
        speculates=drafts is not None if speculates is None else speculates,
        own=own,
        seconds=time.perf_counter() - started_s,
    )


def judge_parity(
    divergences: Sequence[Divergence],
    policy: ParityPolicy,
    *,
    rung: str,
    prompts: int,
    tokens: int,
    skipped: int = 0,
    drafts: int | None = None,
    speculates: bool = False,
    own: SelfParity | None = None,
    seconds: float = 0.0,
) -> GateResult:
    """The gate's result from the differences that were found; no endpoint is needed.

    A divergence is excused in bounded mode when the reference was undecided there (its margin is no
    wider than what self-parity has shown to flip); what follows it is another text and is not
    compared. In known-drift mode the number of differences and their roles must be as stated.
    """
    blamed = [d for d in divergences if not _is_excused(d, policy, own)]
    evidence: dict[str, Any] = {
        "mode": policy.mode,
        "prompts": prompts,
        "skipped": skipped,
        "tokens": tokens,
        "drafts": drafts,
        "divergences": [divergence.model_dump() for divergence in divergences],
        "self_parity": None if own is None else own.model_dump(),
    }

    def gate(status: GateStatus, reason: str, constraint: float) -> GateResult:
        failed = status is GateStatus.FAILED
        return GateResult(
            gate="parity",
            kind=GateKind.PARITY,
            rung=rung,
            status=status,
            code="parity_mismatch" if failed else None,
            reason=reason,
            constraint=constraint,
            seconds=seconds,
            evidence=evidence,
        )

    if policy.mode == "known-drift":
        problem = _drift_problem(divergences, policy)
        if problem is not None:
            return gate(GateStatus.FAILED, problem, 0.5)
    elif blamed:
        # A late difference is nearer to parity than an early one.
        earliest = min(divergence.index for divergence in blamed)
        reason = f"Of {prompts} prompts, {blamed[0].sentence()}."
        if len(blamed) > 1:
            reason += f" {len(blamed) - 1} more prompts differ."
        return gate(
            GateStatus.FAILED, reason, max(1.0 - earliest / max(policy.output_tokens, 1), 0.05)
        )
    if speculates and not drafts:
        return gate(
            GateStatus.MISSING,
            f"{tokens} tokens agree, but the engine shows no drafted token, so speculation was not "
            "active and nothing is proven about it.",
            UNPROVEN,
        )
    if policy.mode == "known-drift":
        reason = f"{len(divergences)} differences, all of the kinds that are known and stated."
    elif divergences:
        reason = (
            f"{prompts} prompts agree up to where the reference itself is undecided "
            f"({len(divergences)} part there)."
        )
    else:
        reason = f"All {tokens} tokens of {prompts} prompts are the reference's."
    if skipped:
        reason += f" {skipped} more passed on an earlier rung."
    if speculates:
        reason += f" Speculation was active ({drafts} drafts)."
    return gate(GateStatus.PASSED, reason, 0.0)


def _is_excused(divergence: Divergence, policy: ParityPolicy, own: SelfParity | None) -> bool:
    if policy.mode != "bounded" or own is None or own.margin is None:
        return False
    return divergence.margin is not None and divergence.margin <= own.margin


def _drift_problem(divergences: Sequence[Divergence], policy: ParityPolicy) -> str | None:
    if len(divergences) != policy.expected_mismatches:
        return (
            f"{len(divergences)} prompts differ, and {policy.expected_mismatches} were stated as "
            "known."
        )
    strange = sorted({d.role for d in divergences if d.role} - set(policy.roles))
    if policy.roles and strange:
        return f"A difference has the role {strange[0]}, which is not among the known ones."
    return None


async def _divergence(
    client: Client, trace: Trace, answer: Completion, policy: ParityPolicy
) -> Divergence:
    index = parting(answer.ids, trace.ids)
    expected = trace.ids[index] if index < len(trace.ids) else None
    got = answer.ids[index] if index < len(answer.ids) else None
    texts = {
        token: await client.detokenize((token,)) for token in (expected, got) if token is not None
    }
    return Divergence(
        prompt=trace.prompt,
        index=index,
        expected_id=expected,
        expected_text=texts.get(expected) if expected is not None else None,
        got_id=got,
        got_text=texts.get(got) if got is not None else None,
        margin=trace.margin(index),
        candidate_margin=await _own_margin(client, trace, answer, index, policy),
    )


async def _own_margin(
    client: Client, trace: Trace, answer: Completion, index: int, policy: ParityPolicy
) -> float | None:
    """The candidate's own first choice over its second where it differed, if it can tell."""
    try:
        again = await client.complete(
            Ask(prompt=trace.prompt_ids, max_tokens=index + 1, top=policy.top)
        )
    except EndpointError:
        return None
    if again.ids[:index] != answer.ids[:index] or len(again.top) <= index:
        return None
    values = sorted(again.top[index].values(), reverse=True)
    return values[0] - values[1] if len(values) > 1 else None


async def _drafts(client: Client) -> int | None:
    """Drafts since the server started, which serves this candidate alone, if it counts them."""
    drafts = read_counters(await client.metrics()).get(DRAFTS)
    return None if drafts is None else round(drafts)


def _named(token: int | None, text: str | None) -> str:
    return "the end" if token is None else f"{token} ({text!r})"
