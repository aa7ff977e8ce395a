"""How likely a configuration is to fail, learned from those that failed and those that did not.

The model is a noisy-OR (J. Pearl, "Probabilistic Reasoning in Intelligent Systems", 1988, section
4.3.2) over the changes to the control and the pairs of these: every possible cause that is present
brings the failure about by itself with its own probability. Those probabilities are learned by
expectation maximisation: a failure's blame is shared between its possible causes, and each cause's
probability is its blame over the number of times it was present.

Two properties make it fit engines, where a setting breaks or it does not. A cause that was present
in a configuration that worked is cleared. And each failure points at few suspects, which can be
named: it explains itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tuner.changes import Changes, Matrix

_PRIOR_ITEM: Final = 0.12
"""Before anything is known: about one change in eight fails, as in the lab's ledger."""
_PRIOR_PAIR: Final = 0.03
_PRIOR_WEIGHT: Final = 1.0
"""How many observations the prior counts for: few, as a setting breaks an engine or does not."""
_CLEARED: Final = 1e-4
_CEILING: Final = 0.97
_ROUNDS: Final = 15
_REMEMBERED: Final = 400
"""Failures from which blame is learned; the latest ones. More take longer and say the same."""


@dataclass(frozen=True)
class Suspect:
    """A possible cause that a configuration holds, and the probability that it is one."""

    name: str
    probability: float
    failures: int


class FailureModel:
    """Probabilities of failure for rows of changes.

    Args:
        changes: how assignments are described.
        items: rows of the configurations tried, shape (n, items).
        failed: which of them failed, shape (n,).
    """

    def __init__(self, changes: Changes, items: Matrix, failed: NDArray[np.bool_]) -> None:
        self._changes = changes
        worked = self._causes(items[~failed])
        failures = self._causes(items[failed][-_REMEMBERED:])
        prior = np.concatenate(
            [
                np.full(len(changes), _PRIOR_ITEM),
                np.full(failures.shape[1] - len(changes), _PRIOR_PAIR),
            ]
        )
        self._cleared: NDArray[np.bool_] = np.asarray(worked.any(axis=0))
        self._failures = failures.sum(axis=0)
        self._probability = self._learn(prior, failures)

    def _causes(self, items: Matrix) -> Matrix:
        return np.hstack([items, self._changes.pairs(items)])

    def _learn(self, prior: Matrix, failures: Matrix) -> Matrix:
        probability = np.where(self._cleared, _CLEARED, prior)
        # What is cleared stays cleared, and what never failed keeps its prior: learn the rest.
        open_ = ~self._cleared & (self._failures > 0)
        present = failures[:, open_]
        learned, start, seen = probability[open_], prior[open_], self._failures[open_]
        for _ in range(_ROUNDS if present.size else 0):
            active = present * learned
            fails = np.maximum(1.0 - np.prod(1.0 - active, axis=1, keepdims=True), 1e-9)
            blame = (active / fails).sum(axis=0)
            learned = np.clip(
                (start * _PRIOR_WEIGHT + blame) / (_PRIOR_WEIGHT + seen), 1e-5, _CEILING
            )
        probability[open_] = learned
        return probability

    def risk(self, items: Matrix) -> Matrix:
        """The probability that each row fails."""
        return np.asarray(1.0 - np.exp(self._causes(items) @ np.log1p(-self._probability)))

    def suspects(self, row: Matrix, most: int = 3) -> list[Suspect]:
        """The likeliest causes in one row, of those that were ever seen to fail."""
        causes = self._causes(row.reshape(1, -1))[0]
        ranked = np.argsort(-(causes * self._probability))
        found = [at for at in ranked if causes[at] and self._failures[at] and not self._cleared[at]]
        return [
            Suspect(self._name(at), float(self._probability[at]), int(self._failures[at]))
            for at in found[:most]
        ]

    def _name(self, at: int) -> str:
        own = len(self._changes)
        return self._changes.names[at] if at < own else self._changes.pair_name(at - own)
