"""What lies between a chooser and a trial: a proposal is allowed, and it is new.

An Optuna sampler knows neither the space's rules nor what has been tried, and would spend server
starts on both. The steering sampler asks it for a whole assignment, resets what a rule refuses,
and moves on to the nearest assignment that nobody has asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces import BadValue, SearchSpace, Value
from tuner.choosers import Chooser, distribution

_LISTED: Final = 10_000
"""Spaces up to this size are listed, so that the last free configuration is surely found."""
_STEPS: Final = 200
"""Random single changes before the search for a new configuration falls back to listing."""


def key_of(assignment: Mapping[str, Value]) -> str:
    """One text per assignment, whatever the order of its knobs."""
    return json.dumps(dict(assignment), sort_keys=True, separators=(",", ":"))


class Exhausted(Exception):  # noqa: N818 - nothing is wrong: there is nothing left
    """No allowed configuration is left that was not asked for."""


class Territory:
    """The allowed assignments of a space and which of them are still new."""

    def __init__(self, space: SearchSpace, facts: Mapping[str, Value]) -> None:
        self.space = space
        self.facts = dict(facts)
        self.seen: set[str] = set()
        self._listed: dict[str, dict[str, Value]] | None = None

    def allows(self, assignment: Mapping[str, Value]) -> bool:
        """Whether no rule refuses it; facts that are not known reopen nothing."""
        return not self.space.refusals(self.space.configure(assignment), self.facts)

    def is_new(self, assignment: Mapping[str, Value]) -> bool:
        """Whether nobody has asked for it."""
        return key_of(assignment) not in self.seen

    def take(self, assignment: Mapping[str, Value]) -> None:
        """It is asked for now."""
        self.seen.add(key_of(assignment))

    def is_exhausted(self) -> bool:
        """Whether a space that can be listed has nothing new left."""
        listed = self._list()
        return listed is not None and all(key in self.seen for key in listed)

    def free(self) -> Iterator[dict[str, Value]]:
        """Allowed and new assignments, in the space's order."""
        listed = self._list()
        source = self.space.enumerate() if listed is None else iter(listed.values())
        for assignment in source:
            if self.is_new(assignment) and (listed is not None or self.allows(assignment)):
                yield assignment

    def repaired(self, assignment: Mapping[str, Value], chance: random.Random) -> dict[str, Value]:
        """The assignment with as few knobs as needed put back to the control's value."""
        values = dict(assignment)
        names = [name for name in self.space.knobs if name in values]
        chance.shuffle(names)
        for name in names:
            if self.allows(values):
                return values
            values = self.space.complete({**values, name: self.space.knobs[name].control})
        return values

    def nearby(
        self, assignment: Mapping[str, Value], chance: random.Random
    ) -> Iterator[dict[str, Value]]:
        """Allowed and new assignments, one change away first, then by a random walk."""
        changed = list(self.one_change_away(assignment))
        chance.shuffle(changed)
        yield from (values for values in changed if self.is_new(values) and self.allows(values))
        values = dict(assignment)
        for _ in range(_STEPS):
            values = self.step(values, chance)
            if self.is_new(values) and self.allows(values):
                yield values

    def one_change_away(self, assignment: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
        """Every assignment that gives one active knob another value; ranges give a few values."""
        for name in assignment:
            for value in alternatives(self.space, name, assignment[name]):
                yield self.space.complete({**assignment, name: value})

    def step(self, assignment: Mapping[str, Value], chance: random.Random) -> dict[str, Value]:
        """The assignment with one knob, chosen at random, at another value."""
        names = [name for name in assignment if not self.space.knobs[name].frozen]
        name = chance.choice(names)
        others = alternatives(self.space, name, assignment[name])
        return self.space.complete(
            {**assignment, name: chance.choice(others or [assignment[name]])}
        )

    def _list(self) -> dict[str, dict[str, Value]] | None:
        if self._listed is None:
            many = self.space.size().configurations
            if many is None or many > _LISTED:
                return None
            self._listed = {
                key_of(values): values for values in self.space.enumerate() if self.allows(values)
            }
        return self._listed


def alternatives(space: SearchSpace, name: str, value: Value, limit: int = 8) -> list[Value]:
    """Other values of a knob: all choices, and of a range at most `limit`, evenly spread."""
    knob = space.knobs[name]
    values: Sequence[Value] | None = knob.values
    if values is None:
        low, high = knob.ends
        parts = range(limit)
        values = (
            [low * (high / low) ** (i / (limit - 1)) for i in parts]
            if knob.log
            else ([low + (high - low) * i / (limit - 1) for i in parts])
        )
    elif knob.choices is None and len(values) > limit:
        last = len(values) - 1
        values = [values[round(i * last / (limit - 1))] for i in range(limit)]
    return [other for other in values if repr(other) != repr(value)]


class SteeringSampler(BaseSampler):
    """An Optuna sampler whose every draw is a chooser's, made allowed and new."""

    def __init__(self, territory: Territory, chooser: Chooser, seed: int) -> None:
        self._territory = territory
        self._chooser = chooser
        self._seed = seed
        self._domains = {
            name: distribution(knob)
            for name, knob in territory.space.knobs.items()
            if not knob.frozen
        }

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002 - Optuna calls by name
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        """Every knob: the assignment is settled as a whole."""
        return dict(self._domains)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """The values of all active knobs; raises Exhausted when nothing new can be found."""
        chance = random.Random(f"{self._seed}/{trial.number}")  # noqa: S311 - a search's choice
        chosen = self._new(self._chooser.choose(study, trial), chance)
        return {name: value for name, value in chosen.items() if name in search_space}

    def _new(self, drawn: dict[str, Value], chance: random.Random) -> dict[str, Value]:
        repaired = self._territory.repaired(drawn, chance)
        if self._territory.is_new(repaired) and self._territory.allows(repaired):
            return repaired
        for values in self._territory.nearby(repaired, chance):
            return values
        try:
            for values in self._territory.free():
                return values
        except BadValue:  # a continuous range cannot be listed, and has always something new
            pass
        raise Exhausted

    def sample_independent(
        self,
        study: optuna.Study,  # noqa: ARG002 - Optuna calls by name
        trial: FrozenTrial,  # noqa: ARG002
        param_name: str,
        param_distribution: BaseDistribution,  # noqa: ARG002
    ) -> Any:
        """A knob that the fixed part of a queued assignment leaves open: the control's value."""
        return self._territory.space.knobs[param_name].control

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Pass on what completed."""
        if state == TrialState.COMPLETE and values is not None:
            self._chooser.settled(study, trial, values)
