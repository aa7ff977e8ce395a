"""The tuner's way of deciding, in simulated time.

Everything that decides is the product's own: the speed gate, the order of gates, the depth of
canaries, the A/B plan, the verdict. Only servers are missing: starting, measuring and asking pass
simulated time. The steps are those of `tuner.ascent`; repeats, prompts and clean canaries are
carried from rung to rung of a session, and a control that is asked after a failure runs all
canaries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.gates.machine import TOK_S, Machine
from benchmarks.gates.population import Truth
from objectives import (
    GateHistory,
    GateKind,
    GateResult,
    GateStatus,
    Objective,
    PlannedGate,
    Rate,
    Rung,
    Session,
    ab_plan,
    corruption_bound,
    deep_repeats,
    gate_of_plan,
    learn_noise,
    order_gates,
    speed_gate,
)
from tuner.gates import RECENT
from tuner.verdict import Evidence, Judgement, judge


@dataclass
class Study:
    """One lane: its control's sessions, its gates' history, and when the control was last asked."""

    machine: Machine
    objective: Objective
    controls: list[Rate] = field(default_factory=list)
    results: list[GateResult] = field(default_factory=list)
    failure_repeats: list[int] = field(default_factory=list)
    asked: dict[str, tuple[int, float]] = field(default_factory=dict)

    def begin(self) -> None:
        """Establish the control: two sessions, the oracle thrice, every correctness gate once."""
        deepest = self.objective.deepest
        for session in range(2):
            luck = self.machine.launch("establish the control")
            self.machine.spend(
                (1 + session) * self._parity_s(self.objective.parity.prompts), "parity"
            )
            if session:
                for canary in self.objective.canaries:
                    self.machine.canary(None, deepest.canary_repeats)
                    self._note(f"canary.{canary.name}", deepest.canary_repeats)
                self.machine.spend(self._quality_s(), "quality")
            self.controls.append(
                self.machine.measure(luck, None, deepest.repeats, self.objective.workload)
            )

    def judge(self, truth: Truth) -> Judgement:
        """Take one candidate up the ladder and judge it."""
        self.machine.behave(truth.host)
        trial = _Trial(self, truth, luck=self.machine.launch())
        trial.climb()
        self.results += trial.gates
        return judge(
            Evidence(
                gates=tuple(trial.gates),
                required=frozenset(self.objective.gate_names(self.objective.deepest)),
                rung=self.objective.deepest.rung,
            )
        )

    def ask_control(self, gate: str, depth: int) -> None:
        """See whether the control passes a gate that a candidate failed; it always does here."""
        known_depth, at_s = self.asked.get(gate, (0, 0.0))
        age_s = self.machine.clock_s - at_s
        if known_depth >= depth and age_s <= self.objective.attribution.control_max_age_s:
            return
        self.machine.launch("was it the candidate?")
        for canary in self.objective.canaries:
            self.machine.canary(None, depth)
            self._note(f"canary.{canary.name}", depth)

    def _note(self, gate: str, depth: int) -> None:
        self.asked[gate] = (depth, self.machine.clock_s)

    def _parity_s(self, prompts: int) -> float:
        return prompts * (self.objective.parity.output_tokens / TOK_S + 0.06)

    def _quality_s(self) -> float:
        suite = self.objective.quality
        return suite.repeat_runs * suite.repeat_tokens / TOK_S + 5.0


@dataclass
class _Trial:
    study: Study
    truth: Truth
    luck: float
    gates: list[GateResult] = field(default_factory=list)
    rate: Rate | None = None
    compared: int = 0
    clean: dict[str, int] = field(default_factory=dict)

    def climb(self) -> None:
        objective = self.study.objective
        for rung in objective.ladder:
            if not self._pass_rung(rung):
                failed = self.gates[-1]
                if failed.kind is GateKind.CANARY:
                    self.study.ask_control(failed.gate, self._depth(rung))
                return
        self._compare()

    def _pass_rung(self, rung: Rung) -> bool:
        steps = self._steps(rung)
        history = GateHistory.of(self.study.results, rung=rung.rung)
        planned = [PlannedGate(gate=name, seconds=cost) for name, (cost, _) in steps.items()]
        for gate in order_gates(planned, history):
            began_s = self.study.machine.clock_s
            for result in steps[gate.gate][1]():
                seconds = self.study.machine.clock_s - began_s
                self.gates.append(result.model_copy(update={"seconds": seconds}))
                if result.status is GateStatus.FAILED:
                    return False
        return True

    def _steps(self, rung: Rung) -> dict[str, tuple[float, Callable[[], list[GateResult]]]]:
        objective = self.study.objective
        steps: dict[str, tuple[float, Callable[[], list[GateResult]]]] = {
            "speed": (
                rung.repeats * objective.workload.output_tokens / TOK_S,
                lambda: [self._speed(rung)],
            ),
            "parity": (
                rung.parity_prompts * objective.parity.output_tokens / TOK_S,
                lambda: [self._parity(rung)],
            ),
        }
        for canary in objective.canaries:
            steps[f"canary.{canary.name}"] = (
                self._depth(rung) * canary.max_tokens / TOK_S,
                lambda name=f"canary.{canary.name}": [self._canary(name, rung)],  # type: ignore[misc]
            )
        if rung.quality:
            steps["quality"] = (
                48 * len(objective.quality_names()) / TOK_S,
                self._quality,
            )
        return steps

    def _depth(self, rung: Rung) -> int:
        if rung != self.study.objective.deepest:
            return rung.canary_repeats
        return deep_repeats(rung.canary_repeats, self.study.failure_repeats)

    def _speed(self, rung: Rung) -> GateResult:
        study = self.study
        workload = study.objective.workload
        self.rate = study.machine.measure(self.luck, self.truth, rung.repeats, workload, self.rate)
        noise = learn_noise(study.controls, study.objective)
        return speed_gate(
            self.rate, study.controls[-RECENT:], study.objective, rung.rung, noise=noise
        )

    def _parity(self, rung: Rung) -> GateResult:
        self.study.machine.spend(
            self.study._parity_s(rung.parity_prompts - self.compared), "parity"
        )
        self.compared = rung.parity_prompts
        return _passed("parity", GateKind.PARITY, rung.rung)

    def _canary(self, name: str, rung: Rung) -> GateResult:
        depth = self._depth(rung)
        failed = self.study.machine.canary(self.truth, depth, self.clean.get(name, 0))
        self.clean[name] = depth
        if failed is None:
            return _passed(name, GateKind.CANARY, rung.rung, corruption_bound(depth))
        self.study.failure_repeats.append(failed)
        return GateResult(
            gate=name,
            kind=GateKind.CANARY,
            rung=rung.rung,
            status=GateStatus.FAILED,
            code="canary_mismatch",
            reason=f"Repeat {failed} of {depth} differs.",
            constraint=0.5,
        )

    def _quality(self) -> list[GateResult]:
        self.study.machine.spend(self.study._quality_s(), "quality")
        names = self.study.objective.quality_names()
        return [_passed(f"quality.{name}", GateKind.QUALITY, "deep") for name in names]

    def _compare(self) -> None:
        study, objective = self.study, self.study.objective
        assert self.rate is not None
        limit_s = objective.attribution.control_max_age_s
        sessions = [Session.of("candidate", self.rate, objective)]
        before = study.controls[-1]
        if study.machine.clock_s - before.started_at <= limit_s:
            sessions.insert(0, Session.of("control", before, objective))
        else:
            sessions = [self._session("control")]
        while True:
            noise = learn_noise(study.controls, objective)
            plan = ab_plan(sessions, objective, noise=noise)
            if plan.decision in ("accept", "futile"):
                break
            role = "control" if plan.decision == "measure_control" else "candidate"
            sessions.append(self._session(role))
        self.gates.append(gate_of_plan(plan, objective, objective.deepest.rung))

    def _session(self, role: str) -> Session:
        study, objective = self.study, self.study.objective
        luck = study.machine.launch(f"A/B {role}")
        truth = None if role == "control" else self.truth
        rate = study.machine.measure(luck, truth, objective.deepest.repeats, objective.workload)
        if role == "control":
            study.controls.append(rate)
            return Session.of("control", rate, objective)
        return Session.of("candidate", rate, objective)


def _passed(gate: str, kind: GateKind, rung: str, bound: float = 0.0) -> GateResult:
    return GateResult(
        gate=gate,
        kind=kind,
        rung=rung,
        status=GateStatus.PASSED,
        reason="It holds.",
        constraint=-bound,
    )
