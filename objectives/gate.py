"""The result of one gate: what was checked, what came out, and the numbers it rests on."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all) while a gate runs."""

UNPROVEN = 0.01
"""Constraint of a gate that could not be decided: just infeasible, as missing is never passed."""


class GateKind(StrEnum):
    """What a gate looks at."""

    STARTUP = "startup"
    SPEED = "speed"
    CANARY = "canary"
    QUALITY = "quality"
    PARITY = "parity"
    SLO = "slo"
    AB = "ab"


class GateStatus(StrEnum):
    """What came out; `missing` means that nothing was proven either way."""

    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"


class GateResult(BaseModel):
    """One gate's outcome with its evidence.

    `code` is the rejection code where the gate failed. `constraint` is 0 or less where the gate
    holds and lies in [-1, 1], so that constraints of different gates can be added up. `reason` is
    one sentence with the numbers. `seconds` is engine time spent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    kind: GateKind
    rung: str
    status: GateStatus
    code: str | None = None
    reason: str
    constraint: float = Field(ge=-1.0, le=1.0)
    seconds: float = 0.0
    evidence: dict[str, Any] = {}


def ignore_progress(done: int, total: int) -> None:
    """Stands where nobody wants to know how far a gate is."""


def clamp(value: float) -> float:
    """`value` cut to [-1, 1], the range of a gate's constraint."""
    return max(-1.0, min(1.0, value))
