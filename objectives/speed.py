"""The speed gate stops early what is too slow for the dearer gates, and checks the SLOs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from objectives.ab import SCALE, ab_plan
from objectives.comparison import Session, effect, stated_noise
from objectives.gate import GateKind, GateResult, GateStatus, clamp
from objectives.objective import Objective, Slo
from objectives.rate import Rate
from objectives.statistics import Noise


def speed_gate(
    rate: Rate,
    control: Rate | Sequence[Rate] | None,
    objective: Objective,
    rung: str,
    *,
    noise: Noise | None = None,
) -> GateResult:
    """Compare a session with the control's: floor first, then futility.

    `too_slow` when even the upper bound of the ratio lies under 1. `gain_unproven` when the gain
    can hardly be proven any more, whatever the A/B gate would measure. The bounds allow for the
    drift between sessions. Without a control only the floor is checked; with several recent ones,
    oldest first, their mean is known the better.
    """
    evidence: dict[str, Any] = {
        "metric": objective.metric,
        "samples": list(rate.samples(objective.metric)),
        "warnings": list(rate.warnings),
    }
    samples = rate.samples(objective.metric)
    mean = sum(samples) / len(samples)

    def gate(code: str | None, reason: str, constraint: float) -> GateResult:
        return GateResult(
            gate="speed",
            kind=GateKind.SPEED,
            rung=rung,
            status=GateStatus.PASSED if code is None else GateStatus.FAILED,
            code=code,
            reason=reason,
            constraint=clamp(min(constraint, 0.0) if code is None else max(constraint, 1e-6)),
            seconds=sum(row.total_s for row in rate.repeats),
            evidence=evidence,
        )

    unit = _unit(objective)
    if min(samples) <= 0:
        return gate("too_slow", f"A repeat gave {min(samples):g} {unit}: nothing to compare.", 1.0)
    floor = objective.speed_floor
    if floor is not None:
        evidence["floor"] = floor
        is_worse = mean < floor if objective.direction == "maximize" else mean > floor
        if is_worse:
            side = "under" if objective.direction == "maximize" else "over"
            return gate(
                "below_floor",
                f"{mean:.2f} {unit} is {side} the floor of {floor:g}.",
                abs(mean / floor - 1),
            )
    controls = [control] if isinstance(control, Rate) else list(control or ())
    if not controls:
        return gate(None, f"{mean:.2f} {unit}; there is no control to compare with.", 0.0)
    noise = noise or stated_noise(objective)
    sessions = [
        *(Session.of("control", each, objective) for each in controls),
        Session.of("candidate", rate, objective),
    ]
    if _may_be_warming_up(sessions[-1], noise):
        sessions = [session.without_first() for session in sessions]
    now = effect(sessions, noise)
    tail = (1 - objective.confidence) / 2
    low, high = now.low(tail), now.high(tail)
    beside = sum(sum(each.samples(objective.metric)) / len(each.repeats) for each in controls)
    beside /= len(controls)
    evidence |= {"ratio": now.ratio, "low": low, "high": high, "control": beside}
    shown = f"{mean:.2f} {unit} against {beside:.2f}, ratio {now.ratio:.4f} [{low:.4f}, {high:.4f}]"
    shortfall = -now.log_ratio / SCALE
    if high < 1:
        return gate("too_slow", f"{shown}: even the upper bound is under 1.", shortfall)
    plan = ab_plan(sessions, objective, noise=noise)
    evidence["chance"] = plan.chance
    if plan.decision == "futile":
        return gate(
            "gain_unproven",
            f"{shown}: the chance of proving a gain over {1 + objective.minimal_effect:.4f} is "
            f"{100 * (plan.chance or 0.0):.1f} %.",
            shortfall,
        )
    return gate(None, f"{shown}.", shortfall)


def _may_be_warming_up(session: Session, noise: Noise) -> bool:
    """Whether the first repeat is so far under the others that it may be a warm-up.

    It gets the benefit of the doubt here, where only the hopeless are stopped; the A/B gate, which
    promotes, asks for more evidence and treats both sides alike.
    """
    first, *rest = session.logs
    if not rest:
        return False
    gap = sum(rest) / len(rest) - first
    return gap > 1.5 * noise.repeat_sd * math.sqrt(1 + 1 / len(rest))


def slo_gates(rate: Rate, objective: Objective, rung: str) -> list[GateResult]:
    """One gate for each service-level objective; empty where there are none."""
    return [_slo_gate(rate, slo, rung) for slo in objective.slos]


def _slo_gate(rate: Rate, slo: Slo, rung: str) -> GateResult:
    sample = {
        "ttft_ms": rate.ttft_percentiles_ms,
        "itl_ms": rate.itl_ms,
        "e2e_ms": rate.e2e_ms,
    }[slo.metric]
    seen = float(getattr(sample, slo.statistic))
    passed = seen <= slo.at_most
    excess = seen / slo.at_most - 1
    sign = "at most" if passed else "over"
    return GateResult(
        gate=slo.name,
        kind=GateKind.SLO,
        rung=rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        code=None if passed else "slo_missed",
        reason=f"{slo.statistic} of {slo.metric} is {seen:.1f}, {sign} {slo.at_most:g} "
        f"(of {sample.n} samples).",
        constraint=clamp(min(excess, 0.0) if passed else max(excess, 1e-6)),
        evidence={"seen": seen, "at_most": slo.at_most, "samples": sample.n},
    )


def _unit(objective: Objective) -> str:
    return {"ttft_ms": "ms to the first token", "goodput_rps": "good requests/s"}.get(
        objective.metric, "tok/s"
    )
