"""How a study stands: its control, what was promoted, what was rejected why, what is still open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean, pvariance

from objectives import GateKind, GateStatus
from tuner.identity import ABSENT
from tuner.ledger import TrialRecord
from tuner.verdict import Code, Verdict


@dataclass(frozen=True)
class Standing:
    """The trials of a study, the last attempt of each, sorted into what became of them."""

    trials: tuple[TrialRecord, ...]

    @classmethod
    def of(cls, records: Iterable[TrialRecord]) -> Standing:
        """The standing of these records of one lane; of each trial the last attempt counts."""
        last = {record.number: record for record in sorted(records, key=lambda r: r.key)}
        return cls(tuple(last.values()))

    def with_verdict(self, verdict: Verdict) -> list[TrialRecord]:
        """The trials of that verdict."""
        return [trial for trial in self.trials if trial.verdict is verdict]

    @property
    def first_control(self) -> TrialRecord | None:
        """The control that the study began with."""
        return next(
            (t for t in self.trials if t.role == "control" and t.verdict == "accepted"), None
        )

    @property
    def promotions(self) -> list[TrialRecord]:
        """Candidates that became the control, in that order."""
        accepted = [t for t in self.with_verdict(Verdict.ACCEPTED) if t.role == "candidate"]
        return sorted(accepted, key=lambda trial: trial.finished_at)

    @property
    def best(self) -> TrialRecord | None:
        """The last promotion, or the control where nothing beat it."""
        return self.promotions[-1] if self.promotions else self.first_control

    @property
    def rejections(self) -> dict[Code, list[TrialRecord]]:
        """Rejected trials by code, the most frequent code first."""
        found: dict[Code, list[TrialRecord]] = {}
        for trial in self.with_verdict(Verdict.REJECTED):
            if trial.rejection is not None:
                found.setdefault(trial.rejection.code, []).append(trial)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def control_of(self, record: TrialRecord) -> TrialRecord | None:
        """The accepted trial that a candidate was compared with."""
        return next(
            (
                trial
                for trial in self.trials
                if trial.identity.sha == record.control_sha and trial.verdict is Verdict.ACCEPTED
            ),
            None,
        )

    def changes(self, record: TrialRecord) -> dict[str, tuple[object, object]]:
        """The knobs that differ from the study's first control: (control's value, trial's)."""
        control = self.first_control
        base = {} if control is None else control.assignment
        mine = record.assignment
        knobs = [*mine, *(name for name in base if name not in mine)]
        return {
            name: (base.get(name, ABSENT), mine.get(name, ABSENT))
            for name in knobs
            if base.get(name, ABSENT) != mine.get(name, ABSENT)
        }

    def changes_in_words(self, record: TrialRecord) -> str:
        """The knobs that a trial sets otherwise than the study's first control, in one line."""
        if record.role == "control":
            return "the control"
        changes = self.changes(record)
        return ", ".join(f"{name}={value}" for name, (_, value) in changes.items()) or "nothing"


def of_last_lane(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The records of the lane that was worked in last: those of other lanes compare with none."""
    every = list(records)
    return [record for record in every if record.lane == every[-1].lane]


def first_failure(record: TrialRecord) -> str:
    """The gate that failed first and, where it counts repeats, at which one."""
    for gate in record.gates:
        if gate.status is GateStatus.FAILED:
            at = gate.evidence.get("failed_at")
            return f"{gate.gate} at {at}" if at is not None else gate.gate
    return record.rejection.gate if record.rejection is not None else ""


def status_of(record: TrialRecord, kind: GateKind) -> str:
    """What became of a kind of gate at its deepest: passed, failed, or missing if it never ran."""
    latest = {gate.gate: gate.status for gate in record.gates if gate.kind is kind}
    if not latest:
        return GateStatus.MISSING.value
    for status in (GateStatus.FAILED, GateStatus.MISSING):
        if status in latest.values():
            return status.value
    return GateStatus.PASSED.value


def knob_shares(trials: Sequence[TrialRecord]) -> dict[str, float]:
    """For each knob, the share of the variance of the log rate that lies between its values.

    The correlation ratio of one-way analysis of variance (Pearson 1905), in [0, 1]: 1 means that
    the knob's value alone tells the rate. One knob at a time: it sees no interaction, and with
    few trials a knob of many values looks more important than it is. Knobs that never varied are
    left out; fewer than three measured trials give nothing.
    """
    measured = [trial for trial in trials if trial.tok_s]
    if len(measured) < 3:
        return {}
    logs = {trial.key: log(trial.tok_s) for trial in measured if trial.tok_s}
    total = pvariance(logs.values())
    shares: dict[str, float] = {}
    for knob in sorted({name for trial in measured for name in trial.assignment}):
        groups: dict[object, list[float]] = {}
        for trial in measured:
            groups.setdefault(trial.assignment.get(knob, ABSENT), []).append(logs[trial.key])
        if len(groups) > 1 and total > 0:
            mean = fmean(logs.values())
            between = sum(len(g) * (fmean(g) - mean) ** 2 for g in groups.values()) / len(logs)
            shares[knob] = between / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
