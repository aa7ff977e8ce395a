"""What is known of a running study, folded from its events: the state behind the live view."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from tuner.events import (
    Event,
    GateFinished,
    GateProgress,
    Notice,
    StudyFinished,
    StudyStarted,
    TrialFinished,
    TrialStarted,
)

NOTICES_KEPT = 4
TRIALS_KEPT = 8


@dataclass
class Running:
    """A trial that is on devices now."""

    started: TrialStarted
    rung: str = "startup"
    gate: str = "launch"
    done: int = 0
    total: int = 0
    tok_s: float | None = None
    passed: int = 0

    @property
    def place(self) -> str:
        """Host and devices."""
        return " ".join((self.started.host or "this host", *self.started.devices))


@dataclass
class Best:
    """The fastest accepted identity so far."""

    number: int | None
    tok_s: float
    low: float | None
    high: float | None


@dataclass
class Board:
    """Folds events one after another; holds what is needed to draw, and nothing that grows."""

    study: StudyStarted | None = None
    end: StudyFinished | None = None
    running: dict[int, Running] = field(default_factory=dict)
    recent: list[TrialFinished] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    best: Best | None = None
    _engine_s: float = 0.0
    _engine_trials: int = 0

    def fold(self, event: Event) -> None:
        """Take one event in; an event of a trial that is not known is no error."""
        match event:
            case StudyStarted():
                self._study_started(event)
            case TrialStarted():
                self.running[event.number] = Running(event)
            case GateProgress() | GateFinished():
                self._gate_moved(event)
            case TrialFinished():
                self._trial_finished(event)
            case StudyFinished():
                self.end = event
                self.running.clear()
            case Notice():
                self.notices = [*self.notices, event][-NOTICES_KEPT:]

    @property
    def finished(self) -> int:
        """Trials in the ledger that count against the budget, those of earlier runs too."""
        return (self.study.finished if self.study else 0) + sum(self.verdicts.values())

    def remaining_s(self, now_s: float | None = None) -> float | None:
        """Estimated seconds until the budget is spent; None while no trial has ended.

        The pace of the trials of this run that ended, as many at a time as run now.
        """
        if self.study is None or not self._engine_trials:
            return None
        moment = time.time() if now_s is None else now_s
        left = max(self.study.trials - self.finished, 0)
        pace_s = self._engine_s / self._engine_trials
        abreast = max(len(self.running), 1)
        spent = sum(min(moment - run.started.at_s, pace_s) for run in self.running.values())
        return max(left * pace_s - spent, 0.0) / abreast

    def _study_started(self, event: StudyStarted) -> None:
        self.study = event
        if event.best_tok_s is not None:
            self.best = Best(event.control, event.best_tok_s, event.best_low, event.best_high)

    def _gate_moved(self, event: GateProgress | GateFinished) -> None:
        run = self.running.get(event.number)
        if run is None:
            return
        run.rung, run.gate = event.rung, event.gate
        if isinstance(event, GateProgress):
            run.done, run.total = event.done, event.total
        else:
            run.done, run.total = 0, 0
            run.tok_s = run.tok_s if event.tok_s is None else event.tok_s
            run.passed += event.status == "passed"

    def _trial_finished(self, event: TrialFinished) -> None:
        self.running.pop(event.number, None)
        self.recent = [*self.recent, event][-TRIALS_KEPT:]
        if not event.will_retry:
            self.verdicts[event.verdict] += 1
        if event.code is not None:
            self.codes[event.code] += 1
        if event.seconds > 0:
            self._engine_s += event.seconds
            self._engine_trials += 1
        if event.verdict == "accepted" and event.tok_s is not None:
            self.best = Best(event.number, event.tok_s, event.low, event.high)
