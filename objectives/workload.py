"""A workload: what is asked of the engine while its rate is measured."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from objectives.prompt_suite import suite_sha

PromptKind = Literal["suite", "text", "natural-chat", "random"]


class Workload(BaseModel):
    """Prompts, lengths and how many requests are open at a time.

    `prompts`: `suite` walks the fixed suite of varied prompts, `text` repeats its first one,
    `natural-chat` wraps suite prompts in the model's chat template, `random` draws token ids.
    `prompt_tokens` is exact by the engine's own tokenizer. `warmup` requests go before the measured
    ones, with `warmup_tokens` tokens each (0: as many as the measured ones). `streams` requests are
    kept open at a time; with `requests_per_s` they arrive as a Poisson process instead, and
    `streams` caps how many may be open. `requests` is how many make up one measured repeat; a
    single stream has one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    prompts: PromptKind = "suite"
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=2)
    warmup: int = Field(default=1, ge=0)
    warmup_tokens: int = Field(default=0, ge=0)
    ignore_eos: bool = True
    streams: int = Field(default=1, ge=1)
    requests_per_s: float | None = Field(default=None, gt=0)
    requests: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _enough_requests(self) -> Workload:
        if self.requests and self.requests < self.streams and self.requests_per_s is None:
            raise ValueError("requests must be 0 (automatic) or at least as many as streams")
        return self

    def identity(self) -> dict[str, Any]:
        """What of the workload decides a result: its settings, and the words of the suite."""
        words = {} if self.prompts == "random" else {"suite_sha256": suite_sha()}
        return {**self.model_dump(mode="json"), **words}

    @property
    def is_concurrent(self) -> bool:
        """Whether more than one request may be open at a time."""
        return self.streams > 1 or self.requests_per_s is not None

    @property
    def requests_per_repeat(self) -> int:
        """Requests that make up one measured repeat."""
        if not self.is_concurrent:
            return 1
        return self.requests or 2 * self.streams
