"""How large a space is and how much of it the rules refuse, counted exactly where it is finite.

Counting by listing would end at a few dozen knobs. Instead conditions and rules become tables over
the few knobs they name, and knobs are summed out one by one (variable elimination; R. Dechter,
"Bucket elimination: a unifying framework for reasoning", Artificial Intelligence 113, 1999), which
costs as much as the largest table, not as the space.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from search_spaces.expression import Expression, Value
from search_spaces.knob import Knob
from search_spaces.order import in_order
from search_spaces.rules import Constraint, Guard, KnownRejected

Rule = Guard | Constraint | KnownRejected

_LARGEST_TABLE: Final = 1_000_000
"""Cells; a table of Python integers of this size is a few tens of MB and a second of work."""
_SAMPLES: Final = 4_000
"""The standard error of an estimated share is then at most 0.8 %."""


@dataclass(frozen=True)
class SpaceSize:
    """Number of configurations and of those that rules leave.

    `configurations` and `allowed` are None where a continuous range makes them infinite. With
    `exact` false, `ruled_out_share` is estimated from random configurations.
    """

    configurations: int | None
    allowed: int | None
    ruled_out_share: float
    exact: bool

    @property
    def ruled_out(self) -> int | None:
        """Configurations that a guard, a constraint or a known dead end refuses."""
        if self.configurations is None or self.allowed is None:
            return None
        return self.configurations - self.allowed

    def __str__(self) -> str:
        many = "infinitely many" if self.configurations is None else f"{self.configurations:,}"
        about = "" if self.exact else "about "
        left = "" if self.allowed is None else f", {about}{self.allowed:,} left"
        return f"{many} configurations, {about}{self.ruled_out_share:.1%} of them ruled out{left}"


class _TooLargeError(Exception):
    """A table would have more cells than is reasonable."""


@dataclass(frozen=True)
class _Table:
    """Counts over the domains of some knobs; axis i belongs to names[i]."""

    names: tuple[str, ...]
    counts: np.ndarray


def count(knobs: Mapping[str, Knob], rules: Sequence[Rule]) -> SpaceSize:
    """The size of the space that `knobs` span under `rules`, facts unknown."""
    domains = _domains(knobs)
    try:
        if domains is not None:
            everything = _count(knobs, domains, ())
            allowed = _count(knobs, domains, rules)
            share = 1 - allowed / everything
            return SpaceSize(everything, allowed, share, exact=True)
    except _TooLargeError:
        pass
    return _estimate(knobs, rules, domains)


def _domains(knobs: Mapping[str, Knob]) -> dict[str, tuple[Value, ...]] | None:
    """Values per knob; None when one of them is continuous."""
    domains: dict[str, tuple[Value, ...]] = {}
    for name, knob in knobs.items():
        values = knob.values
        if values is None:
            return None
        domains[name] = values
    return domains


def _count(
    knobs: Mapping[str, Knob],
    domains: Mapping[str, tuple[Value, ...]],
    rules: Sequence[Rule],
) -> int:
    tables = [_condition_table(name, knobs, domains) for name in knobs]
    for rule in rules:
        names = tuple(name for name in _names(rule) if name in knobs)
        if names:
            tables.append(_rule_table(rule, names, knobs, domains))
    total = 1
    remaining = set(knobs)
    while remaining:
        name = min(remaining, key=lambda one: (_cost(one, tables), one))
        remaining.discard(name)
        touching = [table for table in tables if name in table.names]
        tables = [table for table in tables if name not in table.names]
        summed = _sum_out(name, touching)
        if summed.names:
            tables.append(summed)
        else:
            total *= int(summed.counts)
    return total


def _cost(name: str, tables: Iterable[_Table]) -> int:
    """Cells of the table that summing out `name` makes."""
    sizes: dict[str, int] = {}
    for table in tables:
        if name in table.names:
            sizes |= dict(zip(table.names, table.counts.shape, strict=True))
    return math.prod(sizes.values())


def _sum_out(name: str, tables: Sequence[_Table]) -> _Table:
    names = [name, *sorted({other for table in tables for other in table.names} - {name})]
    joint = np.ones((1,) * len(names), dtype=object)
    for table in tables:
        axes = [table.names.index(one) for one in names if one in table.names]
        aligned = np.transpose(table.counts, axes)
        sizes = iter(aligned.shape)
        shape = [next(sizes) if one in table.names else 1 for one in names]
        aligned = aligned.reshape(shape)
        if math.prod(map(max, shape, joint.shape)) > _LARGEST_TABLE:
            raise _TooLargeError
        joint = joint * aligned
    return _Table(tuple(names[1:]), np.asarray(joint.sum(axis=0), dtype=object))


def _axis(
    name: str, knobs: Mapping[str, Knob], domains: Mapping[str, tuple[Value, ...]]
) -> list[tuple[bool, Value]]:
    """(active, value) per position on the knob's axis."""
    states: list[tuple[bool, Value]] = [(True, value) for value in domains[name]]
    if knobs[name].when is not None:
        states.append((False, None))
    return states


