"""A study: draws candidates, sends each up the ladder, keeps every verdict, and knows the best.

The way through this file is the way of a study: the control first, then candidate after candidate
until the budget is spent, the space is exhausted, somebody stops it or the lane turns out broken.
Whatever is settled is in the ledger before anybody else hears of it, so the driver may be killed at
any moment and started again.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from objectives import GateResult
from runners import (
    Backend,
    Device,
    Lease,
    Lost,
    Progress,
    RayBackend,
    Ticket,
    engine_identity,
    plan_launch,
    sweep,
)
from tuner.ascent import Evaluation
from tuner.candidate import (
    Candidate,
    Ground,
    ground_of,
    identity_of,
    lane_label,
    lane_of_study,
    refusal,
    settings_of,
)
from tuner.events import Notice
from tuner.export import write_launch_script
from tuner.identity import sha256_of
from tuner.lane import Lane, what_left_the_lane
from tuner.ledger import Ledger, TrialRecord
from tuner.records import (
    RecordContext,
    gone,
    lost_record,
    raised,
    refused_record,
    trial_record,
)
from tuner.reference import Reference
from tuner.retries import convicted, overtaken, resolution
from tuner.scoring import constraint_names, constraints_of, value_of
from tuner.search import Proposal, Search
from tuner.study_file import StudyFiles, read
from tuner.study_id import study_id
from tuner.summary import StudySummary, summarise
from tuner.telling import (
    Listener,
    gate_of,
    progressed,
    silent,
    study_finished,
    study_started,
    trial_finished,
)
from tuner.tracking import Tracker
from tuner.trial import ControlCheck, TrialOutcome, TrialPlan
from tuner.verdict import Code, Verdict

POLL_S = 0.5


class StudyError(Exception):
    """A study cannot go on; the message says why and what to do."""


class Stop:
    """How somebody outside asks a running study to stop; safe to call from a signal handler."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        """Stop drawing and end the running trials; the next run begins those again."""
        self._asked.set()

    @property
    def asked(self) -> bool:
        """Whether somebody has asked."""
        return self._asked.is_set()


class Study:
    """One study: its documents, its folder, its ledger, and the loop that grows it."""

    def __init__(self, files: StudyFiles) -> None:
        self.files = files
        self.folder = files.folder

    @classmethod
    def load(cls, name: str) -> Study:
        """The study of that name or path. Raises DocumentError with every mistake in its files."""
        return cls(read(name))

    @property
    def name(self) -> str:
        """Its name, as its file gives it."""
        return self.files.study.name

    @property
    def ledger(self) -> Ledger:
        """Every attempt recorded so far. Raises LedgerError if the file is damaged."""
        return Ledger(self.folder / "ledger.jsonl")

    @property
    def trials(self) -> list[TrialRecord]:
        """The last attempt of each trial, by number."""
        return self.ledger.trials

    @property
    def best(self) -> TrialRecord | None:
        """The accepted identity that was never beaten: the last one accepted; None before any."""
        return self.ledger.control

    @property
    def marker(self) -> str:
        """What every process of this study carries in its environment; unique to its folder."""
        return f"{self.name}-{sha256_of(str(self.folder))[:8]}"

    def run(
        self,
        *,
        listen: Listener = silent,
        stop: Stop | None = None,
        backend: Callable[[], Backend] | None = None,
    ) -> StudySummary:
        """Run until the budget is spent, the space exhausted, `stop` asked, or the lane broken.

        Continues where an earlier run stopped and never repeats a settled identity. Trials run on
        Ray unless another `backend` is made here. Raises StudyError if another process runs this
        study or the control itself fails, and EngineFailure, blamed on the user, if the engine or
        the model is missing; nothing was started then.
        """
        facts = engine_identity(self.files.runner)
        _require_launchable(self.files)
        with self._alone():
            for swept in sweep(self.marker):
                left = f"{swept.command} (process {swept.pid})"
                listen(Notice(message=f"Ended what an earlier run had left behind: {left}."))
            make = backend or partial(RayBackend, self.files.study.ray_address)
            with make() as place:
                ground = ground_of(facts, self.files.runner.devices, place.devices)
                return _Run(self, ground, place, listen, stop or Stop()).through()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the study's folder; two drivers would draw and record the same trials twice."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StudyError(
                    f"another process runs the study in {self.folder}; wait for it, or stop it"
                ) from None
            yield


def _require_launchable(files: StudyFiles) -> None:
    """Plan the control's launch and start nothing. Raises LaunchRefused for what is missing."""
    args, env = settings_of(files, files.space.control())
    device = Device(kind=files.runner.devices.kind, index=0, name="", host="")
    nowhere = Lease(devices=(device,), host="")
    plan_launch(
        files.runner, args=args, env=env, lease=nowhere, port=0, directory=files.folder, marker="-"
    ).process_env()


