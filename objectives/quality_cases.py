"""What the quality suite asks: the models of its document, and the built-in cases.

The cases are the lab's kinds (exact reply, copying, arithmetic, JSON by schema) in our own words.
They are meant to be easy: an engine that breaks a model breaks easy things too, and on a model too
small to be right the control's own answer takes the place of the right one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Expected(_Part):
    """The right answer to a canary or case: a `text`, or a JSON `value`. Exactly one is given."""

    text: str | None = None
    value: Any = None

    @model_validator(mode="after")
    def _one(self) -> Expected:
        if (self.text is None) == (self.value is None):
            raise ValueError("give either text or value, not both or neither")
        return self


class QualityCase(_Part):
    """One question of the quality suite, asked once, judged by itself.

    It passes when the answer fits `expected` (after stripping white space; a `contains` text may
    stand anywhere in it) and `json_schema`. A case that the control itself fails is judged only by
    whether the candidate still says what the control says.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    prompt: str
    api: Literal["chat", "completion"] = "chat"
    max_tokens: int = Field(default=48, ge=1)
    expected: Expected | None = None
    contains: str | None = None
    json_schema: dict[str, Any] | None = None


BUILTIN: tuple[QualityCase, ...] = (
    QualityCase(
        name="exact_reply",
        prompt="Reply with exactly this word and nothing else: ready",
        max_tokens=12,
        expected=Expected(text="ready"),
    ),
    QualityCase(
        name="copy_phrase",
        prompt='Copy this phrase exactly: "seven grey herons cross the frozen canal"',
        max_tokens=24,
        contains="seven grey herons cross the frozen canal",
    ),
    QualityCase(
        name="arithmetic",
        prompt="What is 17 + 25? Answer with the number only.",
        max_tokens=12,
        contains="42",
    ),
    QualityCase(
        name="json_schema",
        prompt='Give the answer to 6 x 7 as JSON with the keys "answer" and "unit", where the unit '
        'is "widgets". JSON only.',
        max_tokens=40,
        json_schema={
            "type": "object",
            "required": ["answer", "unit"],
            "properties": {"answer": {}, "unit": {"type": "string"}},
        },
    ),
)


class TaskFile(_Part):
    """A local task in the manner of lm-eval: JSON lines with `prompt` and `target`.

    `allowed_regressions` is how many questions may turn from right to wrong against the control.
    """

    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    path: str
    max_tokens: int = Field(default=32, ge=1)
    stop: tuple[str, ...] = ("\n",)
    limit: int | None = Field(default=None, ge=1)
    allowed_regressions: int = Field(default=0, ge=0)


class Quality(_Part):
    """The quality suite. `cases` are added to the built-in ones unless `builtin` is false.

    `long_context_tokens`: prompt length of the retrieval case, 0 to leave it out. `repeat_runs`:
    how often one longer answer must come out the same. `match_control`: every answer must also be
    the control's, token for token.
    """

    builtin: bool = True
    cases: tuple[QualityCase, ...] = ()
    tasks: tuple[TaskFile, ...] = ()
    repeat_runs: int = Field(default=4, ge=2)
    repeat_tokens: int = Field(default=48, ge=1)
    long_context_tokens: int = Field(default=4096, ge=0)
    match_control: bool = True

    def asked(self) -> tuple[QualityCase, ...]:
        """The cases that are asked once each: the built-in ones, then the user's."""
        return (*(BUILTIN if self.builtin else ()), *self.cases)

    def names(self) -> tuple[str, ...]:
        """Names of all gates of the suite, without their prefix."""
        names = [*(case.name for case in self.asked()), "repeat"]
        if self.long_context_tokens:
            names.append("long_context")
        return (*names, *(task.name for task in self.tasks))

    @model_validator(mode="after")
    def _distinct(self) -> Quality:
        names = self.names()
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two quality cases are named {twice[0]}; give each its own name")
        return self
