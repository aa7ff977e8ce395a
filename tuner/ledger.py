"""The ledger: every trial of a study, ever, with its verdict, one JSON object a line.

It is the source of truth. Optuna's storage and MLflow are projections of it: whatever they lack
after a crash is told to them again from here. A line is written once, whole, and flushed to disk
before anybody else hears of the trial.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from objectives import GateKind, GateResult, GateStatus, Rate
from runners import Failure
from tuner.identity import Identity, Value
from tuner.verdict import Judgement, Rejection, Verdict

SCHEMA_VERSION = 1


def utc_now() -> str:
    """The present as records write it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class LedgerError(Exception):
    """The ledger's file holds something that is not a trial record."""


class TrialRecord(BaseModel):
    """One finished attempt at one trial: what was tried, what was seen, what was decided.

    Times are UTC in ISO 8601; durations are seconds. `rate` is the candidate's at the deepest rung
    that measured one, `control_rates` those of control sessions run beside it. `unverified` names
    settings that the engine gives no way to read back. `directory` is relative to the study's
    folder and holds the evidence: identity.json, launch.json, gates/, a folder per engine session.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    study: str
    lane: str
    number: int
    attempt: int = 1
    role: Literal["control", "candidate"] = "candidate"
    hypothesis: str
    assignment: dict[str, Value]
    identity: Identity
    control_sha: str | None = None
    judgement: Judgement
    rung: str
    gates: tuple[GateResult, ...] = ()
    control_gates: dict[str, GateResult] = {}
    rate: Rate | None = None
    control_rates: tuple[Rate, ...] = ()
    failure: Failure | None = None
    launch: dict[str, Any] = {}
    host: str
    devices: tuple[str, ...] = ()
    seconds_by_rung: dict[str, float] = {}
    started_at: str
    finished_at: str
    directory: str
    duplicate_of: int | None = None
    unverified: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What it says about its candidate."""
        return self.judgement.verdict

    @property
    def rejection(self) -> Rejection | None:
        """Why it was not accepted; None if it was, or if nothing is decided."""
        return self.judgement.rejection

    @property
    def key(self) -> tuple[int, int]:
        """What names an attempt within its study: trial number and attempt."""
        return (self.number, self.attempt)

    @property
    def seconds(self) -> float:
        """Seconds from its first engine start to its last gate."""
        return sum(self.seconds_by_rung.values())

    @property
    def tok_s(self) -> float | None:
        """Mean corrected decode rate at the deepest rung that measured one, tokens per second."""
        return None if self.rate is None else self.rate.tok_s.mean

    def gate(self, name: str) -> GateResult | None:
        """The last result of the gate of that name, which is its deepest; None if it never ran."""
        found = [gate for gate in self.gates if gate.gate == name]
        return found[-1] if found else None


class Ledger:
    """The records of one file, in the order in which they were written.

    A torn last line (the machine stopped while it was written) is cut off when the ledger is next
    opened: its trial was told to nobody, so it is simply run again. Anything else that is not a
    record raises LedgerError with the line's number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: list[TrialRecord] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            whole = file.read()
            complete = whole[: whole.rfind(b"\n") + 1]
            if complete != whole:
                file.truncate(len(complete))
        for number, line in enumerate(complete.splitlines(), start=1):
            self._records.append(self._parse(line, number))

    def _parse(self, line: bytes, number: int) -> TrialRecord:
        try:
            return TrialRecord.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "record"
            raise LedgerError(
                f"{self.path}:{number}: not a trial record ({where}: {first['msg']}); "
                "restore the file from a back-up or remove that line."
            ) from None

    def append(self, record: TrialRecord) -> None:
        """Write `record` and return once it is on the disk. An attempt is never written twice.

        Raises LedgerError if the attempt is there already, OSError if the disk refuses.
        """
        if any(known.key == record.key for known in self._records):
            raise LedgerError(
                f"{self.path}: trial {record.number}, attempt {record.attempt}, is there already."
            )
        line = record.model_dump_json().encode() + b"\n"
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            start = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(start)
                raise
        self._records.append(record)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def trials(self) -> list[TrialRecord]:
        """The last attempt of each trial, by trial number."""
        last = {record.number: record for record in self._records}
        return [last[number] for number in sorted(last)]

    def trial(self, number: int) -> TrialRecord | None:
        """The last attempt of the trial of that number, or None."""
        return next((record for record in self.trials if record.number == number), None)

    def judged(self, identity_sha: str) -> TrialRecord | None:
        """The record that settled this exact identity: accepted, promising or rejected."""
        settled = {Verdict.ACCEPTED, Verdict.PROMISING, Verdict.REJECTED}
        return next(
            (
                record
                for record in self._records
                if record.identity.sha == identity_sha and record.verdict in settled
            ),
            None,
        )

    @property
    def control(self) -> TrialRecord | None:
        """The accepted identity that candidates are compared with now, on the latest engine."""
        started = [record for record in self._records if record.seconds_by_rung]
        return self.control_on(started[-1].identity.engine) if started else None

    def control_on(self, engine: Mapping[str, Any]) -> TrialRecord | None:
        """The last candidate accepted on an engine, else the control that began there.

        A reference that had to be recorded again is no newer winner: whatever beat it still does.
        """
        accepted = [
            record
            for record in self._records
            if record.verdict is Verdict.ACCEPTED and record.identity.engine == engine
        ]
        winners = [record for record in accepted if record.role == "candidate"]
        return next(iter([*reversed(winners), *reversed(accepted)]), None)

    def of_trial(self, number: int) -> list[TrialRecord]:
        """The attempts of one trial, oldest first."""
        return [record for record in self._records if record.number == number]

    def failure_repeats(self) -> Sequence[int]:
        """Every repeat, counted from 1, at which a canary ever failed here: the failure windows."""
        return [
            int(gate.evidence["failed_at"])
            for record in self._records
            for gate in record.gates
            if gate.kind is GateKind.CANARY
            and gate.status is GateStatus.FAILED
            and gate.evidence.get("failed_at") is not None
        ]
