"""One thing that can be set: what it sets, the values it may take, and when it counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from search_spaces.expression import Expression, Value
from search_spaces.settings import Settings, flag_key

Choice = TypeVar("Choice")


class Suggest(Protocol):
    """What draws values: an `optuna.Trial` has these methods, and so may anything else."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number from `low` to `high`, both included."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from `low` to `high`, both included."""


def spelt(value: Value) -> str:
    """A value as YAML spells it: the keys of `sets` and every message use this."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def told_apart(value: Value) -> tuple[bool, Value]:
    """A key under which 1 and true differ, as `same` has it, though Python holds them equal."""
    return isinstance(value, bool), value


def same(left: Value, right: Value) -> bool:
    """Equality that keeps 1 apart from true and from '1', but not 2 from 2.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _by_spelling(sets: object) -> object:
    """YAML reads the keys true, 1 and null as themselves; choices are looked up by spelling."""
    if not isinstance(sets, Mapping):
        return sets
    return {
        spelt(key) if key is None or isinstance(key, (bool, int, float)) else key: value
        for key, value in sets.items()
    }


class Knob(BaseModel):
    """A knob sets an environment variable (`env`), a server argument (`arg`), chooses the
    implementation of an operation (`kernel`), or none of these: a meta knob, whose choices act
    through `sets` or through the conditions of other knobs.

    Exactly one of `choices` and `range` is given. A value of null leaves the setting out, so the
    engine's own default holds.
    """  # noqa: D205 - one sentence needs two lines

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str | None = Field(None, description="Environment variable that this knob sets")
    arg: Annotated[str | None, AfterValidator(lambda arg: arg and flag_key(arg))] = Field(
        None, description="Server argument; dotted for an entry of a JSON argument"
    )
    kernel: str | None = Field(None, description="Operation whose implementation is chosen")
    choices: tuple[Value, ...] | None = Field(None, description="The values, best guess first")
    range: tuple[StrictInt, StrictInt] | tuple[float, float] | None = Field(
        None, description="[low, high], both included; whole numbers make a whole-number range"
    )
    step: int | float | None = Field(None, description="Distance between values of a range")
    log: bool = Field(False, description="Draw the range evenly in its logarithm")
    default: Value = Field(None, description="The control's value; else first choice, low of range")
    when: Expression | None = Field(None, description="The knob is active only where this holds")
    frozen: bool = Field(False, description="Held at its default, never drawn")
    group: str = Field("", description="Knobs of one subsystem, moved together by some strategies")
    help: str = Field("", description="What it does and why it may matter")
    sets: Annotated[dict[str, Settings], BeforeValidator(_by_spelling)] = Field(
        default_factory=dict, description="Further settings per choice, keyed by the choice"
    )

    @field_validator("choices", mode="before")
    @classmethod
    def _choices_stay_scalars(cls, value: object) -> object:
        if isinstance(value, (list, tuple)):
            for item in value:
                if not (item is None or isinstance(item, (bool, int, float, str))):
                    raise PydanticCustomError(
                        "choice",
                        "choice {choice} is not a plain value; give it a name and put the settings"
                        " under sets",
                        {"choice": repr(item)},
                    )
        return value

    @model_validator(mode="after")
    def _is_coherent(self) -> Knob:
        targets = [name for name in ("env", "arg", "kernel") if getattr(self, name) is not None]
        if len(targets) > 1:
            raise _wrong(f"a knob sets one thing, but this names {' and '.join(targets)}")
        if (self.choices is None) == (self.range is None):
            raise _wrong("a knob has either choices or a range")
        if self.choices is not None:
            self._check_choices(self.choices)
        if self.range is not None:
            self._check_range(*self.range)
        if "default" in self.model_fields_set and not self.accepts(self.default):
            raise _wrong(f"the default {spelt(self.default)} is not {self.domain}")
        return self

    def _check_choices(self, choices: tuple[Value, ...]) -> None:
        if not choices:
            raise _wrong("choices is empty")
        for name in ("step", "log"):
            if getattr(self, name):
                raise _wrong(f"{name} belongs to a range, but this knob has choices")
        spellings = [spelt(choice) for choice in choices]
        for spelling in spellings:
            if spellings.count(spelling) > 1:
                raise _wrong(f"the choice {spelling} stands twice")
        # A sampler keys its choices by equality, and in Python 1 == True.
        if len(set(choices)) < len(choices):
            raise _wrong("0 and false, or 1 and true, are both choices; use one of the two forms")
        for key in self.sets:
            if key not in spellings:
                raise _wrong(f"sets names {key!r}, which is not among the choices")
        if self.kernel is not None and not self.sets:
            raise _wrong("a kernel knob needs sets, which say how each choice is put in force")

    def _check_range(self, low: float, high: float) -> None:
        if self.sets:
            raise _wrong("sets belongs to choices, but this knob has a range")
        if self.kernel is not None:
            raise _wrong("a kernel knob has choices, the names of implementations, not a range")
        if not (math.isfinite(low) and math.isfinite(high)) or low > high:
            raise _wrong(f"the range [{low}, {high}] does not go from low to high")
        if self.step is not None:
            if self.step <= 0:
                raise _wrong(f"the step {self.step} is not above 0")
            if self.log:
                raise _wrong("a logarithmic range has no step")
            if self.whole and not isinstance(self.step, int):
                raise _wrong(f"a range of whole numbers needs a whole step, not {self.step}")
        if self.log and low <= 0:
            raise _wrong(f"a logarithmic range starts above 0, not at {low}")

    @cached_property
    def _by_value(self) -> dict[tuple[bool, Value], Value]:
        return {told_apart(choice): choice for choice in self.choices or ()}

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high of a range; raises TypeError for choices."""
        if self.range is None:
            raise TypeError("a knob with choices has no ends")
        return self.range

    @property
    def whole(self) -> bool:
        """Whether the range holds whole numbers only."""
        return self.range is not None and all(isinstance(end, int) for end in self.range)

    @property
    def kind(self) -> Literal["env", "arg", "kernel", "meta"]:
        """What the knob sets."""
        if self.env is not None:
            return "env"
        if self.arg is not None:
            return "arg"
        return "kernel" if self.kernel is not None else "meta"

    @property
    def control(self) -> Value:
        """The control's value: the stated default, else the first choice or the low end."""
        if "default" in self.model_fields_set:
            return self.default
        if self.choices is not None:
            return self.choices[0]
        return self.ends[0]

    @property
    def domain(self) -> str:
        """The values in words, for messages."""
        if self.choices is not None:
            return "one of " + ", ".join(spelt(choice) for choice in self.choices)
        low, high = self.ends
        step = f" in steps of {self.step}" if self.step else ""
        return f"a {'whole ' if self.whole else ''}number from {low} to {high}{step}"

    @property
    def values(self) -> tuple[Value, ...] | None:
        """Every value in order; None for a continuous range."""
        if self.frozen:
            return (self.control,)
        if self.choices is not None:
            return self.choices
        low, high = self.ends
        if self.whole:
            return tuple(range(int(low), int(high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        steps = math.floor((high - low) / self.step + 1e-9)
        return tuple(round(low + index * self.step, 12) for index in range(steps + 1))

    def accepts(self, value: Value) -> bool:
        """Whether `value` is one of this knob's values."""
        if self.choices is not None:
            return told_apart(value) in self._by_value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        low, high = self.ends
        if not low <= value <= high or (self.whole and int(value) != value):
            return False
        if self.step is None:
            return True
        steps = (value - low) / self.step
        return abs(steps - round(steps)) < 1e-9

    def canonical(self, value: Value) -> Value:
        """The accepted value in the form of the document: 2.0 becomes 2 in a whole range."""
        if self.choices is not None:
            return self._by_value[told_apart(value)]
        number = float(value or 0)
        return int(number) if self.whole else number

    def draw(self, name: str, suggest: Suggest) -> Value:
        """Ask `suggest` for a value of this knob."""
        if self.choices is not None:
            drawn: Value = suggest.suggest_categorical(name, list(self.choices))
            return drawn
        low, high = self.ends
        if self.whole:
            return suggest.suggest_int(
                name, int(low), int(high), step=int(self.step or 1), log=self.log
            )
        return suggest.suggest_float(name, low, high, step=self.step, log=self.log)


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("knob", "{message}", {"message": message})
