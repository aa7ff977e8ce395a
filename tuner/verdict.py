"""Verdicts: the closed lists of words and codes, and the one function that judges a trial.

The lists here are the only ones: the reference documentation and the JSON Schemas are generated
from them, and `runners/catalog/signatures.yaml` may name no code that is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from objectives import GateKind, GateResult, GateStatus
from runners import Failure


class Verdict(StrEnum):
    """What a trial says about its candidate."""

    ACCEPTED = "accepted"
    PROMISING = "promising"
    REJECTED = "rejected"
    INVALID = "invalid"
    DIAGNOSTIC = "diagnostic"


VERDICT_MEANINGS: dict[Verdict, str] = {
    Verdict.ACCEPTED: "Every gate of the deepest rung passed and the gain is proven; it becomes "
    "the lane's control.",
    Verdict.PROMISING: "Every gate that ran passed; deeper rungs did not run.",
    Verdict.REJECTED: "A gate failed, or the candidate is not faster; the code says which.",
    Verdict.INVALID: "The result says nothing about the candidate; it is tried again, boundedly.",
    Verdict.DIAGNOSTIC: "A run with tracing or timing on; never compared on speed.",
}


class Code(StrEnum):
    """Why a trial was not accepted. Closed: a new reason is a new member with its sentence."""

    # static: refused before anything starts
    GUARD_CLOSED = "guard_closed"
    CONSTRAINT_VIOLATED = "constraint_violated"
    KNOWN_REJECTED = "known_rejected"
    DUPLICATE = "duplicate"
    # startup: the engine did not come up, and the candidate is to blame
    ARGUMENT_REFUSED = "argument_refused"
    STARTUP_CRASH = "startup_crash"
    READINESS_TIMEOUT = "readiness_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    COMPILE_ERROR = "compile_error"
    GRAPH_CAPTURE_FAILED = "graph_capture_failed"
    GRAPH_EVENT_WAIT = "graph_event_wait"
    FIRST_REQUEST_FAILED = "first_request_failed"
    # serving: it came up and died, hung or answered with errors
    DEVICE_LOST = "device_lost"
    ENGINE_DIED = "engine_died"
    ENGINE_HUNG = "engine_hung"
    RPC_TIMEOUT = "rpc_timeout"
    REQUEST_FAILED = "request_failed"
    # gates: it served, and something that must hold did not
    PARITY_MISMATCH = "parity_mismatch"
    CANARY_MISMATCH = "canary_mismatch"
    QUALITY_FAILED = "quality_failed"
    SLO_MISSED = "slo_missed"
    TOO_SLOW = "too_slow"
    BELOW_FLOOR = "below_floor"
    GAIN_UNPROVEN = "gain_unproven"
    # invalid: nothing was learned about the candidate
    LANE_UNHEALTHY = "lane_unhealthy"
    IDENTITY_DRIFT = "identity_drift"
    STALE_ORACLE = "stale_oracle"
    DEVICE_DIRTY = "device_dirty"
    DEVICE_FAULT = "device_fault"
    HOST_FAULT = "host_fault"
    HARNESS_ERROR = "harness_error"
    USER_ERROR = "user_error"
    INTERRUPTED = "interrupted"
    NOT_COMPARABLE = "not_comparable"


CODE_MEANINGS: dict[Code, str] = {
    Code.GUARD_CLOSED: "A guard of the search space refuses this set of knobs.",
    Code.CONSTRAINT_VIOLATED: "A constraint between knobs does not hold.",
    Code.KNOWN_REJECTED: "The space lists this as a known dead end, and nothing reopens it.",
    Code.DUPLICATE: "This exact identity has a verdict already.",
    Code.ARGUMENT_REFUSED: "The engine refused an argument or an environment value.",
    Code.STARTUP_CRASH: "The engine ended before it was ready.",
    Code.READINESS_TIMEOUT: "The engine was not ready within its time.",
    Code.OUT_OF_MEMORY: "The engine asked for more memory than a clean device has.",
    Code.COMPILE_ERROR: "Compiling the model for this configuration failed.",
    Code.GRAPH_CAPTURE_FAILED: "Capturing the device graph failed.",
    Code.GRAPH_EVENT_WAIT: "The engine waited on an event that belongs to a recorded graph.",
    Code.FIRST_REQUEST_FAILED: "The engine said ready, and its first real request failed.",
    Code.DEVICE_LOST: "The device was lost while this candidate ran on it.",
    Code.ENGINE_DIED: "The engine ended while it served.",
    Code.ENGINE_HUNG: "The engine stopped answering while it served.",
    Code.RPC_TIMEOUT: "The engine's own processes stopped answering each other.",
    Code.REQUEST_FAILED: "A request was answered with an error while the engine lived on.",
    Code.PARITY_MISMATCH: "Its tokens differ from the reference's.",
    Code.CANARY_MISMATCH: "A canary's answer changed at some repeat.",
    Code.QUALITY_FAILED: "A case of the quality suite failed.",
    Code.SLO_MISSED: "A service-level objective was missed.",
    Code.TOO_SLOW: "Even the upper bound of its rate lies under the control's.",
    Code.BELOW_FLOOR: "Its rate lies under the objective's speed floor.",
    Code.GAIN_UNPROVEN: "Against adjacent control runs the gain could not be shown.",
    Code.LANE_UNHEALTHY: "The control fails the same gate at the same depth: the lane is broken.",
    Code.IDENTITY_DRIFT: "The engine ignored or changed something that was asked for.",
    Code.STALE_ORACLE: "The recorded reference belongs to another identity of the lane.",
    Code.DEVICE_DIRTY: "The device was not clean before the start.",
    Code.DEVICE_FAULT: "The device failed in a way that is not the candidate's doing.",
    Code.HOST_FAULT: "The host, or the process that evaluated the trial, went away.",
    Code.HARNESS_ERROR: "The tuner itself raised an error while it evaluated the trial.",
    Code.USER_ERROR: "Something the user gave is missing or wrong; the reason names it.",
    Code.INTERRUPTED: "The run was stopped before this trial ended.",
    Code.NOT_COMPARABLE: "It was not measured under the control's conditions.",
}

CORRECTNESS = frozenset({GateKind.CANARY, GateKind.QUALITY, GateKind.PARITY})
"""Kinds whose failure accuses the candidate only if an adjacent control passes the same gate."""


class Rejection(BaseModel):
    """Why a trial was not accepted: the code, one line with the numbers, and which gate said so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Code
    reason: str
    gate: str


