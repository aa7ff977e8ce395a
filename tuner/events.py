"""What a study says while it runs: the events that the terminal shows and `--json` prints."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Event(BaseModel):
    """`at_s` is the time of the event in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float = Field(default_factory=time.time)


class StudyStarted(_Event):
    """A study begins, or goes on: `finished` trials are in its ledger already.

    `best_tok_s` and its bounds are the present control's, None before the first control ran.
    """

    event: Literal["study_started"] = "study_started"
    study: str
    folder: str
    lane: str = ""
    trials: int = Field(description="The budget: trials that start an engine, the control too.")
    finished: int = 0
    tracking: str = Field("", description="Where MLflow keeps the runs, without credentials.")
    control: int | None = None
    best_tok_s: float | None = None
    best_low: float | None = None
    best_high: float | None = None


class TrialStarted(_Event):
    """A trial was placed on devices. `changes` are the knobs that differ from the control."""

    event: Literal["trial_started"] = "trial_started"
    number: int
    attempt: int = 1
    role: Literal["control", "candidate"] = "candidate"
    hypothesis: str = ""
    changes: dict[str, Any] = {}
    host: str = ""
    devices: tuple[str, ...] = ()


class GateProgress(_Event):
    """A gate, or a phase such as `launch` or `teardown`, moves: `done` of `total` (0 if unknown).

    The first event of a gate, with `done` 0, says that it began.
    """

    event: Literal["gate_progress"] = "gate_progress"
    number: int
    rung: str
    gate: str
    done: int = 0
    total: int = 0


class GateFinished(_Event):
    """A gate has its result; `tok_s` where it measured a rate."""

    event: Literal["gate_finished"] = "gate_finished"
    number: int
    rung: str
    gate: str
    status: Literal["passed", "failed", "missing"]
    code: str | None = None
    reason: str = ""
    seconds: float = 0.0
    tok_s: float | None = None


class TrialFinished(_Event):
    """A trial is in the ledger; `low` and `high` bound its mean rate, None if none was measured."""

    event: Literal["trial_finished"] = "trial_finished"
    number: int
    attempt: int = 1
    role: Literal["control", "candidate"] = "candidate"
    verdict: Literal["accepted", "promising", "rejected", "invalid", "diagnostic"]
    code: str | None = None
    gate: str | None = None
    reason: str = ""
    rung: str = ""
    tok_s: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float = 0.0
    will_retry: bool = False


class StudyFinished(_Event):
    """A study stops drawing; `why` is one sentence, `next` what the person may type now."""

    event: Literal["study_finished"] = "study_finished"
    study: str
    why: str
    finished: int
    verdicts: dict[str, int] = {}
    best: int | None = None
    best_tok_s: float | None = None
    script: str | None = None
    next: tuple[str, ...] = ()
    waiting_for_mlflow: int = 0


class Notice(_Event):
    """Something that a person should know, in one sentence; `number` where one trial is meant."""

    event: Literal["notice"] = "notice"
    level: Literal["info", "warning", "error"] = "info"
    message: str
    number: int | None = None


Event = (
    StudyStarted
    | TrialStarted
    | GateProgress
    | GateFinished
    | TrialFinished
    | StudyFinished
    | Notice
)

_ANY: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def parse(document: dict[str, Any]) -> Event:
    """The event of a plain document, as `model_dump` gave it. Raises pydantic's ValidationError."""
    return _ANY.validate_python(document)