class _Run:
    """One run of a study, from its start to its summary."""

    def __init__(
        self, study: Study, ground: Ground, backend: Backend, listen: Listener, stop: Stop
    ) -> None:
        self.study, self.files, self.folder = study, study.files, study.folder
        self.ground, self.backend, self.listen, self.stop = ground, backend, listen, stop
        self.ledger = study.ledger
        self.began = time.monotonic()
        self.original = self.files.space.control()
        identity = identity_of(self.files, ground, self.original)
        self.lane = Lane(self.ledger, lane_of_study(self.files, identity), ground.engine)
        changed = what_left_the_lane(self.ledger, identity, self.lane.sha)
        if changed is not None:
            raise StudyError(
                f"the {changed} changed since {self.ledger.path} was begun, and old and new trials "
                "cannot be compared; give the study a new file name, or move its folder away"
            )
        self.reference = (
            Reference.load(self._reference_path, identity.sha) if self.lane.control else None
        )
        self.control_checks: dict[str, ControlCheck] = {}
        self.running: dict[Ticket, Candidate] = {}
        self.partial: dict[Ticket, list[GateResult]] = {}
        self.waiting: list[Proposal] = []
        self.ended_because = ""
        self.halted = ""
        self.search = Search(
            self.files.space,
            storage=self.files.study.storage or str(self.folder / "optuna.journal"),
            name=f"{study.name}-{self.lane.sha[:12]}-{study_id(self.folder)}",
            seed=self.files.study.seed,
            sampler=self.files.study.sampler,
            direction=self.files.objective.direction,
            enqueue=self.files.study.enqueue,
            facts=ground.facts,
        )
        self.tracker = Tracker(
            self.files.study.tracking.uri,
            self.folder,
            study.name,
            self.lane.sha,
            lane_label=lane_label(self.files),
            secrets=self.files.runner.secrets,
        )

    @property
    def _reference_path(self) -> Path:
        return self.folder / "reference.json"

    # The loop.

    def through(self) -> StudySummary:
        """The whole run: catch up, the control, the candidates, the summary."""
        self._catch_up()
        self.listen(study_started(self.files, self.lane, self.tracker))
        try:
            while not self.stop.asked:
                while self._may_draw() and (proposal := self._next()) is not None:
                    self._begin(self._candidate(proposal))
                self._halt_if_stranded()
                if not self.running and not self._awaits_devices():
                    break
                self._hear()
        finally:
            self._abandon_running()
        return self._summarise()

    def _may_draw(self) -> bool:
        """Whether another trial may begin now: free devices, and a control to compare with.

        The control runs alone, since candidates need its tokens.
        """
        if self.stop.asked or self.halted or (self.reference is None and self.running):
            return False
        return len(self.running) < self.backend.capacity(self.files.runner.devices).total

    def _next(self) -> Proposal | None:
        """The next proposal: the control while there is none, what is left over, a new draw."""
        if self.reference is None:
            control = self.original.assignment
            left = [proposal for proposal in self.waiting if proposal.assignment == control]
            self.waiting = [p for p in self.waiting if p.assignment != control]
            return left[0] if left else self.search.again(control)
        if self.waiting:
            return self.waiting.pop(0)
        self.ended_because = self._why_draw_no_more()
        if self.ended_because:
            return None
        proposal = self.search.ask()
        if proposal is None:
            self.ended_because = "every configuration of the space has been tried"
        return proposal

    def _why_draw_no_more(self) -> str:
        """The part of the budget that is spent, or nothing. Another attempt costs no new trial."""
        budget = self.files.study.budget
        begun = {trial.number for trial in self.lane.trials if trial.seconds_by_rung}
        begun |= {candidate.number for candidate in self.running.values()}
        if len(begun) >= budget.trials:
            return f"its budget of {budget.trials} trials is spent"
        if budget.minutes and time.monotonic() - self.began > budget.minutes * 60:
            return f"its budget of {budget.minutes:g} minutes is spent"
        return ""

    def _begin(self, candidate: Candidate) -> None:
        """The static rung; and if nothing refuses the candidate there, its way up the others."""
        if candidate.role == "candidate":
            refused = refusal(candidate, self.files, self.ground, self.ledger)
            if refused is not None:
                self._settle(refused_record(self._context(), candidate, *refused))
                return
        plan = self._plan(candidate)
        plan.directory.mkdir(parents=True, exist_ok=True)
        earlier = self.ledger.of_trial(candidate.number)
        again = resolution(earlier, self._attempts) if earlier else None
        ticket = self.backend.submit(
            Evaluation(plan),
            devices=self.files.runner.devices,
            marker=plan.marker,
            avoid_hosts=again.avoid_hosts if again else frozenset(),
        )
        self.running[ticket] = candidate
        self.partial[ticket] = []

    def _hear(self) -> None:
        """One event of the backend, if there is one soon."""
        event = self.backend.next_event(POLL_S)
        if event is None or event.ticket not in self.running:
            return
        candidate = self.running[event.ticket]
        if isinstance(event, Progress):
            finished = gate_of(event.payload)
            if finished is not None:
                self.partial[event.ticket].append(finished)
            self.listen(progressed(candidate, event.payload, self.lane.control))
            return
        del self.running[event.ticket]
        gates = self.partial.pop(event.ticket)
        if isinstance(event, Lost):
            why = gone(event.reason, event.host)
            self._settle(lost_record(self._context(), candidate, gates, why, event.host))
        elif event.error is not None:
            why, host = raised(event.error), event.lease.host
            self._settle(lost_record(self._context(), candidate, gates, why, host))
        else:
            self._finish(candidate, event.result, event.lease)

    def _awaits_devices(self) -> bool:
        """Whether trials are left to run and every device is in quarantine for the time being."""
        none_now = self.backend.capacity(self.files.runner.devices).total == 0
        done = self.stop.asked or self.halted or (not self.waiting and self._why_draw_no_more())
        return none_now and not done

    def _halt_if_stranded(self) -> None:
        """End the study when no device will ever be free again; the next run begins what waits."""
        why = self.backend.stranded(self.files.runner.devices)
        if why is not None and not self.halted:
            self._halt(why)
            self._abandon_running()

    def _halt(self, why: str) -> None:
        """Draw nothing more, for a reason that a person has to know."""
        self.halted = why
        self.listen(Notice(level="error", message=f"Stopping: {why}."))

    def _finish(self, candidate: Candidate, outcome: TrialOutcome, lease: Lease) -> None:
        record = trial_record(self._context(), candidate, outcome)
        outcome.write_artifacts(self.folder / record.directory, candidate.identity)
        self.control_checks.update(outcome.control_checks)
        is_sick = record.failure is not None and record.failure.blame == "device"
        sick = record.failure.reason if record.failure and is_sick else outcome.left_behind
        for device in lease.devices if sick else ():
            self.backend.quarantine(device, sick)
        self._settle(record)
        if outcome.reference is not None and record.verdict is Verdict.ACCEPTED:
            # After the ledger: a reference without its control's record would be nobody's.
            self.reference = outcome.reference
            self.reference.save(self._reference_path)

    # What a settled trial means to everybody.

    def _settle(self, record: TrialRecord) -> None:
        """Make a record known: to the disk first, then to sampler, tracking and screen."""
        control = self.lane.control
        earlier = self.ledger.of_trial(record.number)
        record = convicted(overtaken(record, control), earlier, self._attempts)
        self.ledger.append(record)
        self._tell_search(record)
        self.tracker.record(record, self.folder / record.directory, control)
        retry = self._may_retry(record)
        self.listen(trial_finished(record, retry))
        if retry:
            again = Proposal(record.number, dict(record.assignment), record.hypothesis)
            self.waiting.insert(0, again)
            return
        why = record.rejection.reason if record.rejection else "it did not finish"
        if record.role == "control" and record.verdict is not Verdict.ACCEPTED:
            gate = record.rejection.gate if record.rejection else "to finish"
            raise StudyError(f"the control fails {gate}, so nothing can be compared: {why}")
        if record.rejection is not None and record.rejection.code is Code.LANE_UNHEALTHY:
            self._halt(f"the lane is unhealthy: {why.rstrip('.')}")

    def _may_retry(self, record: TrialRecord) -> bool:
        """Whether a trial is tried again: if invalid, boundedly, unless it would only repeat."""
        again = resolution(self.ledger.of_trial(record.number), self._attempts)
        return again is not None and again.retry

    def _stays_open(self, record: TrialRecord) -> bool:
        """Whether this run or a later one begins the trial again; in a sick lane, a later one."""
        rejection = record.rejection
        is_lanes = rejection is not None and rejection.code is Code.LANE_UNHEALTHY
        return is_lanes or self._may_retry(record)

    @property
    def _attempts(self) -> int:
        return self.files.study.max_attempts

    def _tell_search(self, record: TrialRecord) -> None:
        """Tell the sampler of a settled trial; what may be tried again stays asked for."""
        if record.verdict is not Verdict.INVALID:
            names = constraint_names(self.files.objective)
            told = record
            if record.duplicate_of is not None:
                told = self.ledger.trial(record.duplicate_of) or record
            value = value_of(told, self.files.objective)
            self.search.tell(record.number, value, constraints_of(told, names))
        elif not self._stays_open(record):
            self.search.tell_invalid(record.number)

    def _catch_up(self) -> None:
        """Tell the projections what the ledger knows and they do not, after a crash or an outage.

        What was asked and never settled is begun again, under its old number.
        """
        pending = {proposal.number: proposal for proposal in self.search.pending()}
        for record in self.lane.trials:
            if record.number in pending and not self._stays_open(record):
                self._tell_search(record)
                del pending[record.number]
        self.waiting = [pending[number] for number in sorted(pending)]
        by_sha = {record.identity.sha: record for record in self.ledger}
        for record in self.ledger:
            control = by_sha.get(record.control_sha or "")
            self.tracker.record(record, self.folder / record.directory, control)

    def _abandon_running(self) -> None:
        """Stop the running trials; each stays asked for, so that the next run begins it again."""
        for ticket, candidate in list(self.running.items()):
            self.backend.cancel(ticket)
            message = f"Trial {candidate.number} was stopped; the next run begins it again."
            self.listen(Notice(message=message, number=candidate.number))
        self.running.clear()

    def _summarise(self) -> StudySummary:
        best = self.lane.control
        because = "it was asked to stop" if self.stop.asked else self.halted or self.ended_because
        summary = summarise(
            self.study.name,
            self.lane,
            because=because or "nothing was left to do",
            interrupted=self.stop.asked,
            script=write_launch_script(best, self.folder / "launch.sh") if best else None,
            seconds=time.monotonic() - self.began,
        )
        self.tracker.finish(summary.model_dump_json(indent=1))
        waiting = self.tracker.waiting
        self.listen(study_finished(self.files, summary, len(self.lane.trials), waiting))
        return summary

    # What a candidate needs to be told.

    def _candidate(self, proposal: Proposal) -> Candidate:
        configuration = self.files.space.configure(proposal.assignment)
        args, env = settings_of(self.files, configuration)
        is_control = self.reference is None
        control = self.lane.control
        attempts = (self.folder / "trials" / f"{proposal.number:04}").glob("attempt-*")
        return Candidate(
            number=proposal.number,
            attempt=sum(1 for _ in attempts) + 1,
            role="control" if is_control else "candidate",
            hypothesis="The reference: what every candidate must equal, and beat."
            if is_control
            else proposal.hypothesis,
            configuration=configuration,
            args=args,
            env=env,
            identity=identity_of(self.files, self.ground, configuration),
            control_sha=control.identity.sha if control and not is_control else None,
        )

    def _plan(self, candidate: Candidate) -> TrialPlan:
        control = self.lane.control
        settings = control.identity.configuration if control else {"args": {}, "env": {}}
        attempt = f"attempt-{candidate.attempt}"
        return TrialPlan(
            marker=f"{self.study.marker}/{candidate.number}/{candidate.attempt}",
            directory=self.folder / "trials" / f"{candidate.number:04}" / attempt,
            runner=self.files.runner,
            objective=self.files.objective,
            role=candidate.role,
            args=dict(candidate.args),
            env=dict(candidate.env),
            identity_sha=candidate.identity.sha,
            control_sha=candidate.control_sha or candidate.identity.sha,
            control_args=settings["args"],
            control_env=settings["env"],
            control_rates=self.lane.control_rates,
            reference=self.reference,
            control_checks=dict(self.control_checks),
            failure_repeats=tuple(self.ledger.failure_repeats()),
            history={r.rung: self.lane.history(r.rung) for r in self.files.objective.ladder},
        )

    def _context(self) -> RecordContext:
        return RecordContext(
            study=self.study.name, lane=self.lane.sha, objective=self.files.objective
        )
