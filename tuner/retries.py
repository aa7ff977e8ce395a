"""What follows from an attempt that says nothing of its candidate: again, elsewhere, or never."""

from __future__ import annotations

from collections.abc import Sequence

from runners import FailedAttempt, Failure, Resolution, resolve
from tuner.ledger import TrialRecord
from tuner.verdict import Code, Evidence, Verdict, judge

HOPELESS = frozenset(
    {Code.IDENTITY_DRIFT, Code.USER_ERROR, Code.LANE_UNHEALTHY, Code.HARNESS_ERROR}
)
"""Reasons of invalid trials that a second attempt would only meet again."""


def resolution(attempts: Sequence[TrialRecord], max_attempts: int) -> Resolution | None:
    """Whether the trial of these attempts, oldest first, is tried again, and where not.

    None where nothing more is to be done: the last attempt is settled, or hopeless.
    """
    last = attempts[-1]
    hopeless = last.rejection is not None and last.rejection.code in HOPELESS
    if last.verdict is not Verdict.INVALID or last.failure is None or hopeless:
        return None
    failed = [FailedAttempt(a.host, a.failure) for a in attempts if a.failure is not None]
    return resolve(failed, max_attempts=max_attempts)


def overtaken(record: TrialRecord, control: TrialRecord | None) -> TrialRecord:
    """The record as it stands when another candidate was accepted while this one ran.

    It has beaten a control that is the control no more, so its acceptance proves nothing: it is
    measured again, beside the new one.
    """
    if record.role == "control" or record.verdict is not Verdict.ACCEPTED or control is None:
        return record
    if record.control_sha == control.identity.sha:
        return record
    failure = Failure(
        code=Code.NOT_COMPARABLE.value,
        phase="serving",
        blame="host",
        retry=True,
        reason=f"Trial {control.number} became the control while this one was compared with its "
        "predecessor; it is measured again beside the new one.",
    )
    judgement = judge(Evidence(gates=record.gates, failure=failure))
    return record.model_copy(update={"failure": failure, "judgement": judgement})


def convicted(record: TrialRecord, earlier: Sequence[TrialRecord], limit: int) -> TrialRecord:
    """The record with the blame as it stands after all attempts.

    Three different hosts that fail alike are not three sick hosts: the candidate brings them down.
    """
    found = resolution([*earlier, record], limit)
    if found is None or record.failure is None or found.failure.blame == record.failure.blame:
        return record
    judgement = judge(Evidence(gates=record.gates, failure=found.failure))
    return record.model_copy(update={"failure": found.failure, "judgement": judgement})