class Evidence(BaseModel):
    """All that is known of a trial when it is judged.

    `gates` are the results in the order in which they ran. `required` names the gates of the
    deepest rung that acceptance needs, and `rung` is that rung: a pass on a shallower one does not
    count for it (None accepts any). `control_gates` are the results of the same gates, at the
    same depth, on an adjacent run of the control; a gate that is absent there was not asked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gates: tuple[GateResult, ...] = ()
    required: frozenset[str] = frozenset()
    rung: str | None = None
    control_gates: Mapping[str, GateResult] = {}
    failure: Failure | None = None
    identity_drift: tuple[str, ...] = ()
    oracle_is_stale: bool = False
    diagnostic: bool = False


class Judgement(BaseModel):
    """A verdict with its reason, and the two facts that people must not confuse.

    `quality_validated`: every correctness gate of the deepest rung passed. `promotion_ready`: that,
    and every other required gate (speed floor, A/B bound) too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    rejection: Rejection | None = None
    quality_validated: bool = False
    promotion_ready: bool = False
    missing: tuple[str, ...] = ()


def judge(evidence: Evidence) -> Judgement:
    """The verdict on a trial. Pure: equal evidence, equal verdict.

    Monotone: a further failure never turns a verdict into a better one, and a gate that did not
    run counts as missing, never as passed.
    """
    last = {gate.gate: gate for gate in evidence.gates}
    held = {name for name, gate in last.items() if gate.status is GateStatus.PASSED}
    failed = [gate for gate in evidence.gates if gate.status is GateStatus.FAILED]
    held -= {gate.gate for gate in failed}
    # A start has a rung of its own, and is as good for every deeper one.
    passed = {n for n in held if evidence.rung in (None, last[n].rung) or last[n].rung == "startup"}
    missing = tuple(sorted(evidence.required - passed - {gate.gate for gate in failed}))

    def judgement(verdict: Verdict, rejection: Rejection | None = None) -> Judgement:
        correct = _is_quality_validated(evidence, passed)
        return Judgement(
            verdict=verdict,
            rejection=rejection,
            quality_validated=correct,
            promotion_ready=verdict is Verdict.ACCEPTED,
            missing=missing,
        )

    if evidence.diagnostic:
        return judgement(Verdict.DIAGNOSTIC)
    void = _why_void(evidence, failed)
    if void is not None:
        return judgement(Verdict.INVALID, void)
    if evidence.failure is not None:
        return judgement(Verdict.REJECTED, _from_failure(evidence.failure))
    if failed:
        return judgement(Verdict.REJECTED, _from_gates(failed, evidence.control_gates))
    if not held:
        reason = "No gate ran, so nothing is known of this candidate."
        return judgement(
            Verdict.INVALID, Rejection(code=Code.NOT_COMPARABLE, reason=reason, gate="ladder")
        )
    if missing or not evidence.required:
        return judgement(Verdict.PROMISING)
    return judgement(Verdict.ACCEPTED)


