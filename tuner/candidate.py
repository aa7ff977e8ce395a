"""A candidate: one configuration with its identity, and what can be said of it before any start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from objectives import GateKind, GateResult, GateStatus
from runners import Demand, Device
from search_spaces import Configuration
from tuner.identity import Identity, Value, lane_of
from tuner.ledger import Ledger, TrialRecord
from tuner.study_file import StudyFiles
from tuner.verdict import Code

REFUSAL_CODES: dict[str, Code] = {
    "guard": Code.GUARD_CLOSED,
    "constraint": Code.CONSTRAINT_VIOLATED,
    "known_rejected": Code.KNOWN_REJECTED,
}


@dataclass(frozen=True)
class Ground:
    """What every identity of a study has in common: engine, model and devices, as measured."""

    engine: Mapping[str, Any]
    model: Mapping[str, Any]
    topology: Mapping[str, Any]

    @property
    def facts(self) -> dict[str, Value]:
        """The names that a space's expressions may use besides knobs."""
        return {"engine.version": str(self.engine.get("version", ""))}


def ground_of(facts: Mapping[str, Any], demand: Demand, devices: Iterable[Device]) -> Ground:
    """The ground from what the runners read: engine and model files, and the devices there are."""
    names = sorted({_described(device) for device in devices if device.kind == demand.kind})
    topology = {"kind": demand.kind, "count": demand.count, "devices": names}
    return Ground(engine=facts["engine"], model=facts["model"], topology=topology)


def _described(device: Device) -> str:
    """A device as far as it decides a speed: of a CPU, also how many cores may be used."""
    return f"{device.name}, {len(device.cores)} cores" if device.cores else device.name


@dataclass(frozen=True)
class Candidate:
    """One configuration under trial: its settings are what the engine receives, whole.

    `control_sha` is the identity that it meets, whatever is accepted while it runs.
    """

    number: int
    attempt: int
    role: Literal["control", "candidate"]
    hypothesis: str
    configuration: Configuration
    args: Mapping[str, Any]
    env: Mapping[str, str]
    identity: Identity
    control_sha: str | None


def settings_of(
    files: StudyFiles, configuration: Configuration
) -> tuple[dict[str, Any], dict[str, str]]:
    """The arguments and environment that the engine receives: the runner's, then the space's."""
    return (
        {**files.runner.args, **configuration.args},
        {**files.runner.env, **configuration.env},
    )


def identity_of(files: StudyFiles, ground: Ground, configuration: Configuration) -> Identity:
    """The identity of a configuration on this ground."""
    args, env = settings_of(files, configuration)
    return Identity(
        configuration={"args": args, "env": env},
        engine=dict(ground.engine),
        model=dict(ground.model),
        topology=dict(ground.topology),
        workload=files.objective.workload.identity(),
    )


def lane_of_study(files: StudyFiles, identity: Identity) -> str:
    """SHA-256 of the lane in which this study compares identities."""
    return lane_of(identity, files.objective.model_dump(mode="json", exclude={"description"}))


def lane_label(files: StudyFiles) -> str:
    """The lane in words that people recognise: model, devices, objective."""
    devices = files.runner.devices
    return f"{files.runner.model_name} · {devices.count} x {devices.kind} · {files.objective.name}"


def refusal(
    candidate: Candidate, files: StudyFiles, ground: Ground, ledger: Ledger
) -> tuple[GateResult, TrialRecord | None] | None:
    """The static rung: why this candidate is refused at no cost, or None if it may start.

    Returns the failed gate, and for a duplicate the record that settled the same identity.
    """
    refusals = files.space.refusals(candidate.configuration, ground.facts)
    if refusals:
        first = refusals[0]
        reason = " ".join(refused.reason for refused in refusals)
        evidence = {"rules": [refused.rule for refused in refusals]}
        return _static_failure(REFUSAL_CODES[first.code], reason, evidence), None
    earlier = ledger.judged(candidate.identity.sha)
    if earlier is not None and earlier.number != candidate.number:
        reason = (
            f"Trial {earlier.number} settled this identity: {earlier.verdict.value}"
            + (f", {earlier.rejection.code.value}" if earlier.rejection else "")
            + "."
        )
        return _static_failure(Code.DUPLICATE, reason, {"trial": earlier.number}), earlier
    return None


def _static_failure(code: Code, reason: str, evidence: dict[str, Any]) -> GateResult:
    return GateResult(
        gate="static",
        kind=GateKind.STARTUP,
        rung="static",
        status=GateStatus.FAILED,
        code=code.value,
        reason=reason,
        constraint=1.0,
        seconds=0.0,
        evidence=evidence,
    )
