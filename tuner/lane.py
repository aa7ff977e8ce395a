"""One lane of a ledger: the trials that may be compared with each other, and their control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectives import GateHistory, Rate
from tuner.identity import Identity
from tuner.ledger import Ledger, TrialRecord


class Lane:
    """A view of a ledger, always up to date: one lane, and the engine that is installed now.

    Trials of an earlier engine stay in the lane; a control is only what was accepted on this one.
    """

    def __init__(self, ledger: Ledger, sha: str, engine: Mapping[str, Any]) -> None:
        self.sha = sha
        self._ledger = ledger
        self._engine = dict(engine)

    @property
    def trials(self) -> list[TrialRecord]:
        """The last attempt of each trial, by number."""
        return [record for record in self._ledger.trials if record.lane == self.sha]

    @property
    def control(self) -> TrialRecord | None:
        """The accepted record that candidates are compared with, on this engine."""
        return self._ledger.control_on(self._engine)

    @property
    def control_rates(self) -> dict[str, tuple[Rate, ...]]:
        """The present control's sessions by host, oldest first; also those beside candidates."""
        control = self.control
        if control is None:
            return {}
        by_host: dict[str, list[Rate]] = {}
        for trial in self.trials:
            rates = list(trial.control_rates)
            if trial.number == control.number and trial.role == "candidate" and trial.rate:
                rates = [trial.rate]
            elif control.identity.sha not in (trial.control_sha, trial.identity.sha):
                continue
            by_host.setdefault(trial.host, []).extend(rates)
        return {
            host: tuple(sorted(rates, key=lambda rate: rate.started_at))
            for host, rates in by_host.items()
            if rates
        }

    def history(self, rung: str) -> GateHistory:
        """How often each gate of a rung failed here, and what it cost."""
        return GateHistory.of([gate for trial in self.trials for gate in trial.gates], rung=rung)


def what_left_the_lane(ledger: Ledger, identity: Identity, sha: str) -> str | None:
    """What of a study changed so that its new trials could not be compared with those it has.

    None while the ledger holds no other lane.
    """
    foreign = next((record for record in ledger if record.lane != sha), None)
    if foreign is None:
        return None
    parts = {"model": "model's files", "topology": "devices", "workload": "workload"}
    changed = [
        words
        for part, words in parts.items()
        if getattr(foreign.identity, part) != getattr(identity, part)
    ]
    return " and ".join(changed) or "objective"
