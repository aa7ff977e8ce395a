"""Recorded evidence: a laboratory's trial records, judged by the same code as our own trials.

The form of a record is documented in `tuner.lab_record`. A record's own verdict is never read to
find ours; that of the record it was compared with says whether this was a control. Of its reason
only this is read: a record that calls itself a control is a reference, not a candidate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from objectives import GateKind, GateResult, GateStatus
from runners import Failure
from tuner.lab_record import ACTIVITY, Record, RecordedError, read_records
from tuner.verdict import Code, Evidence, Verdict, judge

__all__ = ["RecordJudgement", "RecordedError", "judge_file", "judge_record"]

DEEP = "deep"
DEEP_REPEATS = {"metrics": 4, "json": 128, "color": 256}
"""What the laboratory's deepest rung asks for; a pass on less is a pass on a shallower rung."""

ENVIRONMENT = {"metrics": "METRICS_REPEATS", "json": "JSON_REPEATS", "color": "COLOR_REPEATS"}
"""Where a record without stated repeats may still tell how many were asked for."""

REQUIRED = frozenset({"speed", "canary.json", "canary.color", "quality.suite"})
"""The laboratory's own conditions for a promotion; it asked for no adjacent control run."""

SAME_VERDICT = {
    "accepted_base": Verdict.ACCEPTED,
    "promoted": Verdict.ACCEPTED,
    "promising": Verdict.PROMISING,
    "deferred": Verdict.PROMISING,
    "rejected": Verdict.REJECTED,
    "neutral": Verdict.REJECTED,  # not faster, in our words
    "invalid": Verdict.INVALID,
    "diagnostic": Verdict.DIAGNOSTIC,
}

FAILURES: Mapping[str, tuple[Code, str]] = {
    "device_lost": (Code.DEVICE_LOST, "candidate"),
    "graph_event_error": (Code.GRAPH_EVENT_WAIT, "candidate"),
    "readiness_exit": (Code.STARTUP_CRASH, "candidate"),
    "dynamo_error": (Code.COMPILE_ERROR, "candidate"),
    "inductor_assert": (Code.COMPILE_ERROR, "candidate"),
    "rpc_timeout": (Code.RPC_TIMEOUT, "candidate"),
    "timeout": (Code.ENGINE_HUNG, "candidate"),
    "stall": (Code.ENGINE_HUNG, "candidate"),
    "oom": (Code.OUT_OF_MEMORY, "candidate"),
    "oom_stale_memory": (Code.DEVICE_DIRTY, "device"),
}
"""The laboratory's classes of failure, ours, and who is to blame."""

PHASES = {"startup": "startup", "capture": "startup", "first_request": "first_request"}

FOREIGN = re.compile(
    r"\b(older|stale|mismatched|another|outdated)\b[^.;]*"
    r"\b(baseline|fixture|identity|trace|lane|control|reference)\b"
)
"""How a record says that what it was compared with belongs to another identity."""


