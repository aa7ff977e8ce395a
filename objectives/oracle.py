"""The oracle: token traces of the reference, and what it shows about itself when asked again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from objectives.client import Ask, Client, Completion, ask_in_turn
from objectives.endpoint import Endpoint
from objectives.gate import GateKind, GateResult, GateStatus, Progress, ignore_progress
from objectives.objective import Objective
from objectives.prompts import make_prompts
from objectives.trace import parting

LOAD = 4
"""Requests open at a time when the reference is asked under load."""


class TopToken(BaseModel):
    """A token that was likely at some place, with its log-probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    logprob: float


class Trace(BaseModel):
    """What the reference says to one prompt.

    `ids` were decoded plainly, as in service; `top` comes from a second request with
    log-probabilities, and is empty from the place on where that one said something else, or
    altogether where no margins were recorded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    top: tuple[tuple[TopToken, ...], ...]

    def margin(self, index: int) -> float | None:
        """Log-probability of the first choice over the second at `index`; None if not known."""
        if index >= len(self.top) or len(self.top[index]) < 2:
            return None
        return self.top[index][0].logprob - self.top[index][1].logprob


class Oracle(BaseModel):
    """The traces of one reference session, and the identity that made them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity_sha: str
    traces: tuple[Trace, ...]
    recorded_at: float
    seconds: float = 0.0

    def is_stale(self, identity_sha: str) -> bool:
        """Whether the lane's reference is another identity now, so that this may not be used."""
        return self.identity_sha != identity_sha


class SelfParity(BaseModel):
    """How far a reference agrees with itself.

    `exact` where every token of every prompt is the same. Otherwise `first_index` is the earliest
    0-based place of a difference, and `margin` the widest gap between the reference's first and
    second choice at any place where two runs parted: at gaps up to that, it flips by itself.
    `under_load` names the prompts that differ when several are open at a time, None if not tried.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: bool
    prompts: int
    differing: tuple[str, ...] = ()
    first_index: int | None = None
    margin: float | None = None
    under_load: tuple[str, ...] | None = None

    def sentence(self) -> str:
        """What this lane may ask for."""
        load = ""
        if self.under_load is not None:
            count = len(self.under_load)
            load = f" Under load {count} differ." if count else " Under load it does, too."
        if self.exact:
            return (
                f"The reference repeats itself token for token on all {self.prompts} prompts.{load}"
            )
        margin = "unknown" if self.margin is None else f"{self.margin:.4f}"
        return (
            f"The reference differs from itself on {len(self.differing)} of {self.prompts} "
            f"prompts, first at index {self.first_index}, at a margin of {margin}: exact parity "
            f"cannot be asked for in this lane; use bounded mode.{load}"
        )


def record_oracle(
    endpoint: Endpoint,
    objective: Objective,
    *,
    identity_sha: str,
    concurrent: bool = False,
    margins: bool = True,
    on_progress: Progress | None = None,
) -> Oracle:
    """Record what the reference says to the parity prompts, the first rung's prompts first.

    `concurrent` keeps several requests open, to see whether load changes what is said. `margins`
    asks each prompt again with log-probabilities; a recording that is only compared needs none.
    Raises EndpointError.
    """
    at_a_time = LOAD if concurrent else 1
    return asyncio.run(
        _record(
            endpoint, objective, identity_sha, at_a_time, margins, on_progress or ignore_progress
        )
    )


async def _record(
    endpoint: Endpoint,
    objective: Objective,
    identity_sha: str,
    at_a_time: int,
    margins: bool,
    on_progress: Progress,
) -> Oracle:
    policy = objective.parity
    started_s = time.perf_counter()
    async with Client(endpoint, streams=at_a_time) as client:
        prompts = await make_prompts(
            client, "suite", tokens=policy.prompt_tokens, count=policy.prompts, seed=0
        )
        plain = [Ask(prompt=prompt.ids, max_tokens=policy.output_tokens) for prompt in prompts]
        traces: list[Trace] = []
        for start in range(0, len(prompts), at_a_time):
            own = slice(start, start + at_a_time)
            answers = await ask_in_turn(client, plain[own], at_a_time=at_a_time)
            again = [ask.model_copy(update={"top": policy.top}) for ask in plain[own]]
            weighed: Sequence[Completion | None] = [None] * len(again)
            if margins:
                weighed = await ask_in_turn(client, again, at_a_time=at_a_time)
            for prompt, answer, second in zip(prompts[own], answers, weighed, strict=True):
                traces.append(_trace(prompt.name, prompt.ids, answer, second))
            on_progress(len(traces), len(prompts))
    return Oracle(
        identity_sha=identity_sha,
        traces=tuple(traces),
        recorded_at=time.time(),
        seconds=time.perf_counter() - started_s,
    )


def _trace(
    name: str, prompt_ids: tuple[int, ...], answer: Completion, weighed: Completion | None
) -> Trace:
    known: Sequence[Mapping[int, float]] = ()
    if weighed is not None:
        # Where the two part, the alternatives still belong to the shared way up to that place.
        agreed = parting(answer.ids, weighed.ids)
        known = weighed.top[: agreed + 1] if agreed < len(weighed.top) else weighed.top
    return Trace(
        prompt=name,
        prompt_ids=prompt_ids,
        ids=answer.ids,
        text=answer.text,
        finish_reason=answer.finish_reason,
        top=tuple(
            tuple(
                TopToken(id=token, logprob=value)
                for token, value in sorted(place.items(), key=lambda item: -item[1])
            )
            for place in known
        ),
    )


def self_parity(first: Oracle, second: Oracle, *, concurrent: Oracle | None = None) -> SelfParity:
    """Compare a reference with itself started again, and with itself under load.

    Raises ValueError when they were not asked the same prompts.
    """
    again = _differences(first, second)
    loaded = [] if concurrent is None else _differences(first, concurrent)
    return SelfParity(
        exact=not again,
        prompts=len(first.traces),
        differing=tuple(name for name, _, _ in again),
        first_index=min((index for _, index, _ in again), default=None),
        margin=max((m for *_, margins in [*again, *loaded] for m in margins), default=None),
        under_load=None if concurrent is None else tuple(name for name, _, _ in loaded),
    )


def self_parity_gate(parity: SelfParity, objective: Objective, rung: str) -> GateResult:
    """Whether this lane can be held to the objective's parity mode.

    Exact mode needs a reference that repeats itself, also under load where the workload is
    concurrent. The other modes only report.
    """
    steady = parity.exact and not (objective.workload.is_concurrent and parity.under_load)
    passed = steady or objective.parity.mode != "exact"
    return GateResult(
        gate="parity",
        kind=GateKind.PARITY,
        rung=rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        code=None if passed else "parity_mismatch",
        reason=parity.sentence(),
        constraint=0.0 if passed else 0.5,
        evidence=parity.model_dump(),
    )


def _differences(first: Oracle, second: Oracle) -> list[tuple[str, int, list[float]]]:
    """Per prompt that differs: its name, the first index, and the margins known there."""
    if [trace.prompt_ids for trace in first.traces] != [t.prompt_ids for t in second.traces]:
        raise ValueError("two oracles with different prompts cannot be compared; record both anew.")
    found: list[tuple[str, int, list[float]]] = []
    for one, other in zip(first.traces, second.traces, strict=True):
        if one.ids == other.ids:
            continue
        index = parting(one.ids, other.ids)
        margins = [m for trace in (one, other) if (m := trace.margin(index)) is not None]
        found.append((one.prompt, index, margins))
    return found
