"""Who chooses the next configuration: one of Optuna's samplers, or an order of our own.

A chooser proposes an assignment; `tuner.steering` makes sure that it is allowed and new.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search_spaces import SearchSpace, Value
from search_spaces.knob import Knob

SamplerName = Literal["guided", "tpe", "gp", "nsga2", "nsga3", "random", "exhaustive", "stack"]
SAMPLERS: tuple[str, ...] = get_args(SamplerName)

_SEED_STRIDE = 1_000_003
"""A prime, so that the seeds of different studies' trials do not fall together."""


_POPULATION = 16
"""Optuna's default of 50 is more than most studies of servers have trials."""


class Chooser(Protocol):
    """Proposes the assignment of one trial."""

    def choose(self, study: optuna.Study, trial: FrozenTrial, /) -> dict[str, Value]:
        """An assignment of active knobs; it may be refused or already tried."""

    def settled(self, study: optuna.Study, trial: FrozenTrial, values: Sequence[float], /) -> None:
        """A trial is told; evolutionary samplers keep their generations here."""


def distribution(knob: Knob) -> BaseDistribution:
    """Optuna's form of a knob's domain."""
    if knob.choices is not None:
        return CategoricalDistribution(knob.choices)
    low, high = knob.ends
    if knob.whole:
        return IntDistribution(int(low), int(high), log=knob.log, step=int(knob.step or 1))
    return FloatDistribution(low, high, log=knob.log, step=knob.step)


class OptunaChooser:
    """Draws with an Optuna sampler, conditions honoured knob by knob.

    The sampler is made anew for each trial, seeded by the study's seed and the trial's number, so
    that a study that was interrupted draws what it would have drawn.
    """

    def __init__(self, space: SearchSpace, sampler: SamplerName, seed: int) -> None:
        self._space = space
        self._name = sampler
        self._seed = seed
        self._made: tuple[int, BaseSampler] | None = None

    def choose(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Value]:
        """One draw."""
        sampler = self._sampler(trial.number)
        relative_space = sampler.infer_relative_search_space(study, trial)
        relative = sampler.sample_relative(study, trial, relative_space)
        return self._space.draw(_Draw(sampler, study, trial, relative))

    def settled(self, study: optuna.Study, trial: FrozenTrial, values: Sequence[float]) -> None:
        """Let the sampler keep its books."""
        state = optuna.trial.TrialState.COMPLETE
        self._sampler(trial.number).after_trial(study, trial, state, values)

    def _sampler(self, number: int) -> BaseSampler:
        if self._made is None or self._made[0] != number:
            seed = (self._seed * _SEED_STRIDE + number) % 2**32
            self._made = (number, optuna_sampler(self._name, seed))
        return self._made[1]


def optuna_sampler(name: SamplerName, seed: int) -> BaseSampler:
    """The named sampler of Optuna, seeded; raises ValueError for a name that is not Optuna's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "tpe":
                # Branches of conditional knobs are modelled apart; liars keep batches diverse.
                return optuna.samplers.TPESampler(seed=seed, group=True, constant_liar=True)
            case "gp":
                return optuna.samplers.GPSampler(seed=seed)
            case "nsga2":
                return optuna.samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
            case "nsga3":
                return optuna.samplers.NSGAIIISampler(seed=seed, population_size=_POPULATION)
            case "random":
                return optuna.samplers.RandomSampler(seed=seed)
    raise ValueError(f"{name!r} is not a sampler of Optuna")


class _Draw:
    """Draws values of one trial without recording them, so that the whole can still be changed."""

    def __init__(
        self,
        sampler: BaseSampler,
        study: optuna.Study,
        trial: FrozenTrial,
        relative: Mapping[str, Any],
    ) -> None:
        self._sampler = sampler
        self._study = study
        self._trial = trial
        self._relative = relative

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self._value(name, CategoricalDistribution(choices))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._value(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._value(name, FloatDistribution(low, high, log=log, step=step)))

    def _value(self, name: str, domain: BaseDistribution) -> Any:
        if name in self._relative:
            return self._relative[name]
        return self._sampler.sample_independent(self._study, self._trial, name, domain)


class ExhaustiveChooser:
    """Every configuration once, the control first and then in the space's order.

    Raises BadValue when the space has a continuous range.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._rest = space.enumerate()
        self._control = space.control().assignment

    def choose(self, _study: optuna.Study, _trial: FrozenTrial) -> dict[str, Value]:
        """The next in order."""
        return next(self._rest, self._control)

    def settled(self, _study: optuna.Study, _trial: FrozenTrial, _values: Sequence[float]) -> None:
        """An order that is fixed learns nothing."""
