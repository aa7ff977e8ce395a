"""The order of gates within a rung: first what decides soonest per engine-second.

Stopping at the first failure, the expected cost is least when gates run by falling p(fail) /
seconds (the ratio rule for testing components in series: Mitten 1960).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from objectives.gate import GateResult, GateStatus

PRIOR_TRIALS = 4.0
"""How many past trials a gate's assumed failure rate is worth before the ledger speaks."""

PRIOR_FAILING = {"speed": 0.5, "parity": 0.5, "canary": 0.2, "quality": 0.1, "slo": 0.1, "ab": 0.5}
"""Failure rates assumed of an unseen lane, by the first part of a gate's name.

Speed and parity are the likelier killers in the lab's ledger and on vLLM-CPU; quality suites
failed least, and only where a canary failed too.
"""


class PlannedGate(BaseModel):
    """A gate that is about to run, with the engine-seconds it would take if nothing is known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    seconds: float


class GateHistory(BaseModel):
    """What a lane's ledger says of each gate: how often it ran and failed, and how long it took."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ran: Mapping[str, int] = {}
    failed: Mapping[str, int] = {}
    seconds: Mapping[str, float] = {}

    @classmethod
    def of(cls, results: Sequence[GateResult], *, rung: str | None = None) -> GateHistory:
        """The history of past results, of one rung or all; missing gates taught nothing."""
        ran: dict[str, int] = {}
        failed: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for result in results:
            if result.status is GateStatus.MISSING or rung not in (None, result.rung):
                continue
            ran[result.gate] = ran.get(result.gate, 0) + 1
            failed[result.gate] = failed.get(result.gate, 0) + (result.status is GateStatus.FAILED)
            seconds[result.gate] = seconds.get(result.gate, 0.0) + result.seconds
        return cls(ran=ran, failed=failed, seconds=seconds)

    def failing(self, gate: str) -> float:
        """Probability that the gate fails: its record, shrunk towards the prior of its kind."""
        prior = PRIOR_FAILING.get(gate.split(".")[0], 0.2)
        return (self.failed.get(gate, 0) + PRIOR_TRIALS * prior) / (
            self.ran.get(gate, 0) + PRIOR_TRIALS
        )

    def cost_s(self, planned: PlannedGate) -> float:
        """Expected engine-seconds: the mean so far where there is one, else what was planned."""
        ran = self.ran.get(planned.gate, 0)
        return self.seconds.get(planned.gate, 0.0) / ran if ran else planned.seconds


def order_gates(pending: Sequence[PlannedGate], history: GateHistory) -> list[PlannedGate]:
    """The gates by falling probability of failing per second; equal ones keep their order."""
    return sorted(
        pending,
        key=lambda gate: -history.failing(gate.gate) / max(history.cost_s(gate), 1e-3),
    )
