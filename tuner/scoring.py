"""What the sampler is told of a trial: one value, and one constraint for each gate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from objectives import GateStatus, Objective
from tuner.ledger import TrialRecord

UNPROVEN = 1e-3
"""The constraint of a gate that did not run: not shown to hold, and lighter than any failure."""


def required_gates(objective: Objective, role: str = "candidate") -> frozenset[str]:
    """The gates of the deepest rung that acceptance needs, and a start.

    The control is compared with nobody, so it needs neither a speed verdict nor an A/B bound.
    """
    gates = {"startup", *objective.gate_names(objective.deepest)}
    return frozenset(gates - {"speed", "ab"} if role == "control" else gates)


def constraint_names(objective: Objective) -> tuple[str, ...]:
    """Every constraint that the sampler is told of each trial, in a fixed order."""
    return ("static", *sorted(required_gates(objective)))


def value_of(record: TrialRecord, objective: Objective) -> float | None:
    """The objective's metric at the deepest rung that measured it; None if nothing was measured."""
    return None if record.rate is None else fmean(record.rate.samples(objective.metric))


def constraints_of(record: TrialRecord, names: Sequence[str]) -> dict[str, float]:
    """Constraint values of a settled trial, all of `names`, 0 or less meaning that the gate holds.

    An engine that failed, also in the middle of a gate, counts against `startup`: whether it lives
    is one question, and the gates that it did not reach are not shown to hold.
    """
    values = dict.fromkeys(names, UNPROVEN)
    values["static"] = 0.0
    for gate in record.gates:
        if gate.gate in values:
            failed = gate.status is GateStatus.FAILED
            values[gate.gate] = max(gate.constraint, UNPROVEN) if failed else 0.0
            if gate.status is GateStatus.MISSING:
                values[gate.gate] = UNPROVEN
    if record.failure is not None:
        values["startup"] = 1.0
    return values
