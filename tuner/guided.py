"""Chooses by two models learned from the trials so far: what is fast, and what fails.

A candidate's merit is the improvement that is expected of it times the probability that it passes
every gate (M. A. Gelbart, J. Snoek and R. P. Adams, "Bayesian optimization with unknown
constraints", UAI 2014). Rates of configurations that failed a later gate count: they are fast all
the same, and say which changes pay. Candidates are the neighbours of the best, the best with
several changes at once, and draws from the whole space.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import Value
from tuner.changes import Changes, Matrix
from tuner.failure_model import FailureModel
from tuner.rate_model import RateModel
from tuner.steering import Territory, key_of

UNMEASURED: Final = "unmeasured"
"""User attribute of a trial that was told without a value: its value is made up."""

_PROBE_EVERY: Final = 3
"""Every so many trials try one promising change by itself, suspected or not. Only this clears a
change that always came with another that fails."""
_PROBE_CAUTION: Final = 0.1
_ELITE: Final = 5
_STEPS: Final = (1, 2, 3, 4)
_PER_STEP: Final = 3
_CLIMBS: Final = 6
_CLIMB_STEPS: Final = 8
_ANYWHERE: Final = 60
_LATEST: Final = 1_500
"""Trials that the models learn from; with more, asking would take longer than it saves."""


class GuidedChooser:
    """Needs few trials; several objectives are weighed anew for each of them."""

    def __init__(self, territory: Territory, seed: int) -> None:
        self._territory = territory
        self._space = territory.space
        self._changes = Changes(territory.space)
        self._control = territory.space.control().assignment
        self._seed = seed
        # A finished trial never changes, and describing thousands anew takes longer than learning.
        self._known: dict[int, tuple[dict[str, Value], NDArray[np.float64]]] = {}

    def choose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Value]:
        """The control first; then the candidate of the highest merit."""
        chance = random.Random(f"guided/{self._seed}/{trial.number}")  # noqa: S311
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))[-_LATEST:]
        if not told:
            return dict(self._control)
        described = [self._described(one) for one in told]
        assignments = [assignment for assignment, _ in described]
        feasible = np.array([all(v <= 0 for v in one.constraints.values()) for one in told])
        measured = np.array([UNMEASURED not in one.user_attrs for one in told])
        values = _utilities(told, measured, study.directions, chance)
        items = np.array([row for _, row in described])
        good = [at for at in np.argsort(-values) if feasible[at] and measured[at]]
        elite = [assignments[at] for at in good[:_ELITE]]
        if not measured.any():
            return self._anywhere(chance)
        failures = FailureModel(self._changes, items, ~feasible)
        base = _value_of(self._control, assignments, values, measured)
        rates = self._rates(study, items[measured], values[measured], base)
        best = float(values[good[0]]) if good else base

        def promise(rows: Matrix) -> Matrix:
            safe = np.log1p(-failures.risk(rows) + 1e-9)
            return np.asarray(np.log(rates.expected_improvement(rows, best) + 1e-12) + safe)

        def curiosity(rows: Matrix) -> Matrix:
            mean, deviation = rates.predict(rows)
            safe = np.log1p(-failures.risk(rows) + 1e-9)
            return np.asarray(mean + deviation + _PROBE_CAUTION * safe)

        if trial.number % _PROBE_EVERY == _PROBE_EVERY - 1:
            probe = self._best(self._single_changes(elite), curiosity)
            if probe is not None:
                return probe
        # What is fast and fails may be one change away from what is fast and passes.
        fastest = [assignments[at] for at in np.argsort(-values) if measured[at]][:_ELITE]
        pool = self._climbed(self._candidates(elite, fastest, chance), promise)
        return self._best(pool, promise) or self._anywhere(chance)

    def _best(
        self, pool: Sequence[dict[str, Value]], merit: Callable[[Matrix], Matrix]
    ) -> dict[str, Value] | None:
        """The one of highest merit that is new and not refused."""
        if not pool:
            return None
        ranked = np.argsort(-merit(self._changes.matrix(pool)))
        allowed = (
            pool[at]
            for at in ranked
            if self._territory.is_new(pool[at]) and self._territory.allows(pool[at])
        )
        return next(allowed, None)

    def _climbed(
        self, pool: list[dict[str, Value]], merit: Callable[[Matrix], Matrix]
    ) -> list[dict[str, Value]]:
        """The pool, and what single changes lead to from its best, as long as merit rises."""
        scores = merit(self._changes.matrix(pool))
        grown = list(pool)
        seen = {key_of(values) for values in pool}
        for at in np.argsort(-scores)[:_CLIMBS]:
            here, score = pool[at], float(scores[at])
            for _ in range(_CLIMB_STEPS):
                around = list(self._territory.one_change_away(here))
                if not around:
                    break
                heights = merit(self._changes.matrix(around))
                for values in around:
                    if (key := key_of(values)) not in seen:
                        seen.add(key)
                        grown.append(values)
                top = int(np.argmax(heights))
                if heights[top] <= score:
                    break
                here, score = around[top], float(heights[top])
        return grown

    def settled(self, _study: optuna.Study, _trial: FrozenTrial, _values: Sequence[float]) -> None:
        """Nothing is kept: the models are learned anew from the study."""

    def _described(self, trial: FrozenTrial) -> tuple[dict[str, Value], NDArray[np.float64]]:
        """The trial's assignment, and its changes."""
        if trial.number not in self._known:
            assignment = self._space.complete(trial.params)
            self._known[trial.number] = assignment, self._changes.of(assignment)
        return self._known[trial.number]

    def _rates(self, study: optuna.Study, items: Any, values: Any, base: float) -> RateModel:
        """The model of values; what runs now counts as what is expected of it: batches spread."""
        model = RateModel(items, values, base)
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        waiting = [self._space.complete(one.params) for one in running if one.params]
        if not waiting:
            return model
        rows = self._changes.matrix(waiting)
        means, _ = model.predict(rows)
        return RateModel(np.vstack([items, rows]), np.concatenate([values, means]), base)

    def _single_changes(self, elite: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
        starts = [self._control, *elite[:1]]
        return [values for start in starts for values in self._territory.one_change_away(start)]

    def _candidates(
        self,
        elite: Sequence[Mapping[str, Value]],
        fastest: Sequence[Mapping[str, Value]],
        chance: random.Random,
    ) -> list[dict[str, Value]]:
        starts = [*elite, *fastest] or [self._control]
        found = []
        for start in starts:
            for steps in _STEPS:
                for _ in range(_PER_STEP):
                    values = dict(start)
                    for _ in range(steps):
                        values = self._territory.step(values, chance)
                    found.append(values)
        found += [self._anywhere(chance) for _ in range(_ANYWHERE)]
        return list({key_of(values): values for values in found}.values())

    def _anywhere(self, chance: random.Random) -> dict[str, Value]:
        return self._space.draw(_Dice(chance))


class _Dice:
    """Draws evenly from every domain."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def suggest_categorical(self, _name: str, choices: Sequence[Any]) -> Any:
        return self._chance.choice(choices)

    def suggest_int(
        self, _name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        if log:
            return round(math.exp(self._chance.uniform(math.log(low), math.log(high))))
        return self._chance.randrange(low, high + 1, step)

    def suggest_float(
        self, _name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        if log:
            return math.exp(self._chance.uniform(math.log(low), math.log(high)))
        if step:
            return low + step * self._chance.randrange(math.floor((high - low) / step + 1e-9) + 1)
        return self._chance.uniform(low, high)


def _utilities(
    told: Sequence[FrozenTrial],
    measured: Any,
    directions: Sequence[StudyDirection],
    chance: random.Random,
) -> Any:
    """One number per trial, the larger the better.

    A rate counts by its logarithm. Several objectives are brought to [0, 1] and weighed at random
    for each trial, the worst counting most (J. Knowles, "ParEGO", IEEE Transactions on Evolutionary
    Computation 10, 2006), which leads to the whole front in the course of a study.
    """
    columns = []
    for at, direction in enumerate(directions):
        raw = np.array([(one.values or [0.0])[at] for one in told], dtype=float)
        sign = 1.0 if direction == StudyDirection.MAXIMIZE else -1.0
        positive = bool((raw[measured] > 0).all()) if measured.any() else False
        columns.append(sign * (np.log(np.maximum(raw, 1e-9)) if positive else raw))
    if len(columns) == 1:
        return columns[0]
    scaled = []
    for column in columns:
        seen = column[measured] if measured.any() else column
        spread = float(seen.max() - seen.min()) or 1.0
        scaled.append((column - seen.min()) / spread)
    weights = [chance.expovariate(1.0) for _ in scaled]
    weighed = [weight / sum(weights) * one for weight, one in zip(weights, scaled, strict=True)]
    return np.min(weighed, axis=0) + 0.05 * np.sum(weighed, axis=0)


def _value_of(
    control: Mapping[str, Value],
    assignments: Sequence[Mapping[str, Value]],
    values: Any,
    known: Any,
) -> float:
    """The control's value, or the median where it was not measured."""
    for assignment, value, is_known in zip(assignments, values, known, strict=True):
        if is_known and assignment == control:
            return float(value)
    return float(np.median(values[known]))