class RecordJudgement(BaseModel):
    """Our verdict on a record beside the laboratory's.

    `explicit`: the laboratory wrote its verdict down. `states_gates`: the record says what each
    gate showed. Agreement is asked for where both hold, on endpoint and parity records.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    record: str
    kind: str
    verdict: Verdict
    code: str | None
    reason: str
    lab_verdict: str
    agrees: bool
    explicit: bool
    states_gates: bool

    @property
    def counts(self) -> bool:
        """Whether this record is one of those on which agreement is asked for."""
        return self.explicit and self.states_gates and self.kind in ("endpoint", "oracle_parity")


def judge_file(path: Path) -> list[RecordJudgement]:
    """Judge every record of a file, in its order. Raises RecordedError."""
    records = read_records(path)
    by_id = {record.id: record for record in records}
    return [judge_record(record, by_id) for record in records]


def judge_record(record: Record, others: Mapping[str, Record]) -> RecordJudgement:
    """Our verdict on one record; `others` are the records that it may refer to, by id."""
    judgement = judge(evidence(record, others))
    rejection = judgement.rejection
    if rejection is not None:
        reason = rejection.reason
    elif judgement.missing:
        reason = f"Every gate that ran passed; missing: {', '.join(judgement.missing)}."
    else:
        reason = "Every gate of the deepest rung passed."
    if judgement.verdict is Verdict.DIAGNOSTIC:
        reason = "It compares nothing: a diagnostic run, or a recording of the control."
    return RecordJudgement(
        record=record.id,
        kind=record.kind,
        verdict=judgement.verdict,
        code=None if rejection is None else rejection.code.value,
        reason=reason,
        lab_verdict=record.verdict,
        agrees=SAME_VERDICT.get(record.verdict) == judgement.verdict,
        explicit=not record.verdict_inferred,
        states_gates=bool(record.gates),
    )


def evidence(record: Record, others: Mapping[str, Record]) -> Evidence:
    """What a record shows, as the evidence of a trial."""
    gates = [
        *_speed(record, others),
        *_canaries(record),
        *_quality(record),
        *_parity(record),
        *_unnamed_failure(record),
    ]
    return Evidence(
        gates=tuple(gates),
        required=REQUIRED,
        rung=DEEP,
        failure=_failure(record),
        oracle_is_stale=_is_compared_with_foreign(record, others),
        diagnostic=_is_diagnostic(record),
    )


def _is_diagnostic(record: Record) -> bool:
    """Timing and kernel runs, known-drift checks, and runs of the control below the deep rung."""
    if record.kind in ("timing_diagnostic", "kernel"):
        return True
    parity = record.gates.get("parity", {})
    if parity.get("mode") == "known-drift":
        return True
    failed = parity.get("status") == "fail" or record.failure_class != "none"
    if failed or not record.is_reference:
        return False
    # A control that went all the way up may become the lane's base; any other only shows the lane.
    went_up = {gate.gate for gate in [*_canaries(record), *_quality(record)] if gate.rung == DEEP}
    return not went_up >= REQUIRED - {"speed"}


def _is_compared_with_foreign(record: Record, others: Mapping[str, Record]) -> bool:
    """Whether a parity failure only says that the oracle belongs to another identity.

    So it is when the record says so of what it was compared with, when that was itself found void,
    and when one recording of the control differs from another: candidates are not involved.
    """
    parity = record.gates.get("parity", {})
    if parity.get("status") != "fail":
        return False
    detail = "" if record.failure is None else record.failure.get("detail", "")
    against = others.get(str(parity.get("compared_with", record.base)))
    is_void = against is not None and against.verdict == "invalid"
    return bool(FOREIGN.search(detail)) or is_void or record.is_reference


def _speed(record: Record, others: Mapping[str, Record]) -> list[GateResult]:
    """The speed gate: a stated verdict or difference first, else the rate against the base's."""
    rung = DEEP if _depth(record, "metrics") >= DEEP_REPEATS["metrics"] else "smoke"
    if record.failure_class == "slow":
        detail = (record.failure or {}).get("detail", "slower than the control")
        return [_gate("speed", GateKind.SPEED, rung, passed=False, reason=f"{detail}.")]
    if record.rate is None:
        return []
    ratio = _stated_ratio(record)
    if ratio is None:
        control = others.get(record.base or "")
        if control is not None and SAME_VERDICT.get(control.verdict) is Verdict.ACCEPTED:
            ratio = record.rate / control.rate if control.rate else None
    if ratio is None:
        reason = f"{record.rate} tok/s; the record names no control to compare with."
        return [_gate("speed", GateKind.SPEED, rung, passed=True, reason=reason)]
    reason = f"{record.rate} tok/s, ratio to its control {ratio:.4f}."
    return [_gate("speed", GateKind.SPEED, rung, passed=ratio >= 1, reason=reason)]


def _stated_ratio(record: Record) -> float | None:
    """The ratio to a control, from whatever difference the record states."""
    for name, value in record.metrics.items():
        if not isinstance(value, (int, float)) or record.rate is None:
            continue
        if name.startswith("speedup"):
            return float(value)
        if name.startswith("delta_pct"):
            return 1 + float(value) / 100
        if name.startswith("delta_tok_s"):
            return record.rate / (record.rate - float(value))
    return None


def _canaries(record: Record) -> list[GateResult]:
    """The canaries that ran; one that was only asked for is missing."""
    found = []
    for name in ("json", "color"):
        row = record.gates.get(name, {})
        passed = _canary_passed(row)
        if passed is None:
            continue
        at = row.get("completed_or_failed_at")
        depth = _depth(record, name)
        if passed:
            reason = f"{depth} repeats are clean."
        else:
            reason = f"Repeat {at if at is not None else 'not stated'} of {depth or '?'} differs"
            reason += f": {row['output']!r}." if "output" in row else "."
        rung = DEEP if depth >= DEEP_REPEATS[name] else "smoke"
        found.append(_gate(f"canary.{name}", GateKind.CANARY, rung, passed=passed, reason=reason))
    return found


