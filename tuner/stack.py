"""The lab's way: one change at a time on the accepted base, then pairs of winners, then stacks.

Each round starts from a base, first the control. Every knob value that the base does not hold is
tried by itself; the changes that passed and gained are tried two by two, best sums first; the best
that came out is the base of the next round, which tries the remaining winners on it. It ends when a
round gains nothing. Slower than a model to find the best, but each trial says what one change does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import Value
from tuner.steering import Territory, key_of

Change = tuple[str, Value]


@dataclass(frozen=True)
class _Result:
    value: float
    feasible: bool


class StackChooser:
    """Plans by what the study has been told; keeps nothing, so it goes on after an interruption."""

    def __init__(self, territory: Territory) -> None:
        self._territory = territory
        self._space = territory.space
        self._control = territory.space.control().assignment

    def choose(self, study: optuna.Study, _trial: FrozenTrial, /) -> dict[str, Value]:
        """The next of the plan that nobody has asked for; the control when the plan is done.

        The steering then looks for something new near the control's place, so a study with budget
        left goes on beyond the plan.
        """
        told = self._told(study)
        if key_of(self._control) not in told:
            return dict(self._control)
        plan = self._plan(told)
        return next((one for one in plan if self._is_open(one)), self._best(told))

    def settled(self, _study: optuna.Study, _trial: FrozenTrial, _values: Sequence[float]) -> None:
        """The plan is read from the study."""

    def _is_open(self, assignment: Mapping[str, Value]) -> bool:
        return self._territory.is_new(assignment) and self._territory.allows(assignment)

    def _told(self, study: optuna.Study) -> dict[str, _Result]:
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        return {
            key_of(self._space.complete(trial.params)): _Result(
                sign * (trial.value or 0.0), all(one <= 0 for one in trial.constraints.values())
            )
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        }

    def _plan(self, told: Mapping[str, _Result]) -> Iterator[dict[str, Value]]:
        base = self._control
        while True:
            singles = list(self._singles(base))
            yield from (assignment for _, assignment in singles)
            best = told[key_of(base)].value if key_of(base) in told else float("-inf")
            gains = self._gains(singles, told, best)
            pairs = list(self._pairs(base, gains))
            yield from pairs
            tried = [base, *(assignment for _, assignment in singles), *pairs]
            following = max(tried, key=lambda one: self._value(one, told))
            if self._value(following, told) <= best or following == base:
                return
            base = following

    def _singles(self, base: Mapping[str, Value]) -> Iterator[tuple[Change, dict[str, Value]]]:
        """Every single change, the knobs of a group after one another."""
        groups = {name: self._space.knobs[name].group for name in base}
        order = {group: at for at, group in enumerate(dict.fromkeys(groups.values()))}
        ranked = sorted(base, key=lambda name: order[groups[name]])
        for assignment in self._territory.one_change_away({name: base[name] for name in ranked}):
            name = next(one for one in ranked if assignment.get(one, base[one]) != base[one])
            yield (name, assignment[name]), assignment

    def _gains(
        self,
        singles: Sequence[tuple[Change, dict[str, Value]]],
        told: Mapping[str, _Result],
        best: float,
    ) -> dict[Change, float]:
        gains = {change: self._value(one, told) - best for change, one in singles}
        return {change: gain for change, gain in gains.items() if gain > 0}

    def _pairs(
        self, base: Mapping[str, Value], gains: Mapping[Change, float]
    ) -> Iterator[dict[str, Value]]:
        pairs = [(a, b) for a, b in combinations(gains, 2) if a[0] != b[0]]
        for pair in sorted(pairs, key=lambda pair: -(gains[pair[0]] + gains[pair[1]])):
            yield self._space.complete({**base, **dict(pair)})

    def _value(self, assignment: Mapping[str, Value], told: Mapping[str, _Result]) -> float:
        result = told.get(key_of(assignment))
        return result.value if result is not None and result.feasible else float("-inf")

    def _best(self, told: Mapping[str, _Result]) -> dict[str, Value]:
        known = [self._control]
        known += [
            one for one in self._territory.one_change_away(self._control) if key_of(one) in told
        ]
        return max(known, key=lambda one: self._value(one, told))
