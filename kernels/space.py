"""Meta-parameters of a candidate: choices, and the constraints that make a configuration legal.

A configuration that breaks a constraint is never started: the constraint's `why` says what of the
device it would exceed. Limits come from the device itself (`DeviceLimits`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Value = int | str | bool
Config = Mapping[str, Any]


@dataclass(frozen=True)
class DeviceLimits:
    """What one compute unit (streaming multiprocessor, Xe core) of the device can hold."""

    shared_memory_bytes: int
    registers: int
    max_threads: int
    units: int
    warp_size: int = 32

    def to_json(self) -> dict[str, int]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, int]) -> DeviceLimits:
        """The inverse of `to_json`."""
        return DeviceLimits(**data)


UNLIMITED = DeviceLimits(1 << 40, 1 << 40, 1 << 20, 1)
"""For devices without such limits (a CPU), and for listing a space without a device."""


@dataclass(frozen=True)
class Constraint:
    """`holds(config, case_params, limits)`; when it does not, `why` is the reason of refusal."""

    why: str
    holds: Callable[[Config, Mapping[str, Any], DeviceLimits], bool]


@dataclass(frozen=True)
class Space:
    """Named choices with constraints. An empty space has exactly one configuration, {}."""

    choices: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    default: Config = field(default_factory=dict)

    def size(self) -> int:
        """How many combinations there are before constraints."""
        return math.prod(len(values) for values in self.choices.values())

    def every(self) -> Iterator[dict[str, Value]]:
        """All combinations in the order of the choices, legal or not."""
        names = list(self.choices)
        for values in itertools.product(*self.choices.values()):
            yield dict(zip(names, values, strict=True))

    def refusal(
        self, config: Config, params: Mapping[str, Any], limits: DeviceLimits
    ) -> str | None:
        """Why `config` may not run, or None when it is legal."""
        unknown = sorted(set(config) - set(self.choices))
        if unknown:
            return f"unknown meta-parameter {unknown[0]!r}; known are {', '.join(self.choices)}"
        for name, values in self.choices.items():
            if name not in config:
                return f"meta-parameter {name!r} has no value"
            if config[name] not in values:
                return f"{name} = {config[name]!r} is not one of {values}"
        for constraint in self.constraints:
            if not constraint.holds(config, params, limits):
                return constraint.why
        return None

    def legal(
        self, params: Mapping[str, Any], limits: DeviceLimits = UNLIMITED
    ) -> Iterator[dict[str, Value]]:
        """Every configuration that no constraint refuses for this case on this device."""
        for config in self.every():
            if all(c.holds(config, params, limits) for c in self.constraints):
                yield config

    def start(self, params: Mapping[str, Any], limits: DeviceLimits) -> dict[str, Any] | None:
        """The default configuration where it is legal, else the first legal one, else None."""
        if self.default and self.refusal(self.default, params, limits) is None:
            return dict(self.default)
        return next(self.legal(params, limits), None)

    def knobs(self, group: str) -> dict[str, dict[str, Any]]:
        """The choices in the shape a search-space file uses for kernel knobs."""
        return {
            name: {"kernel": name, "choices": list(values), "group": group}
            for name, values in self.choices.items()
        }
