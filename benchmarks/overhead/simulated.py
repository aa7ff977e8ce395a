"""A fleet that exists only as numbers: trials take their time, and nothing is started for them.

Only the control's trial is real (the scripted engine of the tests), since candidates are compared
with its tokens. A candidate's attempt ends after its seconds, in the way that `fate` says.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from typing import Literal

from objectives import GateKind, GateResult, GateStatus
from runners import (
    Demand,
    Device,
    DeviceReading,
    Event,
    Failure,
    Finished,
    Health,
    Lost,
    Task,
    Ticket,
)
from runners.device import Lease
from runners.dispatch import Waiting
from runners.leasing import LeasingBackend
from tuner.ledger import utc_now
from tuner.trial import TrialOutcome

Fate = Literal["too slow", "crashes", "host fault", "lost", "raises"]


def always_slow() -> Fate:
    """Every candidate is measured and found slow."""
    return "too slow"


def random_fate(seed: int) -> Callable[[], Fate]:
    """Half of the attempts are measured; the others end in every other way."""
    draw = random.Random(seed)
    fates: list[Fate] = ["too slow", "too slow", "too slow", "crashes", "host fault", "lost"]
    return lambda: draw.choice([*fates, "raises"] if draw.random() < 0.1 else fates)


class SimulatedFleet(LeasingBackend):
    """`hosts` hosts with `devices_each` CPU devices; an attempt takes `seconds` of real time."""

    def __init__(
        self,
        hosts: int,
        *,
        devices_each: int = 1,
        seconds: float = 1.0,
        fate: Callable[[], Fate] = always_slow,
    ) -> None:
        super().__init__()
        self._book.join(
            DeviceReading(Device("cpu", index, "simulated", f"host{host:04}"), Health.HEALTHY)
            for host in range(hosts)
            for index in range(devices_each)
        )
        self._seconds = seconds
        self._fate = fate
        self._order = itertools.count()
        self._due: list[tuple[float, int, Waiting, Lease]] = []
        self._cancelled: list[Ticket] = []
        self.began_candidates: float | None = None
        self.last_end = 0.0
        self.busy_s = 0.0

    def stranded(self, devices: Demand) -> str | None:  # noqa: ARG002 - the interface has it
        """See `Backend`."""
        return None

    def next_event(self, timeout_s: float) -> Event | None:
        """See `Backend`."""
        if self._cancelled:
            return Lost(self._cancelled.pop(), "cancelled", None, cancelled=True)
        wait_s = min(timeout_s, self._due[0][0] - time.monotonic()) if self._due else timeout_s
        if wait_s > 0:
            time.sleep(wait_s)
        if not self._due or self._due[0][0] > time.monotonic():
            return None
        _, _, waiting, lease = heapq.heappop(self._due)
        event = self._end(waiting, lease)
        self._book.release(lease)
        self._start_what_can_start()
        return event

    def cancel(self, ticket: Ticket) -> None:
        """See `Backend`."""
        kept = [entry for entry in self._due if entry[2].ticket != ticket]
        for entry in self._due:
            if entry[2].ticket == ticket:
                self._book.release(entry[3])
                self._cancelled.append(ticket)
        heapq.heapify(kept)
        self._due = kept
        if self._dispatch.withdraw(ticket):
            self._cancelled.append(ticket)

    def close(self) -> None:
        """See `Backend`."""
        self._due.clear()

    def quarantine(self, device: Device, reason: str) -> None:
        """See `Backend`."""
        self._book.put_aside(device.id, reason)

    def _start_what_can_start(self) -> None:
        now = time.monotonic()
        for waiting, lease in self._dispatch.assign():
            seconds = 0.0 if _is_control(waiting.task) else self._seconds
            if seconds and self.began_candidates is None:
                self.began_candidates = now
            heapq.heappush(self._due, (now + seconds, next(self._order), waiting, lease))

    def _end(self, waiting: Waiting, lease: Lease) -> Event:
        ticket = waiting.ticket
        if _is_control(waiting.task):
            return Finished(ticket, waiting.task(lease, _nobody_listens), lease)
        self.busy_s += self._seconds
        self.last_end = time.monotonic()
        fate = self._fate()
        if fate == "lost":
            return Lost(ticket, "its node left", lease.host)
        if fate == "raises":
            return Finished(ticket, None, lease, "Traceback ...\nRuntimeError: simulated")
        return Finished(ticket, outcome(fate, lease, self._seconds), lease)


def outcome(fate: Fate, lease: Lease, seconds: float) -> TrialOutcome:
    """What a trial actor would have brought back."""
    now = utc_now()
    told = TrialOutcome(
        rung="startup",
        host=lease.host,
        devices=tuple(device.id for device in lease.devices),
        seconds_by_rung={"startup": seconds},
        started_at=now,
        finished_at=now,
    )
    if fate in ("crashes", "host fault"):
        is_host = fate == "host fault"
        told.failure = Failure(
            code="host_fault" if is_host else "startup_crash",
            phase="startup",
            blame="host" if is_host else "candidate",
            retry=is_host,
            reason="It was simulated.",
        )
        return told
    told.rung = "smoke"
    told.gates = [
        _gate("startup", GateKind.STARTUP, GateStatus.PASSED, -1.0, None),
        _gate("speed", GateKind.SPEED, GateStatus.FAILED, 0.5, "too_slow"),
    ]
    return told


def _gate(
    name: str, kind: GateKind, status: GateStatus, constraint: float, code: str | None
) -> GateResult:
    return GateResult(
        gate=name,
        kind=kind,
        rung="smoke",
        status=status,
        code=code,
        reason="It was simulated.",
        constraint=constraint,
        seconds=0.0,
        evidence={},
    )


def _is_control(task: Task) -> bool:
    plan = getattr(task, "plan", None)
    return plan is not None and plan.role == "control"


def _nobody_listens(payload: dict[str, object]) -> None:
    """The report of a control that nobody watches."""
