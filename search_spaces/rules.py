"""What rules configurations out before they cost anything: guards, constraints, known dead ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces.configuration import Refusal
from search_spaces.expression import Expression, Value
from search_spaces.knob import spelt

FACTS: Final[dict[str, str]] = {
    "engine": "the serving engine, e.g. engine.version",
    "torch": "the engine's torch, e.g. torch.version",
    "kernels": "the engine's kernel library, e.g. kernels.version or kernels.sha256",
    "driver": "the device driver and its runtime, e.g. driver.version",
    "device": "the leased devices, e.g. device.kind, device.name, device.count",
    "host": "the machine, e.g. host.cores",
    "model": "the served model, e.g. model.name, model.quantization",
    "evidence": "what was shown since, e.g. evidence.oracle_parity",
}
"""First words of the facts that rules may ask for; a fact is always dotted, a knob never."""


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def _as_set(expression: Expression, values: Mapping[str, Value]) -> str:
    """``a = 1, b not active`` for the names of an expression."""
    parts = []
    for name in expression.names:
        if name not in values:
            parts.append(f"{name} unknown")
        elif values[name] is None:
            parts.append(f"{name} not set")
        else:
            parts.append(f"{name} = {spelt(values[name])}")
    return ", ".join(parts)


class Guard(BaseModel):
    """Fails closed: where `if` holds, a configuration is refused unless `require` surely does."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    condition: Expression = Field(alias="if", description="Where this holds, the guard asks")
    require: Expression = Field(description="What must then hold")
    why: str = Field("", description="What is dangerous without it, in one clause")

    def refusal(self, values: Mapping[str, Value]) -> Refusal | None:
        """The refusal of `values`, or None."""
        if self.condition.holds(values) is not True or self.require.holds(values) is True:
            return None
        why = f": {self.why.rstrip('.')}" if self.why else ""
        return Refusal(
            code="guard",
            reason=_sentence(
                f"{self.condition} is allowed only with {self.require}"
                f" ({_as_set(self.require, values)}){why}"
            ),
            rule=f"if {self.condition} require {self.require}",
        )


class Constraint(BaseModel):
    """Must hold for every configuration; a plain text stands for `that`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    that: Expression = Field(description="What must hold")
    why: str = Field("", description="Why, in one clause")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"that": value} if isinstance(value, str) else value

    def refusal(self, values: Mapping[str, Value]) -> Refusal | None:
        """The refusal of `values`, or None; what cannot be decided is not refused."""
        if self.that.holds(values) is not False:
            return None
        why = f": {self.why.rstrip('.')}" if self.why else ""
        return Refusal(
            code="constraint",
            reason=_sentence(f"{self.that} does not hold ({_as_set(self.that, values)}){why}"),
            rule=str(self.that),
        )


class KnownRejected(BaseModel):
    """A dead end with its evidence, closed until what `reopen_if` states is known to hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: Expression = Field(description="The configurations that are known to fail")
    code: str = Field(description="The rejection code of the evidence, e.g. graph_event_wait")
    why: str = Field("", description="What happened, in one sentence")
    evidence: str = Field("", description="Where it was seen: a trial, a log line, a date")
    reopen_if: Expression | None = Field(
        None, description="What must be known for the path to be tried again; none: never"
    )

    def refusal(self, values: Mapping[str, Value]) -> Refusal | None:
        """The refusal of `values`, or None when they lie elsewhere or the path is open again."""
        if self.where.holds(values) is not True:
            return None
        if self.reopen_if is not None and self.reopen_if.holds(values) is True:
            return None
        reason = self.why.rstrip(".") or f"{self.where} is known to fail with {self.code}"
        seen = f" (seen in {self.evidence})" if self.evidence else ""
        again = f"; it reopens when {self.reopen_if}" if self.reopen_if is not None else ""
        return Refusal(
            code="known_rejected",
            reason=_sentence(reason + seen + again),
            rule=str(self.where),
            source_code=self.code,
        )
