"""An assignment as the changes that it makes to the control: what the learned models see.

A setting that breaks or speeds up an engine does so as itself or together with another one. So a
configuration is described by its items, one per knob value that differs from the control's, and
by the pairs of its items. Over a wide range of numbers an item says "at least so much" instead,
so that neighbours share what was learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from search_spaces import SearchSpace, Value
from search_spaces.knob import same, spelt, told_apart

Matrix = NDArray[np.float64]

_FEW_VALUES: Final = 6
"""A range with at most so many values is described value by value."""
_THRESHOLDS: Final = 5


class Changes:
    """The items of a space around its control."""

    def __init__(self, space: SearchSpace) -> None:
        control = space.control().assignment
        self._single: dict[tuple[str, tuple[bool, Value]], int] = {}
        self._thresholds: dict[str, list[tuple[float, int]]] = {}
        self.names: list[str] = []
        """What each item says, e.g. ``spec = ngram`` or ``k ≥ 3``."""
        knob_of: list[str] = []
        for name, knob in space.knobs.items():
            values = knob.values
            if knob.choices is None and (values is None or len(values) > _FEW_VALUES):
                low, high = knob.ends
                cuts = np.linspace(0.0, 1.0, _THRESHOLDS + 2)[1:-1]
                ends = [
                    low * (high / low) ** cut if knob.log else low + (high - low) * cut
                    for cut in cuts
                ]
                self._thresholds[name] = [
                    (end, len(self.names) + at) for at, end in enumerate(ends)
                ]
                self.names += [f"{name} ≥ {end:g}" for end in ends]
                knob_of += [name] * len(ends)
                continue
            for value in values or ():
                if name in control and same(value, control[name]):
                    continue
                self._single[name, told_apart(value)] = len(self.names)
                self.names.append(f"{name} = {spelt(value)}")
                knob_of.append(name)
        first, second = np.triu_indices(len(self.names), 1)
        apart = np.array(
            [knob_of[a] != knob_of[b] for a, b in zip(first, second, strict=True)], dtype=bool
        )
        self._first, self._second = first[apart], second[apart]

    def __len__(self) -> int:
        return len(self.names)

    def of(self, assignment: Mapping[str, Value]) -> NDArray[np.float64]:
        """1 for each item of the assignment, else 0; the control of choices has none."""
        row = np.zeros(len(self.names))
        for name, value in assignment.items():
            if (only := self._single.get((name, told_apart(value)))) is not None:
                row[only] = 1.0
            for end, at in self._thresholds.get(name, ()):
                row[at] = float(isinstance(value, (int, float)) and value >= end)
        return row

    def matrix(self, assignments: Sequence[Mapping[str, Value]]) -> Matrix:
        """One row of items per assignment."""
        return np.array([self.of(one) for one in assignments]).reshape(-1, len(self.names))

    def pairs(self, items: Matrix) -> Matrix:
        """1 for each pair of items of different knobs that a row holds."""
        return items[:, self._first] * items[:, self._second]

    def pair_name(self, at: int) -> str:
        """What the pair in that column of `pairs` says."""
        return f"{self.names[self._first[at]]} with {self.names[self._second[at]]}"
