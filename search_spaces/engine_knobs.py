"""What an installed engine offers: every environment variable and server argument, explained."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.knob import spelt
from search_spaces.settings import ArgValue, flag_key

Kind = Literal["bool", "int", "float", "str", "null", "list", "dict", "true", "any"]


class EngineKnob(BaseModel):
    """One environment variable, one server argument, or one entry of an argument that takes JSON.

    `kinds` are the JSON types that it accepts beside its `choices`; `true` alone is a flag that can
    be given or left out, and has no opposite. `fields_of` names the class in
    `EngineKnobs.configs` whose fields a dotted path may address.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kinds: tuple[Kind, ...]
    choices: tuple[ArgValue, ...] = ()
    aliases: tuple[str, ...] = ()
    takes_value: bool = True
    default: ArgValue = None
    default_known: bool = True
    help: str = ""
    group: str = ""
    deprecated: str = ""
    fields_of: str | None = None

    @property
    def domain(self) -> str:
        """What it accepts, in words."""
        names = {
            "bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text",
            "null": "null", "list": "a list", "dict": "a JSON object", "any": "anything",
            "true": "true, or null to leave it out",
        }  # fmt: skip
        kinds = [kind for kind in self.kinds if not (kind == "int" and "float" in self.kinds)]
        parts = [", ".join(_shown(one) for one in self.choices)] if self.choices else []
        parts += [names[kind] for kind in kinds if kind != "null" or not self.choices]
        return " or ".join(parts) or "nothing"


class EngineKnobs(BaseModel):
    """The knobs of one installed engine, with the fingerprint of the files that define them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str
    version: str
    python: str
    files: dict[str, str] = Field(description="SHA-256 of each file that defines knobs")
    env: tuple[EngineKnob, ...]
    args: tuple[EngineKnob, ...]
    configs: dict[str, tuple[EngineKnob, ...]] = Field(
        default_factory=dict, description="Fields of the configurations that arguments take as JSON"
    )

    @cached_property
    def env_by_name(self) -> dict[str, EngineKnob]:
        """Environment variables by name."""
        return {knob.name: knob for knob in self.env}

    @cached_property
    def args_by_flag(self) -> dict[str, EngineKnob]:
        """Server arguments by flag without dashes; aliases are not flags here."""
        return {knob.name: knob for knob in self.args}

    @cached_property
    def _groups(self) -> set[str | None]:
        return {knob.group for knob in self.args}

    def arg(self, path: str) -> EngineKnob | None:
        """The argument, or the entry of a JSON argument, at a dotted path; None if there is none.

        Below an argument whose entries are not known (a free JSON object), every path is accepted.
        """
        first, *rest = flag_key(path).split(".")
        knob = self.args_by_flag.get(first)
        for name in rest:
            if knob is None:
                return None
            fields = self.fields(knob)
            if fields is None:
                free = {"dict", "any"} & set(knob.kinds)
                return EngineKnob(name=path, kinds=("any",), default_known=False) if free else None
            knob = fields.get(name)
        return knob

    def fields(self, knob: EngineKnob) -> dict[str, EngineKnob] | None:
        """The entries that a JSON argument has, by name; None where they are not known."""
        if knob.fields_of is None or knob.fields_of not in self.configs:
            return None
        return {field.name: field for field in self.configs[knob.fields_of]}

    def every(self) -> Iterator[tuple[str, EngineKnob]]:
        """Every knob as one writes it (`VARIABLE`, `--flag`, `--flag.entry`), entries included."""
        for knob in self.env:
            yield knob.name, knob
        for knob in self.args:
            yield f"--{knob.name}", knob
            yield from self._below(f"--{knob.name}", knob, {knob.fields_of})

    def _below(
        self, path: str, knob: EngineKnob, within: set[str | None]
    ) -> Iterator[tuple[str, EngineKnob]]:
        """Entries of entries, but not of what has arguments of its own, such as the model."""
        for name, field in (self.fields(knob) or {}).items():
            yield f"{path}.{name}", field
            if field.fields_of not in within | self._groups:
                yield from self._below(f"{path}.{name}", field, within | {field.fields_of})

    def search(self, pattern: str) -> list[tuple[str, EngineKnob]]:
        """Knobs whose written name contains `pattern`, or matches it where it has * or ?.

        Case, and the difference between - and _, do not count.
        """
        wanted = _folded(pattern)
        if not any(sign in wanted for sign in "*?["):
            wanted = f"*{wanted}*"
        found = [(name, knob) for name, knob in self.every()]
        return [one for one in found if fnmatch.fnmatchcase(_folded(one[0]), wanted)]


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").lstrip("_")


def _shown(value: ArgValue) -> str:
    return str(value) if isinstance(value, (list, dict)) else spelt(value)
