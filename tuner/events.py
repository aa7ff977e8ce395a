"""What a study says while it runs: the events that the terminal shows and `--json` prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tuner.identity import Value
from tuner.ledger import TrialRecord


class _Event(BaseModel):
    """`at_s` is the time of the event in seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_s: float = Field(default_factory=time.time)


class StudyStarted(_Event):
    """A study begins, or goes on: `finished` trials are in its ledger already.

    `knobs` and `configurations` are the size of its space (None where it is not finite), `capacity`
    is how many trials run at the same time. `control_tok_s` is the rate that must be beaten, None
    before the first control ran. `tracking` says where MLflow keeps the runs, without credentials.
    """

    event: Literal["study_started"] = "study_started"
    study: str
    folder: str
    lane: str = ""
    knobs: int = 0
    configurations: int | None = None
    budget_trials: int
    capacity: int = 1
    finished: int = 0
    control: int | None = None
    control_tok_s: float | None = None
    tracking: str = ""


class TrialStarted(_Event):
    """A trial was placed. `changes` are the knobs that it sets otherwise than the control."""

    event: Literal["trial_started"] = "trial_started"
    number: int
    attempt: int = 1
    role: Literal["control", "candidate"] = "candidate"
    hypothesis: str = ""
    assignment: dict[str, Value] = {}
    changes: dict[str, Value] = {}
    host: str = ""
    devices: tuple[str, ...] = ()


class GateProgress(_Event):
    """A gate, or a phase such as `launch` or `teardown`, moves: `done` of `total` (0 if unknown).

    The first event of a gate, with `done` 0, says that it began. `host` and `devices` may be given
    here by a trial that learns only on its lease where it runs.
    """

    event: Literal["gate_progress"] = "gate_progress"
    number: int
    rung: str
    gate: str
    done: int = 0
    total: int = 0
    host: str = ""
    devices: tuple[str, ...] = ()


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
    """A trial is in the ledger: its whole record. `will_retry` if it was invalid and runs again."""

    event: Literal["trial_finished"] = "trial_finished"
    record: TrialRecord
    will_retry: bool = False


class StudyFinished(_Event):
    """A study stops drawing: its summary, what waits for MLflow, and what may be typed now."""

    event: Literal["study_finished"] = "study_finished"
    summary: dict[str, Any]
    waiting_for_mlflow: int = 0
    next: tuple[str, ...] = ()


class Notice(_Event):
    """Something that a person should know, in one sentence; `loud` if it changes what they do."""

    event: Literal["notice"] = "notice"
    text: str
    loud: bool = False
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

Listener = Callable[[Event], None]
"""Whoever wants to hear of a study's events; called in the order in which things happen."""

_ANY: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def silent(_event: Event) -> None:
    """A listener that wants to hear nothing."""


def parse(document: dict[str, Any]) -> Event:
    """The event of a plain document, as `model_dump` gave it. Raises pydantic's ValidationError."""
    return _ANY.validate_python(document)
