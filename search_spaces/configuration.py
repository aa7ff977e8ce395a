"""One value for each active knob, and the launch settings that follow from it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.expression import Value
from search_spaces.settings import ArgValue, Settings


class UnknownKnob(ValueError):  # noqa: N818 - names of the public contract
    """An assignment names a knob that the space does not have."""


class BadValue(ValueError):  # noqa: N818
    """An assignment gives a knob a value that it cannot have, or one while it is not active."""


class Configuration(BaseModel):
    """The values of the active knobs (`assignment`) and what they launch (`args`, `env`).

    `kernels` names the chosen implementation per operation, for spaces with kernel knobs; the
    settings that put it in force are already in `args` and `env`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    assignment: dict[str, Value]
    args: dict[str, ArgValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    kernels: dict[str, str] = Field(default_factory=dict)

    def diff(self, other: Configuration) -> dict[str, tuple[Value, Value]]:
        """Knobs whose values differ, as (here, there); None stands for an inactive knob."""
        names = [*self.assignment, *(n for n in other.assignment if n not in self.assignment)]
        pairs = {name: (self.assignment.get(name), other.assignment.get(name)) for name in names}
        return {
            name: pair
            for name, pair in pairs.items()
            if repr(pair[0]) != repr(pair[1])  # repr keeps 1 apart from true
        }

    def settings_diff(self, other: Configuration) -> dict[str, tuple[Any, Any]]:
        """Launch settings that differ: `--flag`, `--flag.entry` or `VARIABLE` to (here, there)."""
        here, there = self._leaves(), other._leaves()
        names = [*here, *(name for name in there if name not in here)]
        return {
            name: (here.get(name), there.get(name))
            for name in names
            if repr(here.get(name)) != repr(there.get(name))
        }

    def _leaves(self) -> dict[str, Any]:
        settings = Settings(args=dict(self.args), env=dict(self.env))
        return {
            name if kind == "env" else f"--{name}": value for kind, name, value in settings.leaves()
        }


class Refusal(BaseModel):
    """Why a configuration must not be tried, found without starting anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Literal["guard", "constraint", "known_rejected"]
    reason: str
    """One sentence."""
    rule: str
    """The rule that refuses it, as the document states it."""
    source_code: str | None = None
    """The rejection code that the evidence of a known dead end carries."""
