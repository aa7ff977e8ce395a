"""One trial: a candidate taken up the ladder on its lease, gate by gate, until one fails.

Runs inside the actor that holds the lease. It returns what was seen (TrialOutcome) and decides
nothing: the verdict is given by `tuner.verdict.judge` from that evidence.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from objectives import (
    Canary,
    Endpoint,
    EndpointError,
    GateHistory,
    GateKind,
    GateResult,
    GateStatus,
    Objective,
    Oracle,
    PlannedGate,
    Rate,
    Rung,
    Session,
    ab_plan,
    canary_gate,
    deep_repeats,
    gate_of_plan,
    learn_canary,
    learn_noise,
    measure_rate,
    order_gates,
    parity_gate,
    quality_gates,
    record_oracle,
    record_quality,
    self_parity,
    self_parity_gate,
    slo_gates,
    speed_gate,
)
from runners import (
    EngineFailure,
    EngineServer,
    Failure,
    Launch,
    Lease,
    ReadBack,
    Runner,
    open_engine,
)
from tuner.identity import Identity
from tuner.reference import Reference
from tuner.verdict import CORRECTNESS, Code

Role = Literal["candidate", "control"]
CANDIDATE: Role = "candidate"
CONTROL: Role = "control"

SEED = 0
"""Every session is asked the same prompts in the same order: sessions are compared by prompt."""

FIRST_GUESS_TOK_S = 30.0
"""Only orders the gates of a lane in which nothing was ever measured."""

Report = Callable[[dict[str, Any]], None]


class ControlCheck(BaseModel):
    """A gate that the control passed, or failed, at some depth and time: evidence about the lane.

    `depth` is in the gate's own unit (canary repeats, parity prompts, 1 for quality);
    `checked_at` is seconds since the epoch on the host that checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    result: GateResult
    depth: int
    host: str
    checked_at: float


@dataclass(frozen=True)
class TrialPlan:
    """All that an actor needs to evaluate one attempt; picklable.

    `control_rates` are the control's sessions so far in this lane, oldest first. `history` is what
    the lane knows of each rung's gates.
    """

    marker: str
    directory: Path
    runner: Runner
    objective: Objective
    role: str
    args: Mapping[str, Any]
    env: Mapping[str, str]
    identity_sha: str
    control_args: Mapping[str, Any]
    control_env: Mapping[str, str]
    control_rates: tuple[Rate, ...]
    reference: Reference | None
    control_checks: Mapping[str, ControlCheck]
    failure_repeats: tuple[int, ...]
    history: Mapping[str, GateHistory]


