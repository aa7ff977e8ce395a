"""What a study has come to: counts of verdicts and reasons, the control, the best."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tuner.lane import Lane


class StudySummary(BaseModel):
    """What a study has come to when a run of it ends; counts are over all its runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    lane: str
    ended_because: str
    interrupted: bool
    verdicts: dict[str, int]
    rejections: dict[str, int]
    control: int | None
    best: int | None
    best_tok_s: float | None
    launch_script: str | None
    seconds: float


def summarise(
    study: str,
    lane: Lane,
    *,
    because: str,
    interrupted: bool,
    script: Path | None,
    seconds: float,
) -> StudySummary:
    """The summary of a lane as it stands."""
    trials, best = lane.trials, lane.control
    control = next((trial for trial in trials if trial.role == "control"), None)
    return StudySummary(
        study=study,
        lane=lane.sha,
        ended_because=because,
        interrupted=interrupted,
        verdicts=dict(Counter(trial.verdict.value for trial in trials)),
        rejections=dict(Counter(trial.rejection.code.value for trial in trials if trial.rejection)),
        control=control.number if control else None,
        best=best.number if best else None,
        best_tok_s=best.tok_s if best else None,
        launch_script=str(script) if script else None,
        seconds=seconds,
    )
