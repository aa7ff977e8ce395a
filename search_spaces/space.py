"""A search space: what may vary around a base, and what rules configurations out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from search_spaces.coherence import Incoherence, incoherences
from search_spaces.configuration import BadValue, Configuration, Refusal, UnknownKnob
from search_spaces.expression import Value
from search_spaces.knob import Knob, Suggest, spelt
from search_spaces.nearest import did_you_mean
from search_spaces.order import in_order
from search_spaces.rules import Constraint, Guard, KnownRejected
from search_spaces.settings import Overlay, Settings
from search_spaces.size import Rule, SpaceSize, count

_NOTHING: Final[Mapping[str, Value]] = {}


class Base(BaseModel):
    """A named starting point: values of some knobs, the others at their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: dict[str, Value] = Field(description="Knob values that differ from the control's")
    why: str = Field("", description="What is known about it")


class SearchSpace(BaseModel):
    """Knobs around a base, the conditions between them, and what is refused.

    Every mistake that the document itself shows is raised at once, as a pydantic ValidationError
    whose errors carry the path of the key in question.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="Name of the space")
    description: str = Field("", description="What varies and why, in a sentence or two")
    engine: str = Field("vllm", description="Which engine's knobs these are")
    base: Settings = Field(default_factory=Settings, description="What every configuration sets")
    knobs: dict[str, Knob] = Field(description="What may vary, by name")
    bases: dict[str, Base] = Field(
        default_factory=dict, description="Named starting points, e.g. what was accepted before"
    )
    guards: tuple[Guard, ...] = Field((), description="Refused unless something else is set")
    constraints: tuple[Constraint, ...] = Field((), description="What must always hold")
    rejected: tuple[KnownRejected, ...] = Field((), description="Known dead ends, with evidence")

    @field_validator("knobs")
    @classmethod
    def _knobs_have_plain_names(cls, knobs: dict[str, Knob]) -> dict[str, Knob]:
        for name in knobs:
            if not (name.isidentifier() and name.isascii()):
                raise PydanticCustomError(
                    "knob_name",
                    "the knob name {name} cannot stand in an expression; use letters, digits and _",
                    {"name": repr(name)},
                )
        return knobs

    @model_validator(mode="after")
    def _is_coherent(self) -> SearchSpace:
        found = (
            incoherences(self.knobs, self.guards, self.constraints, self.rejected)
            or self._bad_bases()
        )
        if found:
            raise ValidationError.from_exception_data(
                f"search space {self.name}",
                [
                    InitErrorDetails(
                        type=PydanticCustomError("space", "{message}", {"message": one.message}),
                        loc=one.path,
                        input=one.given,
                    )
                    for one in found
                ],
            )
        return self

    def _bad_bases(self) -> list[Incoherence]:
        found = []
        for name, base in self.bases.items():
            try:
                self.configure(base.values)
            except ValueError as error:
                found.append(Incoherence(("bases", name, "values"), str(error), base.values))
        return found

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Knob names so that each comes after the knobs its condition asks about."""
        return in_order(self.knobs)

    def control(self) -> Configuration:
        """Every knob at its default over the base."""
        return self.configure(_NOTHING)

    def starting_point(self, name: str) -> Configuration:
        """The configuration of the base called `name`; raises UnknownKnob when there is none."""
        if name not in self.bases:
            raise UnknownKnob(
                f"space {self.name} has no base called {name!r}{did_you_mean(name, self.bases)}"
            )
        return self.configure(self.bases[name].values)

    def draw(self, suggest: Suggest) -> dict[str, Value]:
        """Ask `suggest` for every active knob, conditions first; frozen knobs are not asked."""
        values: dict[str, Value] = {}
        for name, knob in self._active(values):
            values[name] = knob.control if knob.frozen else knob.draw(name, suggest)
        return self._in_document_order(values)

    def complete(self, assignment: Mapping[str, Value]) -> dict[str, Value]:
        """The assignment with defaults for what it lacks, and without knobs that are not active.

        Raises UnknownKnob and BadValue as `configure` does, except for inactive knobs.
        """
        self._check_names(assignment)
        values: dict[str, Value] = {}
        for name, knob in self._active(values):
            values[name] = self._value(name, knob, assignment)
        return self._in_document_order(values)

    def configure(self, assignment: Mapping[str, Value]) -> Configuration:
        """The configuration of an assignment; missing active knobs take their defaults.

        Raises:
            UnknownKnob: a name that is no knob of this space.
            BadValue: a value out of the knob's domain, or given to a knob that is not active.
        """
        values = self.complete(assignment)
        for name in assignment:
            if name not in values:
                raise BadValue(
                    f"{name} is set to {spelt(assignment[name])}, but it is active only when"
                    f" {self.knobs[name].when}"
                )
        overlay = Overlay()
        overlay.merge(self.base)
        kernels: dict[str, str] = {}
        setters: dict[str, str] = {}
        for name, value in values.items():
            knob = self.knobs[name]
            if (target := knob.env or knob.arg) is not None:
                first = setters.setdefault(target, name)
                if first != name:
                    raise BadValue(f"{first} and {name} are both active and both set {target}")
            if knob.arg is not None:
                overlay.set_arg(knob.arg, value)
            elif knob.env is not None:
                overlay.set_env(knob.env, value)
            elif knob.kernel is not None:
                kernels[knob.kernel] = spelt(value)
            if (settings := knob.sets.get(spelt(value))) is not None:
                overlay.merge(settings)
        return Configuration(assignment=values, args=overlay.args, env=overlay.env, kernels=kernels)

    def refusals(
        self, configuration: Configuration, facts: Mapping[str, Value] = _NOTHING
    ) -> list[Refusal]:
        """Every reason not to try `configuration`: guards, then constraints, then dead ends.

        `facts` are what is known beside the knobs, e.g. ``{"engine.version": "0.32.0"}``.
        """
        values: dict[str, Value] = dict.fromkeys(self.knobs)
        values |= facts
        values |= configuration.assignment
        rules: tuple[Rule, ...] = (*self.guards, *self.constraints, *self.rejected)
        found = (rule.refusal(values) for rule in rules)
        return [refusal for refusal in found if refusal is not None]

    def size(self) -> SpaceSize:
        """How many configurations there are, and the share that rules refuse without a trial."""
        return count(self.knobs, (*self.guards, *self.constraints, *self.rejected))

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """Every assignment, refused ones included, the control's first in each knob.

        Raises BadValue when a knob has a continuous range.
        """
        for name, knob in self.knobs.items():
            if knob.values is None:
                raise BadValue(
                    f"{name} has a continuous range, which cannot be enumerated; give it a step"
                )
        yield from self._enumerate({}, 0)

    def _enumerate(self, values: dict[str, Value], at: int) -> Iterator[dict[str, Value]]:
        if at == len(self.order):
            yield self._in_document_order(values)
            return
        name = self.order[at]
        knob = self.knobs[name]
        if not self._is_active(knob, values):
            yield from self._enumerate(values, at + 1)
            return
        domain = knob.values or ()
        first = knob.control
        for value in (first, *(one for one in domain if repr(one) != repr(first))):
            yield from self._enumerate({**values, name: value}, at + 1)

    def _active(self, values: dict[str, Value]) -> Iterator[tuple[str, Knob]]:
        """Active knobs in order, judged by `values`, which the caller fills as it goes."""
        for name in self.order:
            knob = self.knobs[name]
            if self._is_active(knob, values):
                yield name, knob

    def _is_active(self, knob: Knob, values: Mapping[str, Value]) -> bool:
        if knob.when is None:
            return True
        asked = {name: values.get(name) for name in knob.when.names}
        return knob.when.holds(asked) is True

    def _check_names(self, assignment: Mapping[str, Value]) -> None:
        for name in assignment:
            if name not in self.knobs:
                raise UnknownKnob(
                    f"space {self.name} has no knob {name!r}{did_you_mean(name, self.knobs)}"
                )

    def _value(self, name: str, knob: Knob, assignment: Mapping[str, Value]) -> Value:
        if name not in assignment:
            return knob.control
        value = assignment[name]
        if not knob.accepts(value):
            raise BadValue(f"{name} = {spelt(value)} is not {knob.domain}")
        if knob.frozen and spelt(value) != spelt(knob.control):
            raise BadValue(f"{name} is frozen at {spelt(knob.control)}, not {spelt(value)}")
        return knob.canonical(value)

    def _in_document_order(self, values: Mapping[str, Value]) -> dict[str, Value]:
        return {name: values[name] for name in self.knobs if name in values}
