"""Keeping what a trial shows while it runs, and telling the driver of it as it happens."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from objectives import GateKind, GateResult, GateStatus
from runners import Lease, Report
from tuner.ledger import utc_now
from tuner.trial import ControlCheck, TrialOutcome


class Observer:
    """The one place that a running trial writes to: its outcome, and the reports to the driver."""

    def __init__(self, lease: Lease, report: Report) -> None:
        self.outcome = TrialOutcome(
            rung="startup",
            host=lease.host,
            devices=tuple(device.id for device in lease.devices),
            started_at=utc_now(),
        )
        self._report = report
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def finished(self) -> TrialOutcome:
        """The outcome, complete with its times."""
        self.outcome.seconds_by_rung = dict(self._seconds)
        self.outcome.finished_at = utc_now()
        return self.outcome

    @contextmanager
    def spending(self, rung: str) -> Iterator[None]:
        """Count the seconds of the block as spent on `rung`, also when it raises."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[rung] += time.monotonic() - began

    @property
    def failed(self) -> GateResult | None:
        """The first gate that failed, or None."""
        return next((g for g in self.outcome.gates if g.status is GateStatus.FAILED), None)

    def keep(self, result: GateResult) -> None:
        """A gate of the trial has its result."""
        self.outcome.gates.append(result)
        told: dict[str, Any] = {"result": result.model_dump(mode="json")}
        if result.kind is GateKind.SPEED and self.outcome.rate is not None:
            told["tok_s"] = self.outcome.rate.tok_s.mean
        self._report(told)

    def keep_control(self, result: GateResult, depth: int) -> None:
        """The control was asked the same as a candidate that failed."""
        self.outcome.control_gates[result.gate] = result
        self.note_control(result, depth)

    def note_control(self, result: GateResult, depth: int) -> None:
        """The control was seen at this depth, which later candidates that fail there can use."""
        if result.status is GateStatus.MISSING:
            return
        self.outcome.control_checks[result.gate] = ControlCheck(
            result=result, depth=depth, host=self.outcome.host, checked_at=time.time()
        )

    def tell(self, rung: str, gate: str, done: int = 0, total: int = 0) -> None:
        """Report how far a gate, or a phase such as a start, has come."""
        self._report({"rung": rung, "gate": gate, "done": done, "total": total})

    def progress(self, rung: str, gate: str) -> Callable[[int, int], None]:
        """What a gate calls while it runs."""
        return lambda done, total: self.tell(rung, gate, done, total)
