"""Turning what happens in a study into the events that people and machines read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from objectives import GateResult
from tuner.candidate import Candidate, lane_label
from tuner.events import (
    Event,
    GateFinished,
    GateProgress,
    StudyFinished,
    StudyStarted,
    TrialFinished,
    TrialStarted,
)
from tuner.identity import ABSENT
from tuner.lane import Lane
from tuner.ledger import TrialRecord
from tuner.study_file import StudyFiles
from tuner.summary import StudySummary
from tuner.tracking import Tracker, shown

TELLING_REPEATS = 3
"""Of fewer repeats the interval says more about the t distribution than about the rate."""

Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Stands where nobody listens."""


def study_started(files: StudyFiles, lane: Lane, tracker: Tracker) -> StudyStarted:
    """A run begins, or goes on from what the ledger holds."""
    control = lane.control
    low, high = _bounds(control)
    return StudyStarted(
        study=files.study.name,
        folder=str(files.folder),
        lane=f"{lane_label(files)} · {lane.sha[:12]}",
        trials=files.study.budget.trials,
        finished=len(lane.trials),
        tracking=shown(tracker.uri),
        control=control.number if control else None,
        best_tok_s=control.tok_s if control else None,
        best_low=low,
        best_high=high,
    )


def trial_started(
    candidate: Candidate, control: TrialRecord | None, host: str, devices: Sequence[str]
) -> TrialStarted:
    """A trial was placed on devices; `changes` are knobs that differ from the control's."""
    mine = candidate.configuration.assignment
    theirs = control.assignment if control else mine
    changed = [
        knob
        for knob in [*mine, *(name for name in theirs if name not in mine)]
        if mine.get(knob, ABSENT) != theirs.get(knob, ABSENT)
    ]
    return TrialStarted(
        number=candidate.number,
        attempt=candidate.attempt,
        role=candidate.role,
        hypothesis=candidate.hypothesis,
        changes={knob: mine.get(knob, ABSENT) for knob in changed},
        host=host,
        devices=tuple(devices),
    )


def gate_of(payload: Mapping[str, Any]) -> GateResult | None:
    """The gate result that a trial's report carries, or None if it only tells of progress."""
    result = payload.get("result")
    return None if result is None else GateResult.model_validate(result)


def progressed(
    candidate: Candidate, payload: Mapping[str, Any], control: TrialRecord | None
) -> TrialStarted | GateProgress | GateFinished:
    """What a trial reports: it was placed on devices, a gate moves, a gate has its result."""
    if payload.get("phase") == "leased":
        return trial_started(candidate, control, payload["host"], payload["devices"])
    result = gate_of(payload)
    if result is None:
        return GateProgress(
            number=candidate.number,
            rung=payload["rung"],
            gate=payload["gate"],
            done=payload.get("done", 0),
            total=payload.get("total", 0),
        )
    return GateFinished(
        number=candidate.number,
        rung=result.rung,
        gate=result.gate,
        status=result.status.value,
        code=result.code,
        reason=result.reason,
        seconds=result.seconds,
        tok_s=payload.get("tok_s"),
    )


def trial_finished(record: TrialRecord, will_retry: bool) -> TrialFinished:
    """A trial is in the ledger."""
    low, high = _bounds(record)
    return TrialFinished(
        number=record.number,
        attempt=record.attempt,
        role=record.role,
        verdict=record.verdict.value,
        code=record.rejection.code.value if record.rejection else None,
        gate=record.rejection.gate if record.rejection else None,
        reason=record.rejection.reason if record.rejection else "",
        rung=record.rung,
        tok_s=record.tok_s,
        low=low,
        high=high,
        seconds=record.seconds,
        will_retry=will_retry,
    )


def study_finished(
    files: StudyFiles, summary: StudySummary, finished: int, waiting: int
) -> StudyFinished:
    """A run ends; `next` is what a person may type now."""
    name = _shown_path(files)
    further = [f"tuner trials {name}", f"tuner ui {name}"]
    if summary.best is not None:
        further.insert(0, f"tuner show {name} {summary.best}")
        further.append(f"tuner export {name}")
    if summary.interrupted:
        further.insert(0, f"tuner run {name}")
    return StudyFinished(
        study=files.study.name,
        why=summary.ended_because,
        finished=finished,
        verdicts=summary.verdicts,
        best=summary.best,
        best_tok_s=summary.best_tok_s,
        script=summary.launch_script,
        next=tuple(further),
        waiting_for_mlflow=waiting,
    )


def _bounds(record: TrialRecord | None) -> tuple[float | None, float | None]:
    if record is None or record.rate is None or record.rate.tok_s.n < TELLING_REPEATS:
        return None, None
    return record.rate.tok_s.low, record.rate.tok_s.high


def _shown_path(files: StudyFiles) -> str:
    """How a person names this study from where they stand."""
    try:
        return str(files.path.relative_to(Path.cwd()))
    except ValueError:
        return str(files.path)
