"""One trial, as values: what an actor needs to evaluate it, and what it brings back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from objectives import GateHistory, GateResult, Objective, Rate
from runners import Failure, Runner
from tuner.identity import Identity
from tuner.reference import Reference

Role = Literal["candidate", "control"]
CANDIDATE: Role = "candidate"
CONTROL: Role = "control"


class ControlCheck(BaseModel):
    """A gate that the control passed, or failed, at some depth and time: evidence about the lane.

    `depth` is in the gate's own unit (canary repeats, parity prompts, 1 for quality);
    `checked_at` is seconds since the epoch on the host that checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: GateResult
    depth: int
    host: str
    checked_at: float


@dataclass(frozen=True)
class TrialPlan:
    """All that an actor needs to evaluate one attempt; picklable.

    Without a `reference` this is the control, which is to become it. `control_rates` are the
    control's sessions so far in this lane, by host, oldest first. `history` is what the lane knows
    of each rung's gates.
    """

    marker: str
    directory: Path
    runner: Runner
    objective: Objective
    role: Role
    args: Mapping[str, Any]
    env: Mapping[str, str]
    identity_sha: str
    control_sha: str
    control_args: Mapping[str, Any]
    control_env: Mapping[str, str]
    control_rates: Mapping[str, tuple[Rate, ...]]
    reference: Reference | None
    control_checks: Mapping[str, ControlCheck]
    failure_repeats: tuple[int, ...]
    history: Mapping[str, GateHistory]

    def rates_on(self, host: str) -> tuple[Rate, ...]:
        """The control's sessions on a host, oldest first."""
        return self.control_rates.get(host, ())

    @property
    def rates_elsewhere(self) -> tuple[Rate, ...]:
        """The control's sessions on some host, where the trial's own has seen none yet."""
        return next(iter(self.control_rates.values()), ())


class TrialOutcome(BaseModel):
    """What one attempt showed; `control_rates` are the control sessions that were run beside it.

    `left_behind` says what of an engine could not be ended, whatever else happened.
    """

    model_config = ConfigDict(extra="forbid")

    rung: str = "static"
    gates: list[GateResult] = []
    control_gates: dict[str, GateResult] = {}
    control_checks: dict[str, ControlCheck] = {}
    rate: Rate | None = None
    control_rates: list[Rate] = []
    failure: Failure | None = None
    identity_drift: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    left_behind: str = ""
    reference: Reference | None = None
    launch: dict[str, Any] = {}
    host: str = ""
    devices: tuple[str, ...] = ()
    seconds_by_rung: dict[str, float] = {}
    notices: list[str] = []
    started_at: str = ""
    finished_at: str = ""

    def write_artifacts(self, directory: Path, identity: Identity) -> None:
        """Write identity, launch and gate results into the trial's folder, one JSON file each."""
        gates = directory / "gates"
        gates.mkdir(parents=True, exist_ok=True)
        pretty = json.dumps(identity.model_dump(mode="json"), indent=1, sort_keys=True)
        (directory / "identity.json").write_text(pretty, encoding="utf-8")
        (directory / "launch.json").write_text(json.dumps(self.launch, indent=1), encoding="utf-8")
        for result in self.gates:
            path = gates / f"{result.rung}.{result.gate}.json"
            path.write_text(result.model_dump_json(indent=1), encoding="utf-8")
        for name, result in self.control_gates.items():
            path = gates / f"control.{name}.json"
            path.write_text(result.model_dump_json(indent=1), encoding="utf-8")
