"""Doubts about a measurement: what a careful engineer would say before believing the number."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.client import Completion
from objectives.engine_view import EngineView
from objectives.rate import Repeat
from objectives.statistics import first_repeat_is_slow
from objectives.workload import Workload

DISAGREEMENT = 0.02
"""Client and engine may differ by this share; more is a warning with its cause looked for."""

BUSY_CLIENT = 0.8
"""Share of a core above which the client itself may be what is slow."""


def doubts(
    workload: Workload,
    rows: Sequence[Repeat],
    answers: Sequence[Completion],
    view: EngineView | None,
    *,
    client_cpu: float,
) -> tuple[str, ...]:
    """One sentence for each thing that makes this rate less than what it seems."""
    found = [
        _cached(rows, view),
        _short(workload, answers),
        _warm_up(rows),
        _nondeterministic(rows),
        _engine_disagrees(answers, view, client_cpu),
    ]
    return tuple(doubt for doubt in found if doubt)


def client_decode_tok_s(answers: Sequence[Completion]) -> float | None:
    """The client's corrected rate, weighted as the engine's sums weigh it."""
    seconds = sum(answer.last_token_s - answer.first_token_s for answer in answers)
    tokens = sum(len(answer.ids) - answer.events[0][1] for answer in answers)
    return tokens / seconds if seconds > 0 else None


def _cached(rows: Sequence[Repeat], view: EngineView | None) -> str | None:
    told = [row.cached_tokens for row in rows if row.cached_tokens is not None]
    cached = sum(told) if told else (view.cached_tokens or view.cache_hits or 0) if view else 0
    if not cached:
        return None
    return (
        f"{cached} prompt tokens came from the prefix cache although every request had its own "
        "salt; the time to first token is too short. Start the engine without prefix caching."
    )


def _short(workload: Workload, answers: Sequence[Completion]) -> str | None:
    short = sum(len(answer.ids) < workload.output_tokens for answer in answers)
    if not short or not workload.ignore_eos:
        return None
    return (
        f"{short} of {len(answers)} answers have fewer than {workload.output_tokens} tokens "
        "although the end of sequence was to be ignored; the engine ignored that wish."
    )


def _warm_up(rows: Sequence[Repeat]) -> str | None:
    rates = [row.tok_s for row in rows]
    if not all(rate > 0 for rate in rates) or not first_repeat_is_slow(rates):
        return None
    rest = sum(rates[1:]) / len(rates[1:])
    return (
        f"the first repeat was {100 * (1 - rates[0] / rest):.1f} % slower than the others' mean "
        "(warm-up); comparisons leave it out on both sides. Ask for more warm-up."
    )


def _nondeterministic(rows: Sequence[Repeat]) -> str | None:
    said: dict[str, set[str]] = {}
    for row in rows:
        if row.requests == 1:
            said.setdefault(row.prompt, set()).add(row.output_sha)
    unsteady = sorted(prompt for prompt, shas in said.items() if len(shas) > 1)
    if not unsteady:
        return None
    return (
        f"the prompt {unsteady[0]} was answered with different tokens in different repeats; "
        "greedy decoding is not deterministic here."
    )


def _engine_disagrees(
    answers: Sequence[Completion], view: EngineView | None, client_cpu: float
) -> str | None:
    client = client_decode_tok_s(answers)
    if view is None or view.decode_tok_s is None or client is None:
        return None
    if view.requests != len(answers):
        return (
            f"the engine finished {view.requests} requests while {len(answers)} were measured; "
            "somebody else uses this endpoint, so the rates are not comparable."
        )
    gap = client / view.decode_tok_s - 1
    if abs(gap) <= DISAGREEMENT:
        return None
    return (
        f"client and engine disagree by {100 * gap:+.1f} % ({client:.2f} against "
        f"{view.decode_tok_s:.2f} tok/s); {_cause(answers, client_cpu)}"
    )


def _cause(answers: Sequence[Completion], client_cpu: float) -> str:
    events = sum(len(answer.events) for answer in answers)
    tokens = sum(len(answer.ids) for answer in answers)
    if client_cpu > BUSY_CLIENT:
        return (
            f"likely cause: the client used {100 * client_cpu:.0f} % of a core, so it read late. "
            "Measure with fewer streams, or from another machine."
        )
    if tokens > 1.2 * events:
        return (
            f"likely cause: an event brought {tokens / max(events, 1):.1f} tokens on average, so "
            "first and last token are known only to within an event. Longer answers help."
        )
    return (
        "no cause found in the client (it was mostly idle, and events brought one token each): "
        "look at the network or a proxy between them, and at other load on this host."
    )
