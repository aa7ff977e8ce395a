"""What of a trial becomes a column: parameters, metrics and tags of its MLflow run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from objectives import GateKind, GateStatus, Rate
from tuner.ledger import TrialRecord
from tuner.notebook import headline
from tuner.verdict import Code, Verdict

LONGEST_PARAM = 6000
LONGEST_TAG = 8000
LONGEST_KEY = 250
"""MLflow's own limits, characters; beyond them it would cut without a trace in the run."""


@dataclass(frozen=True)
class Point:
    """One value of a metric at a step; a metric without a series has step 0 only."""

    key: str
    value: float
    step: int = 0


@dataclass(frozen=True)
class RunFields:
    """The columns of one run, ready to be sent."""

    name: str
    status: str
    started_ms: int
    finished_ms: int
    params: Mapping[str, str]
    points: tuple[Point, ...]
    tags: Mapping[str, str]


def run_fields(
    record: TrialRecord, control: TrialRecord | None, redact: Callable[[str], str]
) -> RunFields:
    """Project a record onto MLflow's fields. Pure: the same record gives the same fields."""
    return RunFields(
        name=headline(record),
        status=_status(record),
        started_ms=milliseconds(record.started_at),
        finished_ms=milliseconds(record.finished_at),
        params={k: redact(v) for k, v in _params(record).items()},
        points=tuple(_points(record, control)),
        tags={k: redact(shorten(v, LONGEST_TAG)) for k, v in _tags(record).items()},
    )


def milliseconds(moment: str) -> int:
    """Milliseconds since the epoch of an ISO 8601 time."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def shorten(text: str, limit: int) -> str:
    """The text if it fits, else its beginning with a note that says what is missing and where."""
    if len(text) <= limit:
        return text
    note = f"… [cut: {len(text)} characters in all; whole in the artifact identity.json]"
    return text[: limit - len(note)] + note


def _status(record: TrialRecord) -> str:
    if record.verdict is not Verdict.INVALID:
        return "FINISHED"
    interrupted = record.rejection is not None and record.rejection.code is Code.INTERRUPTED
    return "KILLED" if interrupted else "FAILED"


def _params(record: TrialRecord) -> dict[str, str]:
    """Every knob, and every argument and variable that holds, as `arg.x` and `env.X`."""
    found = {f"knob.{name}": value for name, value in record.assignment.items()}
    configuration = record.identity.configuration
    for part, prefix in (("args", "arg"), ("env", "env")):
        found |= {f"{prefix}.{k}": v for k, v in configuration.get(part, {}).items()}
    return {
        _key(name): shorten(v if isinstance(v, str) else json.dumps(v), LONGEST_PARAM)
        for name, v in found.items()
    }


def _key(name: str) -> str:
    """A name of characters that MLflow takes for a column."""
    safe = "".join(c if c.isalnum() or c in "_-. :/" else "_" for c in name)
    return safe[:LONGEST_KEY]


def _points(record: TrialRecord, control: TrialRecord | None) -> list[Point]:
    points = [Point("seconds", record.seconds)]
    points += [Point(f"seconds.{rung}", s) for rung, s in record.seconds_by_rung.items()]
    if record.rate is not None:
        points += rate_points(record.rate)
        if control is not None and control.tok_s:
            points.append(Point("tok_s.ratio_to_control", record.rate.tok_s.mean / control.tok_s))
    for gate in record.gates:
        points.append(Point(f"gate.{gate.gate}.constraint", gate.constraint))
        points.append(Point(f"gate.{gate.gate}.passed", float(gate.status is GateStatus.PASSED)))
        if gate.kind in (GateKind.CANARY, GateKind.PARITY, GateKind.AB):
            points += _numbers(f"{gate.gate}", gate.evidence)
    return _last_of_each([p for p in points if math.isfinite(p.value)])


def rate_points(rate: Rate) -> list[Point]:
    """A rate's means and bounds, and one series with a step per repeat."""
    points = [
        Point("tok_s", rate.tok_s.mean),
        Point("tok_s.repeats", rate.tok_s.n),
        Point("tok_s_end_to_end", rate.tok_s_end_to_end.mean),
        Point("ttft_ms", rate.ttft_ms.mean),
    ]
    if rate.tok_s.low is not None and rate.tok_s.high is not None:
        points += [Point("tok_s.low", rate.tok_s.low), Point("tok_s.high", rate.tok_s.high)]
    document = rate.model_dump(mode="json")
    points += _numbers("itl_ms", document["itl_ms"])
    for step, row in enumerate(document["repeats"], start=1):
        points += [Point(f"repeat.{point.key}", point.value, step) for point in _numbers("", row)]
    return points


def _numbers(prefix: str, document: Mapping[str, Any]) -> list[Point]:
    """The scalar numbers of a flat document, as metrics."""
    return [
        Point(_key(f"{prefix}.{name}" if prefix else name), float(value))
        for name, value in document.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _last_of_each(points: list[Point]) -> list[Point]:
    """One value for each metric and step: a gate that ran on several rungs shows its deepest."""
    return list({(p.key, p.step): p for p in points}.values())


def _tags(record: TrialRecord) -> dict[str, str]:
    rejection = record.rejection
    tags = {
        "verdict": record.verdict.value,
        "rung": record.rung,
        "role": record.role,
        "identity.sha": record.identity.sha,
        "control.sha": record.control_sha or "",
        "lane": record.lane,
        "host": record.host,
        "device": ", ".join(record.devices),
        "engine.version": str(record.identity.engine.get("version", "")),
        "study": record.study,
        "trial": str(record.number),
        "attempt": str(record.attempt),
        "quality_validated": str(record.judgement.quality_validated).lower(),
        "promotion_ready": str(record.judgement.promotion_ready).lower(),
        "missing": ", ".join(record.judgement.missing),
        "rejection.code": rejection.code.value if rejection else "",
        "rejection.reason": rejection.reason if rejection else "",
        "rejection.gate": rejection.gate if rejection else "",
    }
    if record.duplicate_of is not None:
        tags["duplicate_of"] = str(record.duplicate_of)
    return {name: value for name, value in tags.items() if value}
