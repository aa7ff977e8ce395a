"""Verifying a launch script: it is started, and what serves is taken up the deep rung again."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from objectives import (
    Endpoint,
    EndpointError,
    GateKind,
    GateResult,
    GateStatus,
    Objective,
    Rate,
    canary_gate,
    deep_repeats,
    measure_rate,
    parity_gate,
    quality_gates,
)
from runners import EngineFailure, EngineServer, Launch, PortHold, Timeouts
from tuner.gates import SEED
from tuner.ledger import TrialRecord
from tuner.reference import Reference
from tuner.study import Study

Said = Callable[[str], None]


class NotVerifiableError(Exception):
    """A script cannot be verified at all; the message says what is missing."""


class Verification(BaseModel):
    """What a script's server did, against what is on record for its identity.

    `ratio` is the rate now over the rate on record; two sessions of one identity lie within
    `session_drift` of each other. Verified is what says the same and is not slower than that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity_sha: str
    trial: int
    gates: tuple[GateResult, ...]
    rate: Rate
    ratio: float
    session_drift: float

    @property
    def failed(self) -> list[GateResult]:
        """The gates that failed; one that did not run is not among them, and stops no start."""
        return [gate for gate in self.gates if gate.status is GateStatus.FAILED]

    @property
    def is_as_fast(self) -> bool:
        """Whether the rate is within what two sessions of one identity may differ by."""
        return self.ratio >= 1 - self.session_drift

    @property
    def verified(self) -> bool:
        """Whether it says what was recorded, as fast as was recorded."""
        return not self.failed and self.is_as_fast and bool(self.gates)

    def sentences(self) -> list[str]:
        """The outcome in words, a line a gate."""
        lines = [f"{gate.gate} {gate.status.value}: {gate.reason}" for gate in self.gates]
        status = "passed" if self.is_as_fast else "failed"
        lines.append(
            f"speed {status}: {self.rate.tok_s.mean:.2f} tok/s, {self.ratio:.3f} times the rate on "
            f"record; sessions of one identity stay above {1 - self.session_drift:.2f} times"
        )
        return lines


def verify(script: Path, study: Study, *, say: Said = lambda _line: None) -> Verification:
    """Start `script` and run the gates of the deepest rung of `study` on what it serves.

    Raises NotVerifiableError if the script's identity is not in the study's ledger or the study
    has no reference, EngineFailure if it does not serve (a failed check of the script included).
    """
    record = _on_record(script, study)
    reference = _reference(study)
    objective = study.files.objective
    say(f"{script} starts trial {record.number}, identity {record.identity.sha}")
    server = _start(script, record, study)
    try:
        server.wait_ready(lambda stage: say(f"starting: {stage}"))
        endpoint = Endpoint(server.base_url, server.model, timeout_s=server.timeouts.request_s)
        try:
            rate = measure_rate(
                endpoint,
                objective.workload,
                repeats=max(objective.deepest.repeats, 2),
                seed=SEED,
                confidence=objective.confidence,
                identity_sha=record.identity.sha,
                slos=objective.slos,
            )
            gates = _gates(endpoint, study, reference, say)
        except EndpointError as error:
            raise EngineFailure(server.diagnose(error)) from error
    finally:
        server.stop()
    return Verification(
        identity_sha=record.identity.sha,
        trial=record.number,
        gates=tuple(gates),
        rate=rate,
        ratio=_ratio(rate, record, objective),
        session_drift=objective.session_drift,
    )


def identity_of_script(script: Path) -> str:
    """The identity that a launch script says it starts. Raises NotVerifiableError."""
    if not script.is_file():
        raise NotVerifiableError(f"{script} does not exist; write it with `tuner export STUDY`.")
    asked = subprocess.run(
        ["bash", str(script), "--print-identity"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = asked.stdout.strip()
    if asked.returncode != 0 or len(said) != 64:
        raise NotVerifiableError(f"{script} is no launch script of this program.")
    return said


def _on_record(script: Path, study: Study) -> TrialRecord:
    sha = identity_of_script(script)
    for record in reversed(study.trials):
        if record.identity.sha == sha and record.rate is not None and record.launch:
            return record
    raise NotVerifiableError(
        f"{script} starts identity {sha[:12]}, which study {study.name} has no measured trial of."
    )


def _reference(study: Study) -> Reference:
    path = study.folder / "reference.json"
    controls = [trial.identity.sha for trial in study.trials if trial.role == "control"]
    for sha in controls:
        reference = Reference.load(path, sha)
        if reference is not None:
            return reference
    raise NotVerifiableError(f"{path} holds no reference of this study's control; run the study.")


def _start(script: Path, record: TrialRecord, study: Study) -> EngineServer:
    """The script under the supervisor that every engine has: it cannot outlive this process."""
    measured = Launch.model_validate(record.launch)
    hold = PortHold(measured.host)
    kept = study.folder / "verify"
    kept.mkdir(parents=True, exist_ok=True)
    moment = time.strftime("%Y%m%d-%H%M%S-", time.gmtime())
    folder = Path(tempfile.mkdtemp(prefix=moment, dir=kept))
    launch = measured.model_copy(
        update={
            "engine": "command",
            "argv": ("bash", str(script.resolve())),
            "env": {"PORT": str(hold.port), "HOST": measured.host},
            "harness_env": {"SPT_NOENV": "1"},
            "port": hold.port,
            "cwd": folder,
            "log": folder / "server.log",
            "marker": f"{study.marker}/verify/1/{hold.port}",
            "cores": (),
        }
    )
    return EngineServer.start(launch, _timeouts(study), hold)


def _timeouts(study: Study) -> Timeouts:
    return study.files.runner.timeouts


def _gates(endpoint: Endpoint, study: Study, reference: Reference, say: Said) -> list[GateResult]:
    """The correctness gates of the deepest rung, all of them: a failure stops nothing here."""
    objective = study.files.objective
    rung = objective.deepest
    gates = [
        parity_gate(
            endpoint,
            reference.oracle,
            objective,
            rung=rung.rung,
            prompts=rung.parity_prompts or None,
            self_parity=reference.self_parity,
        )
    ]
    say(f"parity: {gates[-1].reason}")
    repeats = deep_repeats(rung.canary_repeats, study.ledger.failure_repeats())
    for canary in objective.canaries:
        gates.append(
            canary_gate(
                endpoint,
                canary,
                repeats=repeats,
                rung=rung.rung,
                baseline=reference.canaries[canary.name],
                confidence=objective.confidence,
            )
        )
        say(f"{gates[-1].gate}: {gates[-1].reason}")
    if rung.quality:
        gates += quality_gates(endpoint, objective, baseline=reference.quality, rung=rung.rung)
    return [gate for gate in gates if gate.kind is not GateKind.SPEED]


def _ratio(rate: Rate, record: TrialRecord, objective: Objective) -> float:
    """The rate now over the rate on record, in the objective's metric; over 1 is better."""
    before = fmean(record.rate.samples(objective.metric)) if record.rate is not None else 0.0
    now = fmean(rate.samples(objective.metric))
    return before / now if objective.direction == "minimize" else now / before