def _why_void(evidence: Evidence, failed: Sequence[GateResult]) -> Rejection | None:
    """The reason why this trial says nothing about its candidate, if there is one."""
    failure = evidence.failure
    if failure is not None and failure.blame != "candidate":
        return _from_failure(failure)
    if evidence.identity_drift:
        what = "; ".join(evidence.identity_drift)
        reason = f"The engine does not run what was asked for: {what}."
        return Rejection(code=Code.IDENTITY_DRIFT, reason=reason, gate="identity")
    if evidence.oracle_is_stale:
        reason = "The oracle was recorded under another identity of this lane; record it again."
        return Rejection(code=Code.STALE_ORACLE, reason=reason, gate="parity")
    for gate in failed:
        control = evidence.control_gates.get(gate.gate)
        if gate.kind not in CORRECTNESS or control is None:
            continue
        if _is_failed(control):
            reason = f"The adjacent control fails {gate.gate} too: {control.reason}"
            return Rejection(code=Code.LANE_UNHEALTHY, reason=reason, gate=gate.gate)
        if control.status is GateStatus.MISSING:
            reason = f"Whether the control passes {gate.gate} could not be told: {control.reason}"
            return Rejection(code=Code.NOT_COMPARABLE, reason=reason, gate=gate.gate)
    return None


def _from_failure(failure: Failure) -> Rejection:
    return Rejection(code=Code(failure.code), reason=failure.reason, gate=failure.phase)


def _from_gates(failed: Sequence[GateResult], control: Mapping[str, GateResult]) -> Rejection:
    """The first failure in the order in which the gates ran, with the others counted."""
    first = failed[0]
    reason = first.reason
    beside = control.get(first.gate)
    if first.kind in CORRECTNESS and beside is not None and beside.status is GateStatus.PASSED:
        reason += " The adjacent control passes the same gate."
    others = [gate.gate for gate in failed[1:]]
    if others:
        reason += f" Also failed: {', '.join(others)}."
    return Rejection(code=Code(first.code or _default_code(first)), reason=reason, gate=first.gate)


def _default_code(gate: GateResult) -> Code:
    return {
        GateKind.STARTUP: Code.STARTUP_CRASH,
        GateKind.SPEED: Code.TOO_SLOW,
        GateKind.CANARY: Code.CANARY_MISMATCH,
        GateKind.QUALITY: Code.QUALITY_FAILED,
        GateKind.PARITY: Code.PARITY_MISMATCH,
        GateKind.SLO: Code.SLO_MISSED,
        GateKind.AB: Code.GAIN_UNPROVEN,
    }[gate.kind]


def _is_quality_validated(evidence: Evidence, passed: set[str]) -> bool:
    """Whether every required correctness gate ran and passed; by prefix, as gates are named."""
    needed = {
        name for name in evidence.required if name.split(".")[0] in {k.value for k in CORRECTNESS}
    }
    return bool(needed) and needed <= passed and evidence.failure is None


def _is_failed(gate: GateResult) -> bool:
    return gate.status is GateStatus.FAILED