def _canary_passed(row: Mapping[str, Any]) -> bool | None:
    """Whether a canary was clean, None where the record does not say that it ran."""
    if "passed" in row:
        return bool(row["passed"])
    if row.get("status") in ("pass", "fail"):
        return bool(row["status"] == "pass")
    if row.get("mismatch_count") or "first_mismatch_index" in row:
        return False
    done, asked = row.get("completed_or_failed_at"), row.get("requested")
    return None if done is None or asked is None else bool(done >= asked)


def _quality(record: Record) -> list[GateResult]:
    found = []
    for gate, name in (("quality", "suite"), ("long_context", "long_context")):
        row = record.gates.get(gate, {})
        # One case that failed fails the suite, also where no status is given for the whole.
        status = "fail" if "fail" in row.values() else row.get("status")
        if status in ("pass", "fail"):
            passed = status == "pass"
            case = row.get("failed_case")
            reason = f"The {name} {'passes' if passed else 'fails'}"
            reason += f" at {case}." if case else "."
            found.append(
                _gate(f"quality.{name}", GateKind.QUALITY, DEEP, passed=passed, reason=reason)
            )
    return found


def _parity(record: Record) -> list[GateResult]:
    row = record.gates.get("parity", {})
    if row.get("status") == "fail":
        first = row.get("first_divergence") or {}
        reason = "Tokens differ from the reference's"
        if "index" in first:
            reason += f", first at index {first['index']}"
        if "expected_token" in first and "got_token" in first:
            reason += f": expected {first['expected_token']}, got {first['got_token']}"
        return [_gate("parity", GateKind.PARITY, "medium", passed=False, reason=f"{reason}.")]
    if row.get("status") != "pass":
        return []
    if record.speculates and not any(record.metrics.get(name) for name in ACTIVITY):
        return [
            GateResult(
                gate="parity",
                kind=GateKind.PARITY,
                rung="medium",
                status=GateStatus.MISSING,
                reason="Tokens agree, but nothing shows that speculation was active.",
                constraint=0.01,
            )
        ]
    return [_gate("parity", GateKind.PARITY, "medium", passed=True, reason="All tokens agree.")]


def _unnamed_failure(record: Record) -> list[GateResult]:
    """A gate that the record's failure names by its phase alone, without a row among the gates."""
    if record.failure is None or record.failure_class != "none":
        return []
    reason = f"{record.failure.get('detail', 'not stated')}."
    if record.failure.get("phase") == "canary" and not {"json", "color"} & set(record.gates):
        return [_gate("canary.unnamed", GateKind.CANARY, "smoke", passed=False, reason=reason)]
    if record.failure.get("phase") == "parity" and "parity" not in record.gates:
        return [_gate("parity", GateKind.PARITY, "medium", passed=False, reason=reason)]
    return []


def _failure(record: Record) -> Failure | None:
    """The engine's failure, if it had one; being slow is the speed gate's."""
    if record.failure is None or record.failure_class in ("none", "slow"):
        return None
    known = FAILURES.get(record.failure_class)
    phase = PHASES.get(record.failure.get("phase", ""), "serving")
    code = Code.STARTUP_CRASH if phase == "startup" else Code.ENGINE_DIED
    return Failure.model_validate(
        {
            "code": (known[0] if known else code).value,
            "phase": phase,
            "blame": known[1] if known else "candidate",
            "retry": bool(known and known[1] != "candidate"),
            "reason": record.failure.get("detail", record.failure_class),
        }
    )


def _depth(record: Record, gate: str) -> int:
    """Repeats of a gate: as the record states them, else as its environment asked for."""
    row = record.gates.get(gate, {})
    stated: Sequence[Any] = (
        row.get("requested"),
        row.get("repeats"),
        record.env.get(ENVIRONMENT[gate]),
        row.get("completed_or_failed_at"),
    )
    return next((int(value) for value in stated if value is not None), 0)


def _gate(gate: str, kind: GateKind, rung: str, *, passed: bool, reason: str) -> GateResult:
    return GateResult(
        gate=gate,
        kind=kind,
        rung=rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        reason=reason,
        constraint=0.0 if passed else 0.5,
    )
