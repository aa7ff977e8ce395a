"""The gates of a rung, ready to run on an endpoint: what an objective asks, at which depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from objectives import (
    Canary,
    Endpoint,
    GateKind,
    GateResult,
    Rate,
    Rung,
    canary_gate,
    deep_repeats,
    learn_noise,
    measure_rate,
    parity_gate,
    quality_gates,
    slo_gates,
    speed_gate,
)
from tuner.observer import Observer
from tuner.reference import Reference
from tuner.trial import CANDIDATE, CONTROL, Role, TrialPlan

SEED = 0
"""Every session is asked the same prompts in the same order: sessions are compared by prompt."""

RECENT = 4
"""Control sessions that a candidate's speed is held against; more would reach into old weather."""

FIRST_GUESS_TOK_S = 30.0
"""Only orders the gates of a lane in which nothing was ever measured."""


@dataclass(frozen=True)
class Step:
    """A gate that is about to run; it may give several results (a suite's cases)."""

    gate: str
    kind: GateKind
    seconds: float
    run: Callable[[], list[GateResult]]


class Gates:
    """The gates of one plan, for a session of `role`; `reference` is what answers must equal."""

    def __init__(
        self, plan: TrialPlan, reference: Reference, observer: Observer, role: Role = CANDIDATE
    ) -> None:
        self._plan = plan
        self._identity_sha = plan.control_sha if role == CONTROL else plan.identity_sha
        self._reference = reference
        self._observer = observer
        self._rates = plan.rates_on(observer.outcome.host) or plan.rates_elsewhere

    def steps(
        self, rung: Rung, endpoint: Endpoint, already: Mapping[str, int] | None = None
    ) -> list[Step]:
        """The gates that this rung asks for, not yet run, each with the seconds it should take.

        `already`: how deep this session has passed a gate on shallower rungs; it goes on there.
        """
        done = already or {}
        objective = self._plan.objective
        rates = self._rates
        tok_s = rates[-1].tok_s.mean if rates else FIRST_GUESS_TOK_S
        steps = []
        if rung.repeats:
            tokens = rung.repeats * objective.workload.output_tokens
            run = partial(self._speed, rung, endpoint)
            steps.append(Step("speed", GateKind.SPEED, tokens / tok_s, run))
        if rung.parity_prompts:
            skip = done.get("parity", 0)
            tokens = (rung.parity_prompts - skip) * objective.parity.output_tokens
            run = partial(self._parity, rung, endpoint, skip)
            steps.append(Step("parity", GateKind.PARITY, tokens / tok_s, run))
        if rung.canary_repeats:
            for canary in objective.canaries:
                name = f"canary.{canary.name}"
                clean = done.get(name, 0)
                tokens = (self.canary_depth(rung) - clean) * canary.max_tokens
                run = partial(self._canary, canary, rung, endpoint, clean)
                steps.append(Step(name, GateKind.CANARY, tokens / tok_s, run))
        if rung.quality:
            tokens = 48 * len(objective.quality.names())
            run = partial(self._quality, rung, endpoint)
            steps.append(Step("quality", GateKind.QUALITY, tokens / tok_s, run))
        return steps

    def _speed(self, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        objective = self._plan.objective
        rate = self.measure(rung, endpoint, earlier=self._observer.outcome.rate)
        self._observer.outcome.rate = rate
        noise = learn_noise(self._rates, objective)
        return [
            speed_gate(rate, self._adjacent(), objective, rung.rung, noise=noise),
            *slo_gates(rate, objective, rung.rung),
        ]

    def measure(self, rung: Rung, endpoint: Endpoint, *, earlier: Rate | None = None) -> Rate:
        """The session's rate, with as many repeats as the rung asks for.

        `earlier` is a rate of this very session, whose repeats count. Raises EndpointError.
        """
        objective = self._plan.objective
        return measure_rate(
            endpoint,
            objective.workload,
            repeats=rung.repeats,
            seed=SEED,
            confidence=objective.confidence,
            identity_sha=self._identity_sha,
            slos=objective.slos,
            earlier=earlier,
            on_progress=self._observer.progress(rung.rung, "speed"),
        )

    def _parity(self, rung: Rung, endpoint: Endpoint, skip: int) -> list[GateResult]:
        reference = self._reference
        return [
            parity_gate(
                endpoint,
                reference.oracle,
                self._plan.objective,
                rung=rung.rung,
                prompts=rung.parity_prompts,
                skip=skip,
                reference_sha=reference.identity_sha,
                self_parity=reference.self_parity,
                on_progress=self._observer.progress(rung.rung, "parity"),
            )
        ]

    def _canary(
        self, canary: Canary, rung: Rung, endpoint: Endpoint, clean: int
    ) -> list[GateResult]:
        return [
            canary_gate(
                endpoint,
                canary,
                repeats=self.canary_depth(rung),
                already=clean,
                rung=rung.rung,
                baseline=self._reference.canaries[canary.name],
                confidence=self._plan.objective.confidence,
                on_progress=self._observer.progress(rung.rung, f"canary.{canary.name}"),
            )
        ]

    def canary_depth(self, rung: Rung) -> int:
        """Repeats of the canaries; the deepest rung goes past every failure the lane has seen."""
        if rung != self._plan.objective.deepest:
            return rung.canary_repeats
        return deep_repeats(rung.canary_repeats, self._plan.failure_repeats)

    def _quality(self, rung: Rung, endpoint: Endpoint) -> list[GateResult]:
        return quality_gates(
            endpoint,
            self._plan.objective,
            baseline=self._reference.quality,
            rung=rung.rung,
            on_progress=self._observer.progress(rung.rung, "quality"),
        )

    def _adjacent(self) -> list[Rate]:
        """The control's last sessions on this host that are near enough in time to compare with.

        Without any only the floor is checked: a candidate is not measured against another host, or
        another day, and the A/B gate brings its own controls.
        """
        oldest = time.time() - self._plan.objective.attribution.control_max_age_s
        here = self._plan.rates_on(self._observer.outcome.host)
        return [rate for rate in here[-RECENT:] if rate.started_at >= oldest]

    def depth(self, gate: str, rung: Rung) -> int:
        """How deep a gate goes on a rung, in its own unit: repeats, prompts, or 1."""
        kind = gate.split(".")[0]
        if kind == GateKind.CANARY:
            return self.canary_depth(rung)
        return rung.parity_prompts if kind == GateKind.PARITY else 1
