"""A kernel's trial as a record of the ledger: its identity, its gates, and who is to blame.

A kernel has microseconds and no token rate, so `rate` stays empty and the times are the evidence
of the speed gate. A quick trial reaches the rung `smoke`. The winner, and whoever failed where it
should have won, is tried again on the rung `deep`: only there can a configuration be accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kernels import Ground, KernelTrial
from objectives import GateKind, GateResult, GateStatus
from objectives.gate import UNPROVEN, clamp
from runners import Failure
from tuner.identity import Identity, Value, lane_of
from tuner.ledger import TrialRecord
from tuner.verdict import Code, Evidence, judge

STARTUP = "startup"
EXACTNESS = "parity.exactness"
SPEED = "speed"
REQUIRED = frozenset({STARTUP, EXACTNESS, SPEED})

QUICK = "smoke"
DEEP = "deep"

CODES = {
    "failed": Code.REQUEST_FAILED,
    "crashed": Code.ENGINE_DIED,
    "hung": Code.ENGINE_HUNG,
    "context_lost": Code.DEVICE_LOST,
    "refused": Code.ARGUMENT_REFUSED,
    "illegal": Code.CONSTRAINT_VIOLATED,
    "not_started": Code.HOST_FAULT,
}
"""What becomes of a worker, as a code. Only a worker that cannot start is not the candidate's."""

ENDS = {
    "failed": "raised an error",
    "crashed": "died",
    "hung": "hung",
    "context_lost": "lost its device",
    "refused": "refused the configuration",
    "illegal": "was not asked, the configuration is refused",
    "not_started": "could not be asked",
}
"""The same in words, after "The worker"."""

RAISED = {
    "OutOfResources": Code.OUT_OF_MEMORY,
    "OutOfMemoryError": Code.OUT_OF_MEMORY,
    "CompilationError": Code.COMPILE_ERROR,
}
"""Exceptions of torch and Triton whose name says more than that a call failed."""


@dataclass(frozen=True)
class Comparison:
    """What a time is compared with: `us`, its upper bound `high_us`, and how it is called."""

    what: str
    us: float
    high_us: float


def kernel_identity(ground: Ground, config: dict[str, Value]) -> Identity:
    """Everything that decides this configuration's result."""
    device = ground.identity
    versions = ("python", "torch", "triton", "runtime")
    return Identity(
        configuration={"args": dict(config), "env": {}},
        engine={
            "name": "kernels",
            "version": device["torch"],
            "candidate": ground.candidate.name,
            "sources_sha": ground.sources_sha,
            **{name: device[name] for name in versions},
        },
        model={"op": ground.op.name},
        topology={
            **{name: value for name, value in device.items() if name not in versions},
            "limits": ground.limits.to_json(),
        },
        workload={"name": ground.case.name, "params": dict(ground.case.params)},
    )


def kernel_lane(ground: Ground) -> str:
    """The lane: one op and case on one device, whichever candidate and version computes it."""
    bar = {"exactness": ground.op.exactness.describe()}
    return lane_of(kernel_identity(ground, {}), bar)


def kernel_gates(
    trial: KernelTrial, rung: str, *, beside: Comparison | None, speed_code: Code
) -> tuple[GateResult, ...]:
    """The three gates, always all of them: it ran, it is exact, it is fast.

    Exactness failed is `parity_mismatch`; what did not run to an answer is missing. Speed fails
    with `speed_code` where even the trial's interval (quick) or not all of it (deep) lies under
    the time that it stands beside; with nothing beside it, a quick trial passes by having a time
    and a deep one stays unproven.
    """
    ran = trial.status in ("exact", "inexact")
    startup = GateResult(
        gate=STARTUP,
        kind=GateKind.STARTUP,
        rung="startup",
        status=GateStatus.PASSED if ran else GateStatus.FAILED,
        code=None if ran else _code(trial).value,
        reason="The worker answered." if ran else f"{trial.status}: {trial.reason}",
        constraint=0.0 if ran else 1.0,
        seconds=trial.seconds,
        evidence={"status": trial.status},
    )
    exactness = GateResult(
        gate=EXACTNESS,
        kind=GateKind.PARITY,
        rung=rung,
        status=_exactness(trial),
        code=Code.PARITY_MISMATCH.value if trial.status == "inexact" else None,
        reason=trial.reason or "It did not run to an answer.",
        constraint={"exact": 0.0, "inexact": 0.5}.get(trial.status, UNPROVEN),
    )
    return startup, exactness, _speed(trial, rung, beside, speed_code)