def _cells(
    names: tuple[str, ...],
    knobs: Mapping[str, Knob],
    domains: Mapping[str, tuple[Value, ...]],
    allowed: Callable[[dict[str, Value], bool], bool],
) -> np.ndarray:
    """1 where `allowed(values, is the first knob active)`, else 0."""
    axes = [_axis(name, knobs, domains) for name in names]
    shape = tuple(len(axis) for axis in axes)
    if math.prod(shape) > _LARGEST_TABLE:
        raise _TooLargeError
    counts = np.zeros(shape, dtype=object)
    for place in product(*(range(size) for size in shape)):
        states = tuple(axis[at] for axis, at in zip(axes, place, strict=True))
        values = {name: state[1] for name, state in zip(names, states, strict=True)}
        counts[place] = int(allowed(values, states[0][0]))
    return counts


def _condition_table(
    name: str, knobs: Mapping[str, Knob], domains: Mapping[str, tuple[Value, ...]]
) -> _Table:
    """1 where the knob is active exactly when its condition holds."""
    when = knobs[name].when
    if when is None:
        return _Table((name,), np.full(len(domains[name]), 1, dtype=object))
    names = (name, *when.names)

    def allowed(values: dict[str, Value], active: bool) -> bool:
        return (when.holds(values) is True) == active

    return _Table(names, _cells(names, knobs, domains, allowed))


def _rule_table(
    rule: Rule,
    names: tuple[str, ...],
    knobs: Mapping[str, Knob],
    domains: Mapping[str, tuple[Value, ...]],
) -> _Table:
    def allowed(values: dict[str, Value], _active: bool) -> bool:
        return rule.refusal(values) is None

    return _Table(names, _cells(names, knobs, domains, allowed))


def _names(rule: Rule) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in _expressions(rule) for name in part.names))


def _expressions(rule: Rule) -> Iterator[Expression]:
    if isinstance(rule, Guard):
        yield from (rule.condition, rule.require)
    elif isinstance(rule, Constraint):
        yield rule.that
    else:
        yield rule.where
        if rule.reopen_if is not None:
            yield rule.reopen_if


def _estimate(
    knobs: Mapping[str, Knob],
    rules: Sequence[Rule],
    domains: Mapping[str, tuple[Value, ...]] | None,
) -> SpaceSize:
    """The share from random configurations; the number in all by counting, where that works."""
    try:
        everything = None if domains is None else _count(knobs, domains, ())
    except _TooLargeError:
        everything = None
    chance = random.Random(0)  # noqa: S311 - a sample, not a secret
    refused = 0
    for _ in range(_SAMPLES):
        values: dict[str, Value] = dict.fromkeys(knobs)
        for name in in_order(knobs):
            knob = knobs[name]
            if knob.when is None or knob.when.holds(values) is True:
                values[name] = _any_value(knob, chance)
        refused += any(rule.refusal(values) is not None for rule in rules)
    share = refused / _SAMPLES
    allowed = None if everything is None else round(everything * (1 - share))
    return SpaceSize(everything, allowed, share, exact=False)


def _any_value(knob: Knob, chance: random.Random) -> Value:
    if (values := knob.values) is not None:
        return chance.choice(values)
    return chance.uniform(*knob.ends)
