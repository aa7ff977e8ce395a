"""The bench: starts one engine session after the other on a trial's lease, and proves each gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from objectives import Endpoint, EndpointError, GateKind, GateResult, GateStatus
from runners import (
    EngineFailure,
    EngineServer,
    Failure,
    Launch,
    Lease,
    ReadBack,
    Teardown,
    open_engine,
)
from tuner.observer import Observer
from tuner.trial import CONTROL, Role, TrialPlan
from tuner.verdict import Code


class Bench:
    """Serves the candidate or the control of one plan; one session at a time."""

    def __init__(self, plan: TrialPlan, lease: Lease, observer: Observer) -> None:
        self._plan = plan
        self._lease = lease
        self._observer = observer
        self._sessions = 0

    @contextmanager
    def serving(self, role: Role) -> Iterator[Endpoint]:
        """A server of that role, ready and read back, for as long as the block lasts.

        Raises EngineFailure if it does not come up, fails inside the block, or cannot be ended. A
        control that fails beside a candidate is never the candidate's fault.
        """
        self._sessions += 1
        try:
            server = self._started(role)
            try:
                yield Endpoint(
                    server.base_url,
                    server.model,
                    timeout_s=server.timeouts.request_s,
                )
            except EndpointError as error:
                raise EngineFailure(server.diagnose(error)) from error
            finally:
                ended = server.stop()
                if not ended.clean:
                    self._observer.outcome.left_behind = _not_gone(ended).reason
            if not ended.clean:
                raise EngineFailure(_not_gone(ended))
        except EngineFailure as error:
            if role == CONTROL and self._plan.role != CONTROL:
                raise EngineFailure(_control_failed(error.failure)) from error
            raise

    def _started(self, role: Role) -> EngineServer:
        plan, observer = self._plan, self._observer
        is_control = role == CONTROL and plan.role != CONTROL
        observer.tell("startup", f"start {role}")
        began = time.monotonic()
        with observer.spending("startup"):
            server, _ = open_engine(
                plan.runner,
                args=plan.control_args if is_control else plan.args,
                env=plan.control_env if is_control else plan.env,
                lease=self._lease,
                directory=plan.directory / f"{self._sessions}-{role}",
                marker=plan.marker,
                on_progress=lambda stage: observer.tell("startup", stage),
            )
            try:
                seen = server.read_back()
            except BaseException:
                server.stop()
                raise
        if seen.drift:
            observer.outcome.identity_drift = seen.drift
        if self._sessions == 1:
            self._note_start(server.launch, seen, time.monotonic() - began)
        return server

    def _note_start(self, launch: Launch, seen: ReadBack, took_s: float) -> None:
        """What the first session shows: that it came up, how it was launched, and any drift."""
        outcome = self._observer.outcome
        outcome.launch = launch.model_dump(mode="json")
        outcome.unverified = seen.unverified
        self._observer.keep(
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


def _control_failed(failure: Failure) -> Failure:
    """The failure of a control that ran beside a candidate, which says nothing of the candidate.

    A sick device or host is what it is, and the trial is tried again elsewhere. A control that
    fails by itself, after it has served before, means that the lane is sick.
    """
    reason = f"The control did not serve beside the candidate: {failure.reason}"
    if failure.blame in ("device", "host"):
        return failure.model_copy(update={"reason": reason})
    changes = {"code": Code.LANE_UNHEALTHY.value, "blame": "host", "reason": reason}
    return failure.model_copy(update=changes)


def _not_gone(ended: Teardown) -> Failure:
    """The failure of a session that left something behind: nothing more is measured beside it."""
    left = f"processes {', '.join(map(str, ended.leftovers))}" if ended.leftovers else "its port"
    return Failure(
        code=Code.DEVICE_DIRTY.value,
        phase="teardown",
        blame="device",
        retry=True,
        reason=f"The engine could not be ended: {left} is still there.",
    )