class TrialOutcome(BaseModel):
    """What one attempt showed; `control_rates` are the control sessions that were run beside it."""

    model_config = ConfigDict(extra="forbid")

    rung: str = "static"
    gates: list[GateResult] = []
    control_gates: dict[str, GateResult] = {}
    control_checks: dict[str, ControlCheck] = {}
    rate: Rate | None = None
    control_rates: list[Rate] = []
    failure: Failure | None = None
    identity_drift: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    reference: Reference | None = None
    launch: dict[str, Any] = {}
    host: str = ""
    devices: tuple[str, ...] = ()
    seconds_by_rung: dict[str, float] = {}
    notices: list[str] = []
    started_at: str = ""
    finished_at: str = ""

    def write_artifacts(self, directory: Path, identity: Identity) -> None:
        """Write identity, launch and gate results into the trial's folder, one JSON file each."""
        gates = directory / "gates"
        gates.mkdir(parents=True, exist_ok=True)
        pretty = json.dumps(identity.model_dump(mode="json"), indent=1, sort_keys=True)
        (directory / "identity.json").write_text(pretty, encoding="utf-8")
        (directory / "launch.json").write_text(json.dumps(self.launch, indent=1), encoding="utf-8")
        for result in self.gates:
            path = gates / f"{result.rung}.{result.gate}.json"
            path.write_text(result.model_dump_json(indent=1), encoding="utf-8")
        for name, result in self.control_gates.items():
            path = gates / f"control.{name}.json"
            path.write_text(result.model_dump_json(indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Step:
    """A gate that is about to run; it may give several results (a suite's cases)."""

    gate: str
    kind: GateKind
    seconds: float
    run: Callable[[], list[GateResult]]


@dataclass(frozen=True)
class Evaluation:
    """The task that the backend runs on a lease: the whole trial, from its plan."""

    plan: TrialPlan

    def __call__(self, lease: Lease, report: Report) -> TrialOutcome:
        ascent = _Ascent(self.plan, lease, report)
        return ascent.through()


@dataclass
class _Ascent:
    plan: TrialPlan
    lease: Lease
    report: Report
    outcome: TrialOutcome = field(default_factory=TrialOutcome)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    sessions: int = 0

    def through(self) -> TrialOutcome:
        """Climb, and bring back what was seen, however it ended."""
        self.outcome.started_at = _now()
        self.outcome.host = self.lease.host
        self.outcome.devices = tuple(device.id for device in self.lease.devices)
        self.outcome.rung = "startup"
        try:
            if self.plan.role == CONTROL:
                self._establish()
            else:
                self._climb()
        except EngineFailure as error:
            self.outcome.failure = error.failure
        self.outcome.seconds_by_rung = dict(self.seconds)
        self.outcome.finished_at = _now()
        return self.outcome

    # The candidate's way.

    def _climb(self) -> None:
        """Rung after rung while nothing fails; then what only a control run can say."""
        with self._serving(CANDIDATE, self.plan.args, self.plan.env) as endpoint:
            if self.outcome.identity_drift:
                return
            for rung in self.plan.objective.ladder:
                if not self._pass_rung(rung, endpoint):
                    break
        failed = self._failed
        if failed is None and self.plan.objective.deepest.ab:
            self._compare_with_adjacent_control()
        elif failed is not None and failed.kind in CORRECTNESS:
            self._ask_control(failed)

    def _pass_rung(self, rung: Rung, endpoint: Endpoint) -> bool:
        """Run the gates of one rung, the likeliest and cheapest killers first, until one fails."""
        self.outcome.rung = rung.rung
        steps = {step.gate: step for step in self._steps(rung, endpoint)}
        planned = [PlannedGate(gate=step.gate, seconds=step.seconds) for step in steps.values()]
        history = self.plan.history.get(rung.rung, GateHistory())
        for gate in order_gates(planned, history):
            began = time.monotonic()
            for result in steps[gate.gate].run():
                self._keep(result)
            self.seconds[rung.rung] += time.monotonic() - began
            if self._failed is not None:
                return False
        return True

    def _steps(self, rung: Rung, endpoint: Endpoint) -> list[Step]:
        """The gates that this rung asks for, not yet run, each with the seconds it should take."""
        objective = self.plan.objective
        tok_s = (
            self.plan.control_rates[-1].tok_s.mean if self.plan.control_rates else FIRST_GUESS_TOK_S
        )
        steps = []
        if rung.repeats:
            tokens = rung.repeats * objective.workload.output_tokens
            run = partial(self._speed, rung, endpoint)
            steps.append(Step("speed", GateKind.SPEED, tokens / tok_s, run))
        if rung.parity_prompts:
            tokens = rung.parity_prompts * objective.parity.output_tokens
            run = partial(self._parity, rung, endpoint)
            steps.append(Step("parity", GateKind.PARITY, tokens / tok_s, run))
        if rung.canary_repeats:
            for canary in objective.canaries:
                tokens = self._canary_depth(rung) * canary.max_tokens
                run = partial(self._canary, canary, rung, endpoint)
                steps.append(Step(f"canary.{canary.name}", GateKind.CANARY, tokens / tok_s, run))
        if rung.quality:
            tokens = 48 * len(objective.quality.names())
            run = partial(self._quality, rung, endpoint)
            steps.append(Step("quality", GateKind.QUALITY, tokens / tok_s, run))
        return steps

    def _speed(self, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        objective = self.plan.objective
        rate = self._measure(rung, endpoint)
        self.outcome.rate = rate
        control = self.plan.control_rates[-1] if self.plan.control_rates else None
        noise = learn_noise(self.plan.control_rates, objective)
        return [
            speed_gate(rate, control, objective, rung.rung, noise=noise),
            *slo_gates(rate, objective, rung.rung),
        ]

    def _measure(self, rung: Rung, endpoint: Endpoint) -> Rate:
        objective = self.plan.objective
        return measure_rate(
            endpoint,
            objective.workload,
            repeats=rung.repeats,
            seed=SEED,
            confidence=objective.confidence,
            identity_sha=self.plan.identity_sha,
            slos=objective.slos,
            on_progress=self._progress(rung, "speed"),
        )

    def _parity(self, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        reference = self._reference
        return [
            parity_gate(
                endpoint,
                reference.oracle,
                self.plan.objective,
                rung=rung.rung,
                prompts=rung.parity_prompts,
                self_parity=reference.self_parity,
                speculates=speculates(self.plan.args),
                on_progress=self._progress(rung, "parity"),
            )
        ]

    def _canary(self, canary: Canary, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        return [
            canary_gate(
                endpoint,
                canary,
                repeats=self._canary_depth(rung),
                rung=rung.rung,
                baseline=self._reference.canaries[canary.name],
                confidence=self.plan.objective.confidence,
                on_progress=self._progress(rung, f"canary.{canary.name}"),
            )
        ]

    def _canary_depth(self, rung: Rung) -> int:
        """Repeats of the canaries; the deepest rung goes past every failure the lane has seen."""
        if rung != self.plan.objective.deepest:
            return rung.canary_repeats
        return deep_repeats(rung.canary_repeats, self.plan.failure_repeats)

    def _quality(self, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        return quality_gates(
            endpoint,
            self.plan.objective,
            baseline=self._reference.quality,
            rung=rung.rung,
            on_progress=self._progress(rung, "quality"),
        )

    # Was it the candidate, and is it faster than the control beside it?

    def _ask_control(self, failed: GateResult) -> None:
        """Run the failed gate on the control at the same depth, unless a recent run has shown it."""
        step_name = "quality" if failed.kind is GateKind.QUALITY else failed.gate
        rung = self.plan.objective.rung(failed.rung) or self.plan.objective.deepest
        depth = self._depth(failed.gate, rung)
        known = self.plan.control_checks.get(failed.gate)
        if known is not None and self._is_adjacent(known, depth):
            self.outcome.control_gates[failed.gate] = known.result
            return
        began = time.monotonic()
        with self._serving(CONTROL, self.plan.control_args, self.plan.control_env) as endpoint:
            step = next(s for s in self._steps(rung, endpoint) if s.gate == step_name)
            for result in step.run():
                self._keep_control(result, self._depth(result.gate, rung))
        self.seconds["control"] += time.monotonic() - began

    def _is_adjacent(self, check: ControlCheck, depth: int) -> bool:
        """Whether the control was seen at this depth, on this host, lately enough to speak for now."""
        age_s = time.time() - check.checked_at
        limit_s = self.plan.objective.attribution.control_max_age_s
        return check.depth >= depth and check.host == self.lease.host and age_s <= limit_s

    def _compare_with_adjacent_control(self) -> None:
        """Alternate control and candidate sessions until the gain is proven or cannot be."""
        objective = self.plan.objective
        rung = objective.deepest
        began = time.monotonic()
        assert self.outcome.rate is not None, "the deepest rung measured a rate"
        sessions = [*self._control_before(), Session.of(CANDIDATE, self.outcome.rate, objective)]
        if len(sessions) == 1:
            # The candidate ran before any control that is recent enough: it has to run again.
            sessions = [self._session(CONTROL, rung)]
        while True:
            noise = learn_noise([*self.plan.control_rates, *self.outcome.control_rates], objective)
            plan = ab_plan(sessions, objective, noise=noise)
            if plan.decision in ("accept", "futile"):
                break
            role = CONTROL if plan.decision == "measure_control" else CANDIDATE
            sessions.append(self._session(role, rung))
        seconds = time.monotonic() - began
        self.seconds[rung.rung] += seconds
        self._keep(gate_of_plan(plan, objective, rung.rung, seconds=seconds))

    def _control_before(self) -> list[Session]:
        """The control's last session, if it was recent enough to stand before the candidate's."""
        limit_s = self.plan.objective.attribution.control_max_age_s
        recent = [
            rate
            for rate in self.plan.control_rates[-1:]
            if time.time() - rate.started_at <= limit_s
        ]
        return [Session.of(CONTROL, rate, self.plan.objective) for rate in recent]

    def _session(self, role: Role, rung: Rung) -> Session:
        """One more server session of the candidate or the control, measured at the same depth."""
        is_control = role == CONTROL
        args = self.plan.control_args if is_control else self.plan.args
        env = self.plan.control_env if is_control else self.plan.env
        with self._serving(role, args, env) as endpoint:
            rate = self._measure(rung, endpoint)
        if is_control:
            self.outcome.control_rates.append(rate)
        return Session.of(role, rate, self.plan.objective)

    # The control's way.

    def _establish(self) -> None:
        """Record what the control says, start it again, and check that it says the same.

        The second start also runs every correctness gate at the deepest rung, and measures a
        second session, so that the lane knows its own noise from the beginning.
        """
        objective, rung = self.plan.objective, self.plan.objective.deepest
        with self._serving(CONTROL, self.plan.args, self.plan.env) as endpoint:
            if self.outcome.identity_drift:
                return
            self.outcome.rung = rung.rung
            began = time.monotonic()
            oracle = self._oracle(endpoint)
            canaries = {c.name: learn_canary(endpoint, c) for c in objective.canaries}
            quality = record_quality(endpoint, objective) if rung.quality else None
            first = self._measure(rung, endpoint)
            self.seconds["reference"] += time.monotonic() - began
        with self._serving(CONTROL, self.plan.args, self.plan.env) as endpoint:
            began = time.monotonic()
            again = self._oracle(endpoint, margins=False)
            loaded = self._oracle(endpoint, margins=False, concurrent=True)
            reference = Reference(
                identity_sha=self.plan.identity_sha,
                oracle=oracle,
                self_parity=self_parity(oracle, again, concurrent=loaded),
                canaries=canaries,
                quality=quality,
            )
            self.outcome.reference = reference
            self.outcome.notices.append(reference.self_parity.sentence())
            self.plan = replace(self.plan, reference=reference)
            self.seconds["reference"] += time.monotonic() - began
            self._keep(self_parity_gate(reference.self_parity, objective, rung.rung))
            for step in self._steps(rung, endpoint):
                if step.kind in CORRECTNESS - {GateKind.PARITY}:
                    for result in step.run():
                        self._keep(result)
            self.outcome.rate = self._measure(rung, endpoint)
        self.outcome.control_rates = [first, self.outcome.rate]
        for result in self.outcome.gates:
            self._note_control(result, self._depth(result.gate, rung))

    def _oracle(
        self, endpoint: Endpoint, *, margins: bool = True, concurrent: bool = False
    ) -> Oracle:
        return record_oracle(
            endpoint,
            self.plan.objective,
            identity_sha=self.plan.identity_sha,
            margins=margins,
            concurrent=concurrent,
            on_progress=self._progress(self.plan.objective.deepest, "oracle"),
        )

    # Serving and keeping.

    @contextmanager
    def _serving(
        self, role: Role, args: Mapping[str, Any], env: Mapping[str, str]
    ) -> Iterator[Endpoint]:
        """A server with these settings, ready and read back, for as long as the block lasts.

        Raises EngineFailure if it does not come up or fails inside the block; a control that fails
        beside a candidate is never the candidate's fault.
        """
        self.sessions += 1
        try:
            with self._started(role, args, env) as server:
                try:
                    yield Endpoint(server.base_url, server.model)
                except EndpointError as error:
                    raise EngineFailure(server.diagnose(error)) from error
        except EngineFailure as error:
            if role == CONTROL and self.plan.role != CONTROL:
                raise EngineFailure(_control_failed(error.failure)) from error
            raise

    def _started(self, role: Role, args: Mapping[str, Any], env: Mapping[str, str]) -> EngineServer:
        """Start one session's engine and read back what it runs; its seconds count as startup."""
        self._tell("startup", f"start {role}")
        began = time.monotonic()
        try:
            server, _ = open_engine(
                self.plan.runner,
                args=args,
                env=env,
                lease=self.lease,
                directory=self.plan.directory / f"{self.sessions}-{role}",
                marker=self.plan.marker,
                on_progress=lambda stage: self._tell("startup", stage),
            )
            seen = server.read_back()
        finally:
            took_s = time.monotonic() - began
            self.seconds["startup"] += took_s
        if self.sessions == 1:
            self._note_start(server.launch, seen, took_s)
        return server

    def _note_start(self, launch: Launch, seen: ReadBack, took_s: float) -> None:
        """What the first session shows: that it came up, how it was launched, and any drift."""
        self.outcome.launch = launch.model_dump(mode="json")
        self.outcome.identity_drift = seen.drift
        self.outcome.unverified = seen.unverified
        self._keep(
            GateResult(
                gate="startup",
                kind=GateKind.STARTUP,
                rung="startup",
                status=GateStatus.PASSED,
                reason=f"It served its first token {took_s:.1f} s after its start.",
                constraint=0.0,
                seconds=took_s,
                evidence={"version": seen.version, "unverified": list(seen.unverified)},
            )
        )

    def _keep(self, result: GateResult) -> None:
        self.outcome.gates.append(result)
        rate = self.outcome.rate if result.kind is GateKind.SPEED else None
        told: dict[str, Any] = {"result": result.model_dump(mode="json")}
        self.report({**told, "tok_s": rate.tok_s.mean} if rate else told)

    def _keep_control(self, result: GateResult, depth: int) -> None:
        self.outcome.control_gates[result.gate] = result
        self._note_control(result, depth)

    def _note_control(self, result: GateResult, depth: int) -> None:
        """Remember that the control was seen at this depth, for candidates that fail there soon."""
        self.outcome.control_checks[result.gate] = ControlCheck(
            result=result, depth=depth, host=self.lease.host, checked_at=time.time()
        )

    def _depth(self, gate: str, rung: Rung) -> int:
        """How deep a gate goes on a rung, in its own unit: repeats, prompts, or 1."""
        kind = gate.split(".")[0]
        if kind == GateKind.CANARY:
            return self._canary_depth(rung)
        return rung.parity_prompts if kind == GateKind.PARITY else 1

    def _progress(self, rung: Rung, gate: str) -> Callable[[int, int], None]:
        return lambda done, total: self._tell(rung.rung, gate, done, total)

    def _tell(self, rung: str, gate: str, done: int = 0, total: int = 0) -> None:
        self.report({"rung": rung, "gate": gate, "done": done, "total": total})

    @property
    def _failed(self) -> GateResult | None:
        return next((g for g in self.outcome.gates if g.status is GateStatus.FAILED), None)

    @property
    def _reference(self) -> Reference:
        assert self.plan.reference is not None, "candidates are planned after the control"
        return self.plan.reference


def speculates(args: Mapping[str, Any]) -> bool:
    """Whether these arguments turn speculative decoding on, which then has to be shown to work."""
    return any(key.split(".")[0] == "speculative-config" and value for key, value in args.items())


def _control_failed(failure: Failure) -> Failure:
    """The failure of a control that ran beside a candidate: the lane is sick, not the candidate."""
    return failure.model_copy(
        update={
            "code": Code.LANE_UNHEALTHY.value,
            "blame": "host",
            "reason": f"The control did not serve beside the candidate: {failure.reason}",
        }
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
