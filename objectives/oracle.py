"""The oracle: token traces of the reference, and what it shows about itself when asked again."""

from __future__ import annotations

import asyncio
import time

from pydantic import BaseModel, ConfigDict

from objectives.client import Ask, Client, Completion, ask_in_turn
from objectives.endpoint import Endpoint
from objectives.gate import Progress, ignore_progress
from objectives.objective import Objective
from objectives.prompts import make_prompts
from objectives.trace import parting


class TopToken(BaseModel):
    """A token that was likely at some place, with its log-probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    logprob: float


class Trace(BaseModel):
    """What the reference says to one prompt.

    `ids` were decoded plainly, as in service; `top` comes from a second request with
    log-probabilities, and is empty from the place on where that one said something else.
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
    second choice at any place where the two runs parted: at gaps up to that, it flips by itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: bool
    prompts: int
    differing: tuple[str, ...] = ()
    first_index: int | None = None
    margin: float | None = None

    def sentence(self) -> str:
        """What this lane may ask for."""
        if self.exact:
            return f"The reference repeats itself token for token on all {self.prompts} prompts."
        margin = "unknown" if self.margin is None else f"{self.margin:.4f}"
        return (
            f"The reference differs from itself on {len(self.differing)} of {self.prompts} "
            f"prompts, first at index {self.first_index}, at a margin of {margin}: exact parity "
            "cannot be asked for in this lane; use bounded mode."
        )


def record_oracle(
    endpoint: Endpoint,
    objective: Objective,
    *,
    identity_sha: str,
    at_a_time: int = 1,
    on_progress: Progress | None = None,
) -> Oracle:
    """Record what the reference says to the parity prompts, shortest rung's prompts first.

    `at_a_time` above 1 keeps that many requests open, to see whether load changes what is said.
    Raises EndpointError.
    """
    return asyncio.run(
        _record(endpoint, objective, identity_sha, at_a_time, on_progress or ignore_progress)
    )


async def _record(
    endpoint: Endpoint,
    objective: Objective,
    identity_sha: str,
    at_a_time: int,
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
            weighed = await ask_in_turn(
                client,
                [ask.model_copy(update={"top": policy.top}) for ask in plain[own]],
                at_a_time=at_a_time,
            )
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
    name: str, prompt_ids: tuple[int, ...], answer: Completion, weighed: Completion
) -> Trace:
    agreed = parting(answer.ids, weighed.ids)
    # Where the two part, the alternatives still belong to the shared way up to that place.
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


def self_parity(first: Oracle, second: Oracle) -> SelfParity:
    """Compare two recordings of one reference (restarted, or under load).

    Raises ValueError when they were not asked the same prompts.
    """
    if [trace.prompt_ids for trace in first.traces] != [t.prompt_ids for t in second.traces]:
        raise ValueError("two oracles with different prompts cannot be compared; record both anew.")
    differing: list[str] = []
    indices: list[int] = []
    margins: list[float] = []
    for one, other in zip(first.traces, second.traces, strict=True):
        if one.ids == other.ids:
            continue
        index = parting(one.ids, other.ids)
        differing.append(one.prompt)
        indices.append(index)
        seen = [m for trace in (one, other) if (m := trace.margin(index)) is not None]
        margins += seen
    return SelfParity(
        exact=not differing,
        prompts=len(first.traces),
        differing=tuple(differing),
        first_index=min(indices, default=None),
        margin=max(margins, default=None),
    )
