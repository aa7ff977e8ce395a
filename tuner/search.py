"""The search: what to try next, and what was learned, over an Optuna study by ask and tell.

The Optuna study is the durable state. Everything else here (what was asked, what is queued) is read
back from it, so a search can be dropped at any moment and made again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from search_spaces import SearchSpace, Value
from search_spaces.knob import spelt
from tuner.choosers import (
    Chooser,
    ExhaustiveChooser,
    OptunaChooser,
    SamplerName,
    distribution,
)
from tuner.guided import UNMEASURED, GuidedChooser
from tuner.stack import StackChooser
from tuner.steering import Exhausted, SteeringSampler, Territory

__all__ = ["Direction", "Outcome", "Proposal", "SamplerName", "Search"]

Direction = Literal["maximize", "minimize"]

_ORIGIN = "origin"
_HYPOTHESIS = "hypothesis"
_QUEUED = "queued"  # the whole assignment of a queued trial, frozen knobs included


@dataclass(frozen=True)
class Proposal:
    """One assignment to try, under the number of its Optuna trial."""

    number: int
    assignment: dict[str, Value]
    hypothesis: str


@dataclass(frozen=True)
class Outcome:
    """What a finished trial told: its value (None: nothing measured) and all its constraints."""

    value: float | Sequence[float] | None
    constraints: Mapping[str, float]


class Search:
    """Asks for configurations of a space and learns from what it is told.

    Never proposes an assignment that was asked before, except by `again` and `requeue`, and never
    one that the space refuses, except one that the user named.

    Args:
        space: what may vary.
        storage: a file for Optuna's journal, a database URL, or an Optuna storage.
        name: the Optuna study's name; a study of that name in the storage is continued.
        seed: decides every draw, together with what was told before it.
        sampler: who chooses; see `tuner.choosers`.
        direction: "maximize" or "minimize", or one of these per objective.
        enqueue: assignments (values of some knobs) to try first, in order.
        facts: what is known beside the knobs, for rules that reopen with new evidence.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        storage: str | BaseStorage,
        name: str,
        seed: int,
        sampler: SamplerName = "tpe",
        direction: Direction | Sequence[Direction] = "maximize",
        enqueue: Sequence[Mapping[str, Value]] = (),
        facts: Mapping[str, Value] | None = None,
    ) -> None:
        self.space = space
        self._territory = Territory(space, facts or {})
        self._sampler_name = sampler
        chooser = _chooser(self._territory, sampler, seed)
        directions = [direction] if isinstance(direction, str) else list(direction)
        self._study = optuna.create_study(
            storage=_storage(storage),
            study_name=name,
            sampler=SteeringSampler(self._territory, chooser, seed),
            directions=directions,
            load_if_exists=True,
        )
        self._control = space.control().assignment
        self._open: dict[int, Trial] = {}
        self._named = [space.configure(assignment).assignment for assignment in enqueue]
        for trial in self._study.get_trials(deepcopy=False):
            if self._is_drawn(trial):
                self._territory.take(self._assignment(trial))
            elif trial.state == TrialState.RUNNING:  # the process died before it was drawn
                self._study.tell(trial.number, state=TrialState.FAIL)

    @property
    def study(self) -> optuna.Study:
        """The Optuna study, for reports; telling it directly bypasses the search."""
        return self._study

    # Asking.

    def ask(self) -> Proposal | None:
        """The next proposal: what is queued first. None when a finite space is exhausted."""
        while self._named:
            self._queue(self._named.pop(0), "named", "Named by the user")
        queued = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not queued and self._territory.is_exhausted():
            return None
        trial = self._study.ask()
        try:
            return self._proposal(trial)
        except Exhausted:
            self._study.tell(trial, state=TrialState.FAIL)
            return None

    def ask_batch(self, most: int) -> list[Proposal]:
        """Up to `most` proposals, all different, for hosts that work at the same time."""
        asked: list[Proposal] = []
        while len(asked) < most and (proposal := self.ask()) is not None:
            asked.append(proposal)
        return asked

    def again(self, assignment: Mapping[str, Value]) -> Proposal:
        """A proposal for exactly this assignment, now, whether or not it was asked before."""
        values = self.space.configure(assignment).assignment
        attributes = {
            _ORIGIN: "again",
            _QUEUED: values,
            _HYPOTHESIS: self._hypothesis(values, "Asked for again"),
        }
        # The queue is first in, first out; what waits there already must not come instead.
        waiting = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        self._study.enqueue_trial(self._drawn(values), user_attrs=attributes)
        for _ in range(len(waiting)):
            trial = self._study.ask()
            if trial.user_attrs == attributes:
                return self._proposal(trial)
            self._requeue_behind(trial)
        return self._proposal(self._study.ask())

    def _requeue_behind(self, trial: Trial) -> None:
        """Put a queued trial that came up too early at the end of the queue."""
        self._study.enqueue_trial(
            self._drawn(trial.user_attrs[_QUEUED]), user_attrs=trial.user_attrs
        )
        self._study.tell(trial, state=TrialState.FAIL)

    def requeue(self, assignment: Mapping[str, Value]) -> None:
        """Try an assignment once more, before anything new is drawn."""
        values = self.space.configure(assignment).assignment
        self._queue(values, "requeued", "Asked for again, its trial was invalid", repeat=True)

    def _queue(
        self, values: dict[str, Value], origin: str, because: str, *, repeat: bool = False
    ) -> None:
        if not repeat and not self._territory.is_new(values):
            return
        self._territory.take(values)
        attributes = {
            _ORIGIN: origin,
            _QUEUED: values,
            _HYPOTHESIS: self._hypothesis(values, because),
        }
        self._study.enqueue_trial(self._drawn(values), user_attrs=attributes)

    def _proposal(self, trial: Trial) -> Proposal:
        values = self.space.draw(trial)
        self._territory.take(values)
        if _HYPOTHESIS not in trial.user_attrs:
            told = len(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
            after = f"after {told} finished trial{'' if told == 1 else 's'}"
            because = f"Chosen by {self._sampler_name} {after}"
            trial.set_user_attr(_ORIGIN, self._sampler_name)
            trial.set_user_attr(_HYPOTHESIS, self._hypothesis(values, because))
        self._open[trial.number] = trial
        return Proposal(trial.number, values, trial.user_attrs[_HYPOTHESIS])

    def _hypothesis(self, values: Mapping[str, Value], because: str) -> str:
        changes = [
            f"{name} {spelt(self._control[name])} → {spelt(value)}"
            if name in self._control
            else f"{name} = {spelt(value)}"
            for name, value in values.items()
            if name not in self._control or spelt(self._control[name]) != spelt(value)
        ]
        return f"{because}: {', '.join(changes) or 'the control itself'}."

    # Telling.

    def learn(self, assignment: Mapping[str, Value], outcome: Outcome) -> None:
        """Warm start: what an earlier trial on the same ground told, as if it had been told here.

        It is not asked again. Raises UnknownKnob or BadValue when it does not fit the space.
        """
        values = self.space.configure(assignment).assignment
        self._check_names(outcome.constraints)
        drawn = self._drawn(values)
        told = self._pessimistic() if outcome.value is None else _several(outcome.value)
        attributes: dict[str, Any] = {_ORIGIN: "learned", _QUEUED: values}
        if outcome.value is None:
            attributes[UNMEASURED] = True
        self._study.add_trial(
            optuna.trial.create_trial(
                params=drawn,
                distributions={name: distribution(self.space.knobs[name]) for name in drawn},
                values=told,
                user_attrs=attributes,
                constraints=dict(outcome.constraints),
            )
        )
        self._territory.take(values)

    def tell(
        self, number: int, value: float | Sequence[float] | None, constraints: Mapping[str, float]
    ) -> None:
        """A trial is complete: its value, and one number per gate, feasible at 0 or less.

        Without a value (it crashed before one was measured) the worst value seen so far is told:
        an infeasible trial teaches by its constraints, and an invented extreme would bend the
        models of the samplers that fit values. A trial that was told before is left as it is.

        Raises ValueError when the names of the constraints differ from those of the trials before:
        samplers compare trials constraint by constraint.
        """
        frozen = self._frozen(number)
        if frozen.state.is_finished():
            return
        self._check_names(constraints)
        trial = self._open.pop(number, None) or Trial(self._study, frozen._trial_id)
        for name, amount in constraints.items():
            trial.set_constraint(name, amount)
        if value is None:
            trial.set_user_attr(UNMEASURED, True)
        values = self._pessimistic() if value is None else _several(value)
        self._study.tell(number, values, state=TrialState.COMPLETE)

    def tell_invalid(self, number: int) -> None:
        """A trial says nothing about its candidate; no sampler learns from it."""
        self._open.pop(number, None)
        if not self._frozen(number).state.is_finished():
            self._study.tell(number, state=TrialState.FAIL)

    def pending(self) -> list[Proposal]:
        """What was asked and never told, in order: the process that asked may be gone."""
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [
            Proposal(trial.number, self._assignment(trial), trial.user_attrs.get(_HYPOTHESIS, ""))
            for trial in running
        ]

    def reconcile(self, finished: Mapping[int, Outcome]) -> list[Proposal]:
        """After a crash: tell the open trials that finished, give the others up and queue them.

        Returns the proposals that were queued again.
        """
        lost = []
        for proposal in self.pending():
            if proposal.number in finished:
                outcome = finished[proposal.number]
                self.tell(proposal.number, outcome.value, outcome.constraints)
            else:
                self.tell_invalid(proposal.number)
                self.requeue(proposal.assignment)
                lost.append(proposal)
        return lost

    def best(self) -> list[FrozenTrial]:
        """The best feasible trial; with several objectives, those that no other one dominates."""
        return list(self._study.best_trials)

    def _pessimistic(self) -> list[float]:
        told = [values for values in self._told_values() if all(map(math.isfinite, values))]
        worst = []
        for at, direction in enumerate(self._study.directions):
            seen = [values[at] for values in told]
            pick = min if direction == optuna.study.StudyDirection.MAXIMIZE else max
            worst.append(pick(seen) if seen else 0.0)
        return worst

    def _told_values(self) -> Iterator[list[float]]:
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            yield trial.values or []

    def _check_names(self, constraints: Mapping[str, float]) -> None:
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            before = set(trial.constraints)
            if before != set(constraints):
                listed = ", ".join(sorted(before ^ set(constraints)))
                raise ValueError(
                    f"the constraints {listed} are told of some trials and not of others; tell"
                    " every constraint of every trial"
                )
            return

    def _frozen(self, number: int) -> FrozenTrial:
        trials = self._study.get_trials(deepcopy=False)
        if not 0 <= number < len(trials):
            raise ValueError(f"trial {number} was never asked for in {self._study.study_name}")
        return trials[number]

    def _drawn(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values that Optuna knows: frozen knobs are not drawn."""
        return {name: value for name, value in values.items() if not self.space.knobs[name].frozen}

    def _is_drawn(self, trial: FrozenTrial) -> bool:
        """Whether the trial's assignment is known; a process can die between asking and drawing."""
        if _QUEUED in trial.user_attrs:
            return True
        return trial.params.keys() == self._drawn(self.space.complete(trial.params)).keys()

    def _assignment(self, trial: FrozenTrial) -> dict[str, Value]:
        queued: Mapping[str, Value] = trial.user_attrs.get(_QUEUED) or {}
        return self.space.complete({**queued, **trial.params})


def _chooser(territory: Territory, sampler: SamplerName, seed: int) -> Chooser:
    space = territory.space
    if sampler == "guided":
        return GuidedChooser(territory, seed)
    if sampler == "stack":
        return StackChooser(territory)
    if sampler == "exhaustive":
        return ExhaustiveChooser(space)
    if sampler == "gp" and find_spec("torch") is None:
        raise ValueError("the sampler gp needs torch; install the extra 'kernels', or use tpe")
    return OptunaChooser(space, sampler, seed)


def _several(value: float | Sequence[float]) -> list[float]:
    return [float(value)] if isinstance(value, (int, float)) else [float(one) for one in value]


def _storage(storage: str | BaseStorage) -> str | BaseStorage:
    """A URL stays a URL (PostgreSQL, SQLite); any other text is the file of a journal."""
    if isinstance(storage, str) and "://" not in storage:
        return JournalStorage(JournalFileBackend(storage))
    return storage
