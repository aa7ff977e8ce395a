"""Why an engine failed, and whose fault it is: the value that every verdict on a crash rests on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Phase = Literal["launch", "startup", "first_request", "serving", "teardown"]
Blame = Literal["candidate", "device", "host", "user"]

EXCERPT_LINES = 10


class Failure(BaseModel):
    """What happened, in one sentence, with the lines of the log that matter.

    `code` is one of the tuner's closed list. `blame` says whether the candidate is at fault;
    `retry`, whether the same configuration may be tried again elsewhere. `signature` names the
    known cause that matched; an unknown crash has a `cluster` instead, equal for equal stacks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    phase: Phase
    blame: Blame
    retry: bool
    reason: str
    root_line: str | None = None
    excerpt: tuple[str, ...] = ()
    returncode: int | None = None
    signature: str | None = None
    cluster: str | None = None
    fix: str = ""


class EngineFailure(Exception):  # noqa: N818 - the word of the contract; it carries a Failure
    """An engine that did not do what it was asked to; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure

    def __reduce__(self) -> tuple[type[EngineFailure], tuple[Failure]]:
        return type(self), (self.failure,)