def _exactness(trial: KernelTrial) -> GateStatus:
    known = {"exact": GateStatus.PASSED, "inexact": GateStatus.FAILED}
    return known.get(trial.status, GateStatus.MISSING)


def _speed(trial: KernelTrial, rung: str, beside: Comparison | None, code: Code) -> GateResult:
    def gate(status: GateStatus, reason: str, constraint: float, **evidence: Any) -> GateResult:
        return GateResult(
            gate=SPEED,
            kind=GateKind.SPEED,
            rung=rung,
            status=status,
            code=code.value if status is GateStatus.FAILED else None,
            reason=reason,
            constraint=constraint,
            evidence=evidence,
        )

    if trial.us is None:
        return gate(GateStatus.MISSING, "What is not exact has no time.", UNPROVEN)
    low, high = trial.low_us or trial.us, trial.high_us or trial.us
    times = {"us": trial.us, "low_us": low, "high_us": high, "warm_us": trial.warm_us}
    said = f"{trial.us:.3f} us ({low:.3f} to {high:.3f})"
    if beside is None:
        status = GateStatus.MISSING if rung == DEEP else GateStatus.PASSED
        left = UNPROVEN if rung == DEEP else 0.0
        return gate(status, f"{said}, with nothing to compare it with.", left, **times)
    excess = clamp((high - beside.us if rung == DEEP else low - beside.high_us) / beside.us)
    return gate(
        GateStatus.PASSED if excess <= 0 else GateStatus.FAILED,
        f"{said} beside {beside.us:.3f} us of {beside.what}: {beside.us / trial.us:.2f} times.",
        excess,
        **times,
        beside=beside.what,
        beside_us=beside.us,
        ratio=beside.us / trial.us,
    )


def kernel_failure(trial: KernelTrial) -> Failure | None:
    """Why the worker gave no answer; None when it gave one, right or wrong."""
    if trial.status in ("exact", "inexact"):
        return None
    started = trial.status != "not_started"
    return Failure(
        code=_code(trial).value,
        phase="serving" if started else "launch",
        blame="candidate" if started else "host",
        retry=not started,
        reason=f"The worker {ENDS[trial.status]}: {trial.reason}.",
    )


def _code(trial: KernelTrial) -> Code:
    kind = trial.reason.removeprefix("deep check: ").removeprefix("timed again: ").split(":")[0]
    if trial.status == "failed" and kind in RAISED:
        return RAISED[kind]
    return CODES[trial.status]


@dataclass(frozen=True)
class Place:
    """Where a record stands: its study, its number in the ledger, which attempt, and why."""

    study: str
    number: int
    attempt: int
    role: str
    hypothesis: str

    @property
    def directory(self) -> str:
        """The folder of the evidence, relative to the study's."""
        return f"trials/{self.number:04}/attempt-{self.attempt}"


def kernel_record(
    ground: Ground,
    trial: KernelTrial,
    gates: tuple[GateResult, ...],
    place: Place,
    *,
    control_sha: str | None,
    host: str,
) -> TrialRecord:
    """The record of one attempt, judged by the rules that judge endpoint trials."""
    rung = gates[-1].rung
    failure = kernel_failure(trial)
    now = datetime.now(UTC)
    began = now - timedelta(seconds=trial.seconds)
    return TrialRecord(
        study=place.study,
        lane=kernel_lane(ground),
        number=place.number,
        attempt=place.attempt,
        role="control" if place.role == "control" else "candidate",
        hypothesis=place.hypothesis,
        assignment=dict(trial.config),
        identity=kernel_identity(ground, dict(trial.config)),
        control_sha=control_sha,
        judgement=judge(Evidence(gates=gates, required=REQUIRED, rung=DEEP, failure=failure)),
        rung=rung if failure is None else "startup",
        gates=gates,
        failure=failure,
        host=host,
        devices=(str(ground.identity["device"]),),
        seconds_by_rung={rung: trial.seconds},
        started_at=began.isoformat(timespec="milliseconds"),
        finished_at=now.isoformat(timespec="milliseconds"),
        directory=place.directory,
    )


def trial_of_record(record: TrialRecord, number: int) -> KernelTrial:
    """The trial that a record of this module was made of."""
    startup, exactness, speed = record.gates
    times = speed.evidence
    return KernelTrial(
        number=number,
        config=dict(record.assignment),
        status=startup.evidence["status"],
        reason=exactness.reason if record.failure is None else startup.reason.partition(": ")[2],
        us=times.get("us"),
        low_us=times.get("low_us"),
        high_us=times.get("high_us"),
        warm_us=times.get("warm_us"),
        seconds=startup.seconds,
    )
