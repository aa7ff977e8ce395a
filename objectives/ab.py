"""The A/B gate: is the candidate faster than the control beside it, beyond doubt and by enough?

Control and candidate sessions alternate, a control at both ends. After each closing control the
interval is looked at: accepted when its lower bound beats 1 + minimal effect, futile when the gain
can hardly be proven any more, and otherwise one more candidate and control session are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from objectives.comparison import (
    Effect,
    Session,
    chance_of_proof,
    effect,
    final_weight,
    stated_noise,
)
from objectives.gate import GateKind, GateResult, GateStatus, clamp
from objectives.objective import Objective
from objectives.rate import Rate
from objectives.statistics import Noise

Decision = Literal["accept", "futile", "measure_control", "measure_candidate"]

SCALE = 0.1
"""A gain of this size moves the gate's constraint by 1."""


class ABPlan(BaseModel):
    """What is known of the gain, and what to do next; `effect` is None before there is a pair."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Decision
    reason: str
    effect: Effect | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None


def ab_plan(
    sessions: Sequence[Session], objective: Objective, *, noise: Noise | None = None
) -> ABPlan:
    """Decide from the sessions so far, oldest first, whether to accept, give up or measure on.

    `noise` is what the lane knows of its sessions (`learn_noise`); without it the objective's
    stated drift is used. The chance of a false "accept" for a candidate that gains no more than the
    minimal effect is at most (1 - confidence) / 2 over all looks: look i of k spends 2i / k(k + 1)
    of it (a Bonferroni split, so it holds however the looks depend on each other).
    """
    noise = noise or stated_noise(objective)
    roles = [session.role for session in sessions]
    if "control" not in roles:
        return ABPlan(decision="measure_control", reason="No control session has been measured.")
    if "candidate" not in roles:
        return ABPlan(decision="measure_candidate", reason="The candidate has not been measured.")
    now = effect(sessions, noise)
    most = objective.ab.max_candidate_sessions
    # Sessions that took turns shared every moment of the host; others need a control at both ends.
    took_turns = all(session.interleaved for session in sessions)
    is_closed = took_turns or (roles[0] == "control" and roles[-1] == "control")
    look = min(now.candidates, most)
    tail = (1 - objective.confidence) / 2 * 2 * look / (most * (most + 1))
    final_tail = (1 - objective.confidence) / (most + 1)
    bound = 1 + objective.minimal_effect
    low, high = now.low(tail), now.high(tail)
    final_se = min(noise.sd * final_weight(most), now.se)
    chance = chance_of_proof(now, bound=bound, final_se=final_se, final_tail=final_tail)
    shown = f"{_shown(now, noise)} [{low:.4f}, {high:.4f}]"

    def plan(decision: Decision, reason: str) -> ABPlan:
        return ABPlan(
            decision=decision, reason=reason, effect=now, low=low, high=high, chance=chance
        )

    if is_closed and low > bound:
        return plan("accept", f"{shown} lies above {bound:.4f}, the least gain worth having.")
    exhausted = is_closed and now.candidates >= most
    if exhausted:
        return plan(
            "futile",
            f"{shown} does not lie above {bound:.4f} after {most} candidate sessions.",
        )
    if chance < objective.ab.prospect:
        return plan(
            "futile",
            f"{shown}: the chance of ever proving a gain over {bound:.4f} is {100 * chance:.0f} %.",
        )
    if not is_closed or (took_turns and roles[-1] == "candidate"):
        return plan("measure_control", f"{shown} needs an adjacent control after the candidate.")
    return plan("measure_candidate", f"{shown} straddles {bound:.4f}; another session may decide.")


def ab_gate(
    before: Rate,
    candidate: Rate,
    after: Rate | None,
    objective: Objective,
    rung: str,
    *,
    more: Sequence[tuple[Literal["control", "candidate"], Rate]] = (),
    noise: Noise | None = None,
) -> GateResult:
    """The gate over an alternation of sessions: before, candidate, after, and then `more`.

    It passes only when the plan accepts. An undecided plan fails here, with `evidence["decision"]`
    naming the session that could still decide it: a gain that is not proven is not a gain.
    """
    sessions = [
        Session.of("control", before, objective),
        Session.of("candidate", candidate, objective),
        *([Session.of("control", after, objective)] if after is not None else []),
        *(Session.of(role, rate, objective) for role, rate in more),
    ]
    plan = ab_plan(sessions, objective, noise=noise)
    rates = [before, candidate, *([after] if after is not None else []), *(r for _, r in more)]
    return gate_of_plan(
        plan, objective, rung, seconds=sum(row.total_s for rate in rates for row in rate.repeats)
    )


def gate_of_plan(
    plan: ABPlan, objective: Objective, rung: str, *, seconds: float = 0.0
) -> GateResult:
    """A plan as the result of the A/B gate."""
    bound = 1 + objective.minimal_effect
    passed = plan.decision == "accept"
    evidence: dict[str, Any] = {"decision": plan.decision, "bound": bound, "chance": plan.chance}
    if plan.effect is not None:
        evidence |= {
            "ratio": plan.effect.ratio,
            "low": plan.low,
            "high": plan.high,
            "drift": None if plan.effect.drift is None else math.expm1(plan.effect.drift),
            "warm_up_left_out": plan.effect.warm_up,
            "session_sd": plan.effect.session_sd,
            "controls": plan.effect.controls,
            "candidates": plan.effect.candidates,
        }
    gap = math.log(bound) - math.log(plan.low) if plan.low else SCALE
    constraint = clamp(gap / SCALE)
    return GateResult(
        gate="ab",
        kind=GateKind.AB,
        rung=rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        code=None if passed else "gain_unproven",
        reason=plan.reason,
        constraint=min(constraint, 0.0) if passed else max(constraint, 1e-6),
        seconds=seconds,
        evidence=evidence,
    )


def _shown(now: Effect, noise: Noise) -> str:
    text = f"The ratio to the control, {now.ratio:.4f}"
    if now.drift is not None and abs(now.drift) > 2 * math.sqrt(2) * noise.sd:
        text += f" (the host drifted by {100 * math.expm1(now.drift):+.1f} % meanwhile)"
    if now.warm_up:
        text += " (first repeats left out as warm-up)"
    return f"{text}, with its interval"
