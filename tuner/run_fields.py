"""What of a trial becomes a column: parameters, metrics and tags of its MLflow run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from objectives import GateKind, Rate
from tuner.identity import ABSENT
from tuner.ledger import TrialRecord
from tuner.notebook import headline
from tuner.verdict import Code, Verdict

SERIES = ("tok_s", "tok_s_99", "tok_s_end_to_end", "ttft_ms", "decode_s", "started_at_s")
"""Columns of a repeat that become a series, with a step per repeat."""

KINDS = {
    **dict.fromkeys(
        (Code.PARITY_MISMATCH, Code.CANARY_MISMATCH, Code.QUALITY_FAILED), "correctness"
    ),
    **dict.fromkeys(
        (Code.TOO_SLOW, Code.BELOW_FLOOR, Code.GAIN_UNPROVEN, Code.SLO_MISSED), "speed"
    ),
}
"""Codes of gates by what they are about; any other code means that the engine did not serve."""

METRIC_MEANINGS: Mapping[str, str] = {
    "tok_s": "Mean corrected decode rate at the deepest rung that measured one, tokens per second.",
    "tok_s.low": "Lower bound of the mean rate, by Student's t over the repeats of one session.",
    "tok_s.high": "Upper bound of the mean rate.",
    "tok_s_end_to_end": "Tokens over the whole time of a request, mean, tokens per second.",
    "ratio_to_control": "Rate over the rate of its control; of two sessions, so it proves nothing.",
    "ttft_ms": "Time to the first token, mean, milliseconds.",
    "latency/itl_ms.*": "Time between tokens: n, mean, percentiles, maximum, milliseconds.",
    "latency/e2e_ms.*": "Time of a whole request: n, mean, percentiles, maximum, milliseconds.",
    "repeats/*": "A series with one step per measured repeat, in the order of the session.",
    "gates/speed.*": "Ratio to the control with its bounds; of a kernel `us`, microseconds a call, "
    "with their bounds.",
    "gates/canary.*": "A canary's repeats, the repeat that failed, and `corruption_bound`, the "
    "one-sided bound of its corruption rate.",
    "gates/parity.*": "Prompts and tokens compared, and drafts of the speculation meanwhile.",
    "gates/ab.*": "Ratio to the adjacent controls with its bounds, sessions, and the host's drift.",
    "seconds": "Seconds of engine time that the trial took.",
    "seconds/*": "Seconds by rung.",
    "trials/*": "On a study's run: trials by verdict.",
}
"""Every metric by name, `*` for a part that varies: what the reference documentation shows."""

TAG_MEANINGS: Mapping[str, str] = {
    "verdict": "accepted, promising, rejected, invalid or diagnostic.",
    "rejection.code": "Why it was not accepted, from the closed list.",
    "rejection.kind": "The code's family: correctness, speed, engine, static or invalid.",
    "rejection.reason": "One line with the numbers.",
    "rejection.gate": "The gate that said so.",
    "changes": "The knobs that differ from the control's.",
    "rung": "The deepest rung that was reached.",
    "role": "control, candidate or study.",
    "identity.sha": "SHA-256 of everything that decides the result.",
    "control.sha": "The identity that it was compared with.",
    "quality_validated": "Whether every correctness gate of the deepest rung passed.",
    "promotion_ready": "Whether speed was proven too.",
    "missing": "Gates of the deepest rung that did not run.",
    "lane": "What must be equal for two runs to be compared.",
    "host": "Where it ran.",
    "device": "On what it ran.",
    "engine.version": "The engine's version.",
    "study": "The study's name.",
    "trial": "The trial's number in it.",
    "attempt": "Which attempt at it, from 1.",
    "duplicate_of": "The trial that settled the same identity.",
}
"""Every tag of a trial's run."""

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
        tags={k: redact(shorten(v, LONGEST_TAG)) for k, v in _tags(record, control).items()},
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
    points: list[Point] = []
    if record.rate is not None:
        points += rate_points(record.rate)
        if control is not None and control.tok_s:
            points.append(Point("ratio_to_control", record.rate.tok_s.mean / control.tok_s))
    for gate in record.gates:
        if gate.kind in (GateKind.SPEED, GateKind.CANARY, GateKind.PARITY, GateKind.AB):
            evidence = {k: v for k, v in gate.evidence.items() if k != "confidence"}
            points += _numbers(f"gates/{gate.gate}.", evidence)
    points.append(Point("seconds", record.seconds))
    points += [Point(f"seconds/{rung}", s) for rung, s in record.seconds_by_rung.items()]
    return _last_of_each([p for p in points if math.isfinite(p.value)])


def rate_points(rate: Rate) -> list[Point]:
    """A rate's means and bounds, and one series with a step per repeat."""
    points = [
        Point("tok_s", rate.tok_s.mean),
        Point("tok_s_end_to_end", rate.tok_s_end_to_end.mean),
        Point("ttft_ms", rate.ttft_ms.mean),
    ]
    if rate.tok_s.low is not None and rate.tok_s.high is not None:
        points += [Point("tok_s.low", rate.tok_s.low), Point("tok_s.high", rate.tok_s.high)]
    document = rate.model_dump(mode="json")
    points += _numbers("latency/itl_ms.", document["itl_ms"])
    points += _numbers("latency/e2e_ms.", document["e2e_ms"])
    for step, row in enumerate(document["repeats"], start=1):
        points += [
            point for name in SERIES for point in _numbers("repeats/", {name: row[name]}, step)
        ]
    return points


def _numbers(prefix: str, document: Mapping[str, Any], step: int = 0) -> list[Point]:
    """The scalar numbers of a flat document, as metrics."""
    return [
        Point(_key(prefix + name), float(value), step)
        for name, value in document.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _last_of_each(points: list[Point]) -> list[Point]:
    """One value for each metric and step: a gate that ran on several rungs shows its deepest."""
    return list({(p.key, p.step): p for p in points}.values())


def _tags(record: TrialRecord, control: TrialRecord | None) -> dict[str, str]:
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
        "changes": _changes(record, control),
        "missing": ", ".join(record.judgement.missing),
        "rejection.kind": _kind(record),
        "rejection.code": rejection.code.value if rejection else "",
        "rejection.reason": rejection.reason if rejection else "",
        "rejection.gate": rejection.gate if rejection else "",
    }
    if record.duplicate_of is not None:
        tags["duplicate_of"] = str(record.duplicate_of)
    return {name: value for name, value in tags.items() if value}


def _kind(record: TrialRecord) -> str:
    """A word for a family of codes, since MLflow's search knows no OR: said, slow, failed, ..."""
    if record.rejection is None:
        return ""
    if record.verdict is Verdict.INVALID:
        return "invalid"
    if record.rung == "static":
        return "static"
    return KINDS.get(record.rejection.code, "engine")


def _changes(record: TrialRecord, control: TrialRecord | None) -> str:
    """The knobs that differ from the control's, in one line: what the table can show beside why."""
    if record.role == "control":
        return "the control"
    mine, theirs = record.assignment, control.assignment if control is not None else {}
    return ", ".join(f"{k}={v}" for k, v in mine.items() if theirs.get(k, ABSENT) != v)
