"""Making ledger records: from what an attempt showed, from a static refusal, from a lost actor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from objectives import GateResult, Objective
from runners import Failure
from tuner.candidate import Candidate
from tuner.ledger import TrialRecord, utc_now
from tuner.scoring import required_gates
from tuner.trial import TrialOutcome
from tuner.verdict import Code, Evidence, Judgement, Rejection, Verdict, judge


@dataclass(frozen=True)
class RecordContext:
    """What all records of one run share."""

    study: str
    lane: str
    objective: Objective


def trial_record(
    context: RecordContext, candidate: Candidate, outcome: TrialOutcome
) -> TrialRecord:
    """The record of an attempt that ran to its end, judged from its evidence."""
    judgement = judge(
        Evidence(
            gates=tuple(outcome.gates),
            required=required_gates(context.objective, candidate.role),
            rung=context.objective.deepest.rung,
            control_gates=outcome.control_gates,
            failure=outcome.failure,
            identity_drift=outcome.identity_drift,
        )
    )
    return TrialRecord(
        **_named(context, candidate),
        judgement=judgement,
        rung=outcome.rung,
        gates=tuple(outcome.gates),
        control_gates=outcome.control_gates,
        rate=outcome.rate,
        control_rates=tuple(outcome.control_rates),
        unverified=outcome.unverified,
        failure=outcome.failure,
        launch=outcome.launch,
        host=outcome.host,
        devices=outcome.devices,
        seconds_by_rung=outcome.seconds_by_rung,
        started_at=outcome.started_at,
        finished_at=outcome.finished_at,
        notices=tuple(outcome.notices),
    )


def refused_record(
    context: RecordContext, candidate: Candidate, gate: GateResult, earlier: TrialRecord | None
) -> TrialRecord:
    """The record of a candidate that was refused on the static rung, at no cost.

    A duplicate carries the rate of the record that settled its identity, so that the sampler hears
    the same of equal things.
    """
    now = utc_now()
    return TrialRecord(
        **_named(context, candidate),
        judgement=judge(Evidence(gates=(gate,), required=required_gates(context.objective))),
        rung="static",
        gates=(gate,),
        rate=earlier.rate if earlier else None,
        host="",
        started_at=now,
        finished_at=now,
        duplicate_of=earlier.number if earlier else None,
    )


def lost_record(
    context: RecordContext,
    candidate: Candidate,
    gates: Sequence[GateResult],
    failure: Failure,
    host: str | None,
) -> TrialRecord:
    """The record of an attempt that never came back: invalid, with what it had shown by then."""
    now = utc_now()
    return TrialRecord(
        **_named(context, candidate),
        judgement=Judgement(
            verdict=Verdict.INVALID,
            rejection=Rejection(code=Code(failure.code), reason=failure.reason, gate="host"),
        ),
        rung=gates[-1].rung if gates else "startup",
        gates=tuple(gates),
        failure=failure,
        host=host or "",
        seconds_by_rung=_seconds(gates),
        started_at=now,
        finished_at=now,
    )


def gone(reason: str, host: str | None) -> Failure:
    """The failure of an attempt whose process, host or devices went away."""
    return Failure(
        code=Code.HOST_FAULT.value,
        phase="serving",
        blame="host",
        retry=True,
        reason=f"The trial on {host or 'no host'} went away: {reason}.",
    )


def raised(traceback: str) -> Failure:
    """The failure of an attempt in which the tuner's own code raised; `traceback` is Python's."""
    lines = [line for line in traceback.strip().splitlines() if line.strip()]
    return Failure(
        code=Code.HARNESS_ERROR.value,
        phase="serving",
        blame="host",
        retry=False,
        reason=f"The tuner itself failed: {lines[-1].strip() if lines else 'no message'}.",
        excerpt=tuple(lines[-10:]),
    )


def _seconds(gates: Sequence[GateResult]) -> dict[str, float]:
    seconds: dict[str, float] = {"startup": 0.0}
    for gate in gates:
        seconds[gate.rung] = seconds.get(gate.rung, 0.0) + gate.seconds
    return seconds


def _named(context: RecordContext, candidate: Candidate) -> dict[str, Any]:
    return {
        "study": context.study,
        "lane": context.lane,
        "number": candidate.number,
        "attempt": candidate.attempt,
        "role": candidate.role,
        "hypothesis": candidate.hypothesis,
        "assignment": dict(candidate.configuration.assignment),
        "identity": candidate.identity,
        "control_sha": candidate.control_sha,
        "directory": f"trials/{candidate.number:04}/attempt-{candidate.attempt}",
    }
