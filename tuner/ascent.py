"""The way up the ladder: a candidate's, gate by gate, and the control's, who becomes the reference.

Runs inside the actor that holds the lease. It brings back what was seen and decides nothing: the
verdict is given by `tuner.verdict.judge` from that evidence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from objectives import (
    ABPlan,
    CanaryBaseline,
    Endpoint,
    GateHistory,
    GateKind,
    GateResult,
    GateStatus,
    Oracle,
    PlannedGate,
    Rate,
    Rung,
    Session,
    ab_plan,
    gate_of_plan,
    learn_canary,
    learn_noise,
    order_gates,
    record_oracle,
    record_quality,
    self_parity,
    self_parity_gate,
)
from runners import EngineFailure, Failure, LaunchRefused, Lease, Report
from tuner.bench import Bench
from tuner.gates import Gates
from tuner.observer import Observer
from tuner.reference import Reference
from tuner.trial import CANDIDATE, CONTROL, ControlCheck, Role, TrialOutcome, TrialPlan
from tuner.verdict import CORRECTNESS, Code


@dataclass(frozen=True)
class Evaluation:
    """The task that the backend runs on a lease: the whole trial, from its plan."""

    plan: TrialPlan

    def __call__(self, lease: Lease, report: Report) -> TrialOutcome:
        """Take the plan's trial up the ladder; engine failures are part of the outcome."""
        observer = Observer(lease, report)
        bench = Bench(self.plan, lease, observer)
        try:
            if self.plan.reference is None:
                establish(self.plan, bench, observer)
            else:
                Ascent(self.plan, self.plan.reference, bench, observer).climb()
        except EngineFailure as error:
            observer.outcome.failure = error.failure
        except LaunchRefused as error:
            observer.outcome.failure = _refused(error)
        return observer.finished()


class Ascent:
    """A candidate's way: rung after rung while nothing fails, then what only a control can say."""

    def __init__(
        self, plan: TrialPlan, reference: Reference, bench: Bench, observer: Observer
    ) -> None:
        self._plan = plan
        self._objective = plan.objective
        self._gates = Gates(plan, reference, observer)
        self._control_gates = Gates(plan, reference, observer, CONTROL)
        self._bench = bench
        self._observer = observer

    def climb(self) -> None:
        """Run the ladder. Raises EngineFailure when the engine fails on the way."""
        with self._bench.serving(CANDIDATE) as endpoint:
            if self._observer.outcome.identity_drift:
                return
            passed: dict[str, int] = {}
            for rung in self._objective.ladder:
                if not self._pass_rung(rung, endpoint, passed):
                    break
        failed, rate = self._observer.failed, self._observer.outcome.rate
        if failed is not None and failed.kind in CORRECTNESS:
            self._ask_control(failed)
        elif failed is None and rate is not None and self._objective.deepest.ab:
            self._compare(rate)

    def _pass_rung(self, rung: Rung, endpoint: Endpoint, passed: dict[str, int]) -> bool:
        """Run the gates of one rung, the likeliest and cheapest killers first, until one fails.

        `passed` is how deep each gate was passed in this session; it grows with the rung.
        """
        self._observer.outcome.rung = rung.rung
        steps = {step.gate: step for step in self._gates.steps(rung, endpoint, passed)}
        planned = [PlannedGate(gate=step.gate, seconds=step.seconds) for step in steps.values()]
        for gate in order_gates(planned, self._plan.history.get(rung.rung, GateHistory())):
            with self._observer.spending(rung.rung):
                for result in steps[gate.gate].run():
                    self._observer.keep(result)
            if self._observer.failed is not None:
                return False
            passed[gate.gate] = self._gates.depth(gate.gate, rung)
        return True

    # Was it the candidate?

    def _ask_control(self, failed: GateResult) -> None:
        """Run the failed gate on the control at the same depth, unless it was seen there lately.

        A launch costs more than any canary, so when one failed, all are asked while it is up: the
        next candidate that fails another one needs no launch.
        """
        rung = self._objective.rung(failed.rung) or self._objective.deepest
        known = self._plan.control_checks.get(failed.gate)
        if known is not None and self._is_adjacent(known, self._gates.depth(failed.gate, rung)):
            self._observer.outcome.control_gates[failed.gate] = known.result
            return
        with self._bench.serving(CONTROL) as endpoint, self._observer.spending("control"):
            for step in self._control_gates.steps(rung, endpoint):
                if step.kind is not failed.kind:
                    continue
                for result in step.run():
                    self._observer.keep_control(result, self._gates.depth(result.gate, rung))

    def _is_adjacent(self, check: ControlCheck, depth: int) -> bool:
        """Whether the control was seen this deep, on this host, and lately enough to count."""
        age_s = time.time() - check.checked_at
        is_recent = age_s <= self._objective.attribution.control_max_age_s
        return is_recent and check.depth >= depth and check.host == self._observer.outcome.host

    # Is it faster than the control beside it?

    def _compare(self, rate: Rate) -> None:
        """Alternate control and candidate sessions until the gain is proven or cannot be."""
        rung = self._objective.deepest
        began = time.monotonic()
        sessions = self._before(rate) or [self._session(CONTROL, rung)]
        while (plan := self._ab(sessions)).decision in ("measure_control", "measure_candidate"):
            role = CONTROL if plan.decision == "measure_control" else CANDIDATE
            sessions.append(self._session(role, rung))
        seconds = time.monotonic() - began
        self._observer.keep(gate_of_plan(plan, self._objective, rung.rung, seconds=seconds))

    def _ab(self, sessions: Sequence[Session]) -> ABPlan:
        rates = [*self._plan.rates_on(self._observer.outcome.host), *self._beside]
        return ab_plan(sessions, self._objective, noise=learn_noise(rates, self._objective))

    def _before(self, rate: Rate) -> list[Session]:
        """The control's last session here and then the candidate's, if the first is recent.

        Empty if no control session was near enough in time to stand before the candidate's; then
        both are measured again, in turn.
        """
        own = self._plan.rates_on(self._observer.outcome.host)
        limit_s = self._objective.attribution.control_max_age_s
        if not own or time.time() - own[-1].started_at > limit_s:
            return []
        return [
            Session.of(CONTROL, own[-1], self._objective),
            Session.of(CANDIDATE, rate, self._objective),
        ]

    def _session(self, role: Role, rung: Rung) -> Session:
        """One more server session of the candidate or the control, measured at the same depth."""
        with self._bench.serving(role) as endpoint, self._observer.spending(rung.rung):
            gates = self._control_gates if role == CONTROL else self._gates
            rate = gates.measure(rung, endpoint)
        if role == CONTROL:
            self._beside.append(rate)
        return Session.of(role, rate, self._objective)

    @property
    def _beside(self) -> list[Rate]:
        """The control sessions that ran beside this candidate."""
        return self._observer.outcome.control_rates


