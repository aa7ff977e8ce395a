"""Is all of it needed? The winner, made as small a difference from the control as keeps its gain.

Backward elimination: one change at a time is put back to the control's value, and stays back when
the gain holds without it. The caller measures; this only decides what to measure next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search_spaces import SearchSpace, Value
from search_spaces.knob import spelt


class Ablation:
    """Asks for the winner without one change after the other.

    >>> ablation = Ablation(space, winner)
    >>> while (candidate := ablation.ask()) is not None:
    ...     ablation.tell(keeps_gain=measure(candidate))
    >>> ablation.smallest

    Args:
        space: the space of the winner.
        winner: its assignment.
        effects: how much each changed knob is thought to give, where that is known; the least is
            tried first, because it is the likeliest to be dropped.
    """

    def __init__(
        self,
        space: SearchSpace,
        winner: Mapping[str, Value],
        effects: Mapping[str, float] | None = None,
    ) -> None:
        self._space = space
        self._control = space.control().assignment
        self._effects = dict(effects or {})
        self.smallest = dict(space.complete(winner))
        """The smallest assignment so far that keeps the gain."""
        self.dropped: list[str] = []
        """Knobs that turned out not to be needed, in the order in which they were dropped."""
        self._needed: set[str] = set()
        self._asked: tuple[str, dict[str, Value]] | None = None

    def ask(self) -> dict[str, Value] | None:
        """The smallest so far without one more change; None when every change left is needed.

        Refused configurations are passed over: a guard may need what it guards.
        """
        for name, candidate in self._smaller():
            if self._space.refusals(self._space.configure(candidate)):
                continue
            self._asked = (name, candidate)
            return candidate
        return None

    def tell(self, *, keeps_gain: bool) -> None:
        """Whether what was asked last keeps the winner's gain, within the noise."""
        if self._asked is None:
            raise ValueError("nothing was asked that could be told of")
        name, candidate = self._asked
        self._asked = None
        if keeps_gain:
            self.smallest = candidate
            self.dropped.append(name)
        else:
            self._needed.add(name)

    @property
    def changes(self) -> list[str]:
        """Knobs in which the smallest assignment still differs from the control."""
        return [name for name in self.smallest if self._differs(name)]

    def _smaller(self) -> Iterator[tuple[str, dict[str, Value]]]:
        candidates = [name for name in self.changes if name not in self._needed]
        for name in sorted(candidates, key=lambda name: self._effects.get(name, 0.0)):
            value = self._space.knobs[name].control
            if spelt(self.smallest[name]) != spelt(value):
                yield name, self._space.complete({**self.smallest, name: value})

    def _differs(self, name: str) -> bool:
        value = self._space.knobs[name].control
        return spelt(self.smallest[name]) != spelt(value)
