"""A kernel's tune as a study: the samplers, ledger, verdicts and MLflow of endpoint trials.

The folder holds the ledger, Optuna's journal, the evidence, and MLflow's store. It may hold tunes
of several ops, cases and devices; each is continued where it was interrupted.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernels
from kernels import Case, Ground, KernelTrial, TuneResult, WorkerSettings
from kernels.space import Value as MetaValue
from tuner.identity import sha256_of
from tuner.kernel_records import (
    DEEP,
    EXACTNESS,
    QUICK,
    STARTUP,
    Comparison,
    Place,
    kernel_gates,
    kernel_identity,
    kernel_lane,
    kernel_record,
    trial_of_record,
)
from tuner.kernel_space import KernelSpace
from tuner.ledger import Ledger, TrialRecord
from tuner.scoring import constraints_of
from tuner.search import Outcome, Proposal, SamplerName, Search
from tuner.tracking import Tracker
from tuner.verdict import Code, Verdict

CONSTRAINTS = (STARTUP, EXACTNESS)
"""What the sampler is told beside the time; how fast it is says the time itself."""

MOST_ATTEMPTS = 3
"""How often a configuration whose worker could not start is tried."""


class KernelStudy:
    """Proposes configurations to `kernels.tune`, and keeps what it is told of them.

    `earlier` are the trials that the folder holds of exactly this ground: they are not asked
    again. `trials` bounds all trials, those included. The candidate's default configuration is
    the control and comes first.
    """

    def __init__(
        self,
        folder: Path,
        ground: Ground,
        *,
        sampler: SamplerName = "tpe",
        seed: int = 0,
        trials: int | None = None,
        only: Mapping[str, Sequence[MetaValue]] | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        self.folder = folder
        self.ground = ground
        self.ledger = Ledger(folder / "ledger.jsonl")
        self._most = trials
        space = KernelSpace.of(ground, only)
        self._control = space.control().assignment
        self._search = Search(
            space,
            storage=str(folder / "optuna.journal"),
            name=f"{space.name}/{sha256_of([kernel_identity(ground, {}).sha, only or {}])[:12]}",
            seed=seed,
            sampler=sampler,
            direction="minimize",
            enqueue=[self._control],
        )
        lane = kernel_lane(ground)
        label = f"{ground.op.name} {ground.case.name} · {ground.identity['device']}"
        self._tracker = Tracker(tracking_uri, folder, folder.name, lane, lane_label=label)
        self._attempts: dict[str, list[TrialRecord]] = {}
        for record in self.ledger:
            self._attempts.setdefault(record.identity.sha, []).append(record)
        for record in self.ledger:  # of which MLflow may have missed some
            control = self._attempts.get(record.control_sha or "", [None])[-1]
            self._tracker.record(record, folder / record.directory, control)
        self._search.reconcile(self._finished())
        self.earlier = tuple(
            trial_of_record(record, number) for number, record in enumerate(self._settled())
        )
        self._asked = len(self.earlier)
        self._open: Proposal | None = None

    def ask(self) -> dict[str, Any] | None:
        """The next configuration; None when the space or the number of trials is exhausted."""
        if self._most is not None and self._asked >= self._most:
            return None
        self._open = self._search.ask()
        if self._open is None:
            return None
        self._asked += 1
        return dict(self._open.assignment)

    def tell(self, trial: KernelTrial) -> None:
        """Keep the finished trial of the configuration that was asked for last."""
        if self._open is None:
            raise ValueError(f"trial {trial.number} was not asked for by this study")
        proposal, self._open = self._open, None
        record = self._record(trial, QUICK, proposal.hypothesis, self._beside_control(trial))
        if record.verdict is Verdict.INVALID:
            self._search.tell_invalid(proposal.number)
            if record.attempt < MOST_ATTEMPTS:
                self._search.requeue(proposal.assignment)
            return
        outcome = _outcome(record)
        self._search.tell(proposal.number, outcome.value, outcome.constraints)

    def finish(self, result: TuneResult) -> None:
        """Keep what the deep checks found: who failed there, and the winner, accepted if it gains.

        The winner must be faster than the fastest separate steps, with its whole interval.
        """
        best = result.best
        beside = (
            None
            if result.separate_us is None
            else Comparison("the separate steps", result.separate_us, result.separate_us)
        )
        for trial in result.trials:
            known = self._last(trial.config)
            if known is not None and trial.status != trial_of_record(known, 0).status:
                self._record(trial, DEEP, "Proved with many repeats, as one of the fastest", beside)
        if best is not None and result.deep is not None:
            seconds = best.seconds + result.deep.seconds
            proven = replace(best, reason=result.deep.reason, seconds=seconds)
            self._record(proven, DEEP, "Proved with many repeats, as the fastest", beside)
        counts = {"counts": result.counts(), "best": best.to_json() if best else None}
        self._tracker.finish(json.dumps(counts, indent=2))

    def _record(
        self, trial: KernelTrial, rung: str, hypothesis: str, beside: Comparison | None
    ) -> TrialRecord:
        """Write the attempt: to its folder, the ledger, and then MLflow."""
        identity = kernel_identity(self.ground, dict(trial.config))
        before = self._attempts.setdefault(identity.sha, [])
        is_control = dict(trial.config) == self._control
        code = Code.GAIN_UNPROVEN if rung == DEEP else Code.TOO_SLOW
        record = kernel_record(
            self.ground,
            trial,
            kernel_gates(trial, rung, beside=beside, speed_code=code),
            Place(
                study=self.folder.name,
                number=before[0].number if before else self._next_number(),
                attempt=len(before) + 1,
                role="control" if is_control else "candidate",
                hypothesis=hypothesis,
            ),
            control_sha=None if is_control else kernel_identity(self.ground, self._control).sha,
            host=platform.node(),
        )
        evidence = self.folder / record.directory
        evidence.mkdir(parents=True, exist_ok=True)
        (evidence / "identity.json").write_text(identity.model_dump_json(indent=2))
        (evidence / "trial.json").write_text(json.dumps(trial.to_json(), indent=2))
        self.ledger.append(record)
        before.append(record)
        self._tracker.record(record, evidence, self._last(self._control))
        return record

    def _next_number(self) -> int:
        return max((record.number for record in self.ledger), default=-1) + 1

    def _beside_control(self, trial: KernelTrial) -> Comparison | None:
        control = self._last(self._control)
        if control is None or dict(trial.config) == self._control:
            return None
        known = trial_of_record(control, 0)
        if known.us is None:
            return None
        return Comparison("the default configuration", known.us, known.high_us or known.us)

    def _last(self, config: Mapping[str, Any]) -> TrialRecord | None:
        """The last attempt at a configuration on this ground."""
        attempts = self._attempts.get(kernel_identity(self.ground, dict(config)).sha)
        return attempts[-1] if attempts else None

    def _settled(self) -> list[TrialRecord]:
        """The last attempt of every trial on exactly this ground that says something."""
        return [
            attempts[-1]
            for sha, attempts in self._attempts.items()
            if attempts[-1].verdict is not Verdict.INVALID
            and sha == kernel_identity(self.ground, attempts[-1].assignment).sha
        ]

    def _finished(self) -> dict[int, Outcome]:
        """Of the proposals that were asked and not told, those that the ledger has."""
        found = {}
        for proposal in self._search.pending():
            record = self._last(proposal.assignment)
            if record is not None and record.verdict is not Verdict.INVALID:
                found[proposal.number] = _outcome(record)
        return found


def tune_in(
    folder: Path,
    op: str,
    case: str | Case,
    *,
    candidate: str | None = None,
    sampler: SamplerName = "tpe",
    seed: int = 0,
    trials: int | None = None,
    only: Mapping[str, Sequence[MetaValue]] | None = None,
    tracking_uri: str | None = None,
    settings: WorkerSettings | None = None,
    on_trial: Callable[[KernelTrial], None] | None = None,
    **options: Any,
) -> TuneResult:
    """`kernels.tune` as a study in `folder`; called again, it goes on where it was interrupted.

    `trials` counts those of earlier calls too. `options` are further arguments of `kernels.tune`.
    Raises KernelError as that does, and LedgerError for a folder whose ledger is damaged.
    """
    ground = kernels.ground_of(op, case, candidate=candidate, settings=settings)
    study = KernelStudy(
        folder,
        ground,
        sampler=sampler,
        seed=seed,
        trials=trials,
        only=only,
        tracking_uri=tracking_uri,
    )
    result = kernels.tune(
        op,
        ground.case,
        candidate=ground.candidate.name,
        proposer=study,
        earlier=study.earlier,
        settings=settings,
        on_trial=on_trial,
        seed=seed,
        **options,
    )
    study.finish(result)
    return result


def _outcome(record: TrialRecord) -> Outcome:
    return Outcome(trial_of_record(record, 0).us, constraints_of(record, CONSTRAINTS))