def establish(plan: TrialPlan, bench: Bench, observer: Observer) -> None:
    """The control's way: record what it says, start it again, and check that it says the same.

    The second start also runs every correctness gate as deep as any candidate will have to go, and
    measures a second session, so that the lane knows its own noise from the beginning. Raises
    EngineFailure.
    """
    objective, rung = plan.objective, plan.objective.deepest
    with bench.serving(CONTROL) as endpoint:
        if observer.outcome.identity_drift:
            return
        observer.outcome.rung = rung.rung
        with observer.spending("reference"):
            oracle = _oracle(plan, endpoint, observer)
            canaries = {c.name: learn_canary(endpoint, c) for c in objective.canaries}
            unfit = [unfit_canary(baseline, rung.rung) for baseline in canaries.values()]
            quality = record_quality(endpoint, objective) if rung.quality else None
            reference = Reference(
                identity_sha=plan.identity_sha, oracle=oracle, canaries=canaries, quality=quality
            )
            gates = Gates(plan, reference, observer, CONTROL)
            first = gates.measure(rung, endpoint)
    for result in filter(None, unfit):
        observer.keep(result)
    if observer.failed is not None:
        return
    with bench.serving(CONTROL) as endpoint:
        with observer.spending("reference"):
            again = _oracle(plan, endpoint, observer, margins=False)
            loaded = _oracle(plan, endpoint, observer, margins=False, concurrent=True)
        parity = self_parity(oracle, again, concurrent=loaded)
        reference = reference.model_copy(update={"self_parity": parity})
        observer.outcome.reference = reference
        observer.outcome.notices.append(parity.sentence())
        observer.keep(self_parity_gate(parity, objective, rung.rung))
        with observer.spending(rung.rung):
            for step in gates.steps(rung, endpoint):
                if step.kind in CORRECTNESS - {GateKind.PARITY}:
                    for result in step.run():
                        observer.keep(result)
            second = gates.measure(rung, endpoint)
    observer.outcome.rate = second
    observer.outcome.control_rates = [first, second]
    for result in observer.outcome.gates:
        observer.note_control(result, gates.depth(result.gate, rung))


def _oracle(
    plan: TrialPlan,
    endpoint: Endpoint,
    observer: Observer,
    *,
    margins: bool = True,
    concurrent: bool = False,
) -> Oracle:
    return record_oracle(
        endpoint,
        plan.objective,
        identity_sha=plan.identity_sha,
        margins=margins,
        concurrent=concurrent,
        on_progress=observer.progress(plan.objective.deepest.rung, "oracle"),
    )


def unfit_canary(baseline: CanaryBaseline, rung: str) -> GateResult | None:
    """The failed gate of a canary that the control itself does not keep to; None if it does."""
    if baseline.problem is None:
        return None
    return GateResult(
        gate=f"canary.{baseline.canary}",
        kind=GateKind.CANARY,
        rung=rung,
        status=GateStatus.FAILED,
        code=Code.CANARY_MISMATCH.value,
        reason=f"The canary {baseline.canary} suits no comparison: {baseline.problem}.",
        constraint=1.0,
        evidence=baseline.model_dump(mode="json"),
    )


def _refused(error: LaunchRefused) -> Failure:
    return Failure(
        code=Code.USER_ERROR.value, phase="launch", blame="user", retry=False, reason=f"{error}."
    )
