"""Mistakes that a space's document shows by itself: names, literals and targets that do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.expression import Expression, Value
from search_spaces.knob import Knob, spelt
from search_spaces.nearest import did_you_mean, nearest
from search_spaces.order import cycle
from search_spaces.rules import FACTS, Constraint, Guard, KnownRejected


@dataclass(frozen=True)
class Incoherence:
    """One mistake, at the path of its key in the document."""

    path: tuple[str | int, ...]
    message: str
    given: object


def incoherences(
    knobs: Mapping[str, Knob],
    guards: Sequence[Guard],
    constraints: Sequence[Constraint],
    rejected: Sequence[KnownRejected],
) -> list[Incoherence]:
    """Every mistake between the parts of a space, in the document's order."""
    found: list[Incoherence] = []
    for name, knob in knobs.items():
        if knob.when is not None:
            path: tuple[str | int, ...] = ("knobs", name, "when")
            found += _in_expression(path, knob.when, knobs, facts_allowed=False)
    circle = cycle(knobs)
    if circle:
        found.append(
            Incoherence(
                ("knobs", circle[0], "when"),
                f"the conditions go round in a circle: {' asks about '.join(circle)}",
                str(knobs[circle[0]].when),
            )
        )
    found += _double_targets(knobs)
    for path, expression in _rules(guards, constraints, rejected):
        found += _in_expression(path, expression, knobs, facts_allowed=True)
    return found


def _rules(
    guards: Sequence[Guard], constraints: Sequence[Constraint], rejected: Sequence[KnownRejected]
) -> Iterator[tuple[tuple[str | int, ...], Expression]]:
    for at, guard in enumerate(guards):
        yield ("guards", at, "if"), guard.condition
        yield ("guards", at, "require"), guard.require
    for at, constraint in enumerate(constraints):
        yield ("constraints", at), constraint.that
    for at, dead_end in enumerate(rejected):
        yield ("rejected", at, "where"), dead_end.where
        if dead_end.reopen_if is not None:
            yield ("rejected", at, "reopen_if"), dead_end.reopen_if


def _in_expression(
    path: tuple[str | int, ...],
    expression: Expression,
    knobs: Mapping[str, Knob],
    *,
    facts_allowed: bool,
) -> Iterator[Incoherence]:
    for name, column in expression.names.items():
        if name in knobs:
            continue
        at = f"column {column} of the expression: "
        if "." not in name:
            message = f"{at}there is no knob {name!r}{did_you_mean(name, knobs)}"
        elif not facts_allowed:
            message = f"{at}{name!r} is a fact, but conditions may ask about knobs only"
        elif name.split(".")[0] not in FACTS:
            message = f"{at}there are no facts about {name.split('.')[0]!r}; known: " + ", ".join(
                FACTS
            )
        else:
            continue
        yield Incoherence(path, message, str(expression))
    for comparison in expression.comparisons:
        knob = knobs.get(comparison.name)
        if knob is None or comparison.literal is None or _possible(knob, comparison.literal):
            continue
        hint = ""
        if knob.choices is not None:
            close = nearest(spelt(comparison.literal), [spelt(one) for one in knob.choices], 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
        yield Incoherence(
            path,
            f"column {comparison.column} of the expression: {comparison.name} is never"
            f" {spelt(comparison.literal)!r}, it is {knob.domain}{hint}",
            str(expression),
        )


def _possible(knob: Knob, literal: Value) -> bool:
    if knob.accepts(literal):
        return True
    # Expressions hold 1 and true equal, so that `allow == 1` may ask about a flag.
    if isinstance(literal, bool):
        return knob.accepts(int(literal))
    return literal in (0, 1) and knob.accepts(bool(literal))


def _double_targets(knobs: Mapping[str, Knob]) -> Iterator[Incoherence]:
    """Two knobs may share a setting only where conditions keep them apart."""
    first: dict[tuple[str, str], str] = {}
    for name, knob in knobs.items():
        target = knob.env or knob.arg or knob.kernel
        if target is None or knob.when is not None:
            continue
        key = (knob.kind, target)
        if key in first:
            yield Incoherence(
                ("knobs", name, knob.kind),
                f"{target} is already set by the knob {first[key]!r}; two knobs may share a"
                " setting only under conditions",
                target,
            )
        first.setdefault(key, name)
