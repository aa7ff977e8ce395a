"""The searches that are compared, all behind ask and tell over one table."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from typing import Protocol

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import Trial, TrialState

from benchmarks.search.tables import Outcome, Table, key
from search_spaces import Value
from tuner.search import SamplerName, Search

_MOST_REPEATS = 400
"""A sampler that proposes only what it knows for so many draws has converged."""


class Method(Protocol):
    """Proposes assignments and hears what they did."""

    def ask(self) -> dict[str, Value] | None:
        """The next assignment that was not asked before, or None when it has none."""

    def tell(self, outcome: Outcome) -> None:
        """What the assignment asked last did."""


class Ours:
    """`tuner.search.Search` as a study uses it: the control first, constraints told."""

    def __init__(self, table: Table, seed: int, sampler: SamplerName) -> None:
        self._search = Search(
            table.space, storage=InMemoryStorage(), name=table.name, seed=seed, sampler=sampler
        )
        self._number = -1

    def ask(self) -> dict[str, Value] | None:
        """See `Method`."""
        proposal = self._search.again({}) if self._number < 0 else self._search.ask()
        if proposal is None:
            return None
        self._number = proposal.number
        return proposal.assignment

    def tell(self, outcome: Outcome) -> None:
        """See `Method`."""
        self._search.tell(self._number, outcome.tok_s, outcome.constraints)


class Plain:
    """A sampler of Optuna as peers use it: one value, failures told as 0 or as FAIL.

    The control is enqueued first, as anyone would. A configuration that comes again costs nothing:
    it is answered from what is known.
    """

    def __init__(self, table: Table, sampler: BaseSampler, failure: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._space = table.space
        self._failure = failure
        self._known: dict[str, Outcome] = {}
        self._trial: Trial | None = None
        self._asked = ""
        self._study.enqueue_trial(dict(table.space.control().assignment))

    def ask(self) -> dict[str, Value] | None:
        """See `Method`."""
        for _ in range(_MOST_REPEATS):
            self._trial = self._study.ask()
            assignment = self._space.complete(self._space.draw(self._trial))
            self._asked = key(assignment)
            if self._asked not in self._known:
                return assignment
            self._tell(self._known[self._asked])
        return None

    def tell(self, outcome: Outcome) -> None:
        """See `Method`."""
        self._known[self._asked] = outcome
        self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        assert self._trial is not None
        if outcome.feasible:
            self._study.tell(self._trial, outcome.tok_s)
        elif self._failure == "zero":
            self._study.tell(self._trial, 0.0)
        else:
            self._study.tell(self._trial, state=TrialState.FAIL)


class Random:
    """Every configuration once, in random order, the control first."""

    def __init__(self, table: Table, seed: int) -> None:
        control = table.space.control().assignment
        rest = [values for values in table.space.enumerate() if values != control]
        random.Random(seed).shuffle(rest)
        self._order = iter([control, *rest])

    def ask(self) -> dict[str, Value] | None:
        """See `Method`."""
        return next(self._order, None)

    def tell(self, outcome: Outcome) -> None:
        """Learns nothing."""


NAMES = {
    "guided": "ours (guided)",
    "tpe": "ours (TPE with constraints)",
    "tpe-zero": "plain TPE, failures told as 0",
    "tpe-fail": "plain TPE, failures told as FAIL",
    "gp-zero": "plain GP, failures told as 0",
    "random": "random",
    "kernel_tuner/genetic_algorithm": "Kernel Tuner, genetic algorithm",
    "kernel_tuner/simulated_annealing": "Kernel Tuner, simulated annealing",
    "kernel_tuner/greedy_ils": "Kernel Tuner, greedy iterated local search",
    "kernel_tuner/bayes_opt": "Kernel Tuner, Bayesian optimisation",
    "kernel_tuner/random_sample": "Kernel Tuner, random sample",
}
"""What is compared, and how it is called in the figure."""


def make(name: str, table: Table, seed: int) -> Method:
    """The method called `name`, ready to search `table`."""
    match name:
        case "guided" | "tpe":
            return Ours(table, seed, name)
        case "tpe-zero" | "tpe-fail":
            return Plain(table, optuna.samplers.TPESampler(seed=seed), name.removeprefix("tpe-"))
        case "gp-zero":
            return Plain(table, optuna.samplers.GPSampler(seed=seed), "zero")
        case "random":
            return Random(table, seed)
    raise ValueError(f"no method is called {name!r}; known: {', '.join(NAMES)}")


def outcome_of(table: Table, assignment: Mapping[str, Value]) -> Outcome:
    """What the table says of an assignment."""
    return table.rows[key(assignment)]
