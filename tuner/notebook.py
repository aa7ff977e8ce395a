"""The notebook entry of a trial: what an engineer would write by hand, from its record alone."""

from __future__ import annotations

import json
from typing import Any

from objectives import GateKind, GateResult, Rate
from runners.redaction import plain
from tuner.ledger import TrialRecord
from tuner.verdict import CODE_MEANINGS, Verdict

LONGEST_CELL = 160
"""Characters of a table cell; the whole value is in the artifact that the entry names."""

DECISIONS: dict[Verdict, str] = {
    Verdict.ACCEPTED: "It becomes the control of this lane; later candidates are compared with it.",
    Verdict.PROMISING: "Nothing is decided: the deeper rungs did not run, so it is no result yet.",
    Verdict.REJECTED: "It is not used, and this exact identity is not tried again.",
    Verdict.INVALID: "Nothing is concluded about the candidate; no sampler hears of this attempt.",
    Verdict.DIAGNOSTIC: "It routes work only: a run with tracing on is never compared on speed.",
}


def headline(record: TrialRecord) -> str:
    """The trial in one line: number, why, verdict, rate. It names the run in MLflow.

    The code comes first: in the table's narrow column it is what can be read, and it implies the
    verdict.
    """
    verdict = record.verdict.value
    parts = [f"{record.number} {verdict}"]
    if record.rejection is not None:
        parts = [f"{record.number} {record.rejection.code.value}", verdict]
    elif record.role == "control":
        parts = [f"{record.number} control", verdict]
    if record.tok_s is not None:
        parts.append(f"{record.tok_s:.1f} tok/s")
    if record.attempt > 1:
        parts.append(f"attempt {record.attempt}")
    return " · ".join(parts)


def entry(record: TrialRecord, control: TrialRecord | None = None) -> str:
    """Markdown: verdict and reason, hypothesis, what differs from the control, result, decision.

    `control` is the record of the identity that the candidate was compared with; without it the
    entry names the control's hash only.
    """
    sections = [
        _verdict(record),
        f"**Hypothesis.** {_line(record.hypothesis)}",
        _differences(record, control),
        _result(record, control),
        _gates(record),
        *(_mismatch(gate) for gate in record.gates if gate.status == "failed"),
        _failure(record),
        _notices(record),
        f"**Decision.** {_decision(record)}",
        _where(record),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A Markdown table; values are shown as code where they are not plain words or numbers."""
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(_line(str(cell)) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(value: Any) -> str:
    """A value as inline code, cut visibly where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > LONGEST_CELL:
        text = f"{text[:LONGEST_CELL]}… ({len(text)} characters)"
    text = text.replace("\n", "\\n")
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else "(empty)"


def rate_in_words(rate: Rate) -> str:
    """A rate with how sure it is: mean, interval, repeats."""
    speed = rate.tok_s
    if speed.low is None or speed.high is None:
        return f"{speed.mean:.2f} tok/s (one repeat, so no interval)"
    return (
        f"{speed.mean:.2f} tok/s ({speed.confidence:.0%} interval {max(speed.low, 0):.2f} to "
        f"{speed.high:.2f}, {speed.n} repeats)"
    )


def _verdict(record: TrialRecord) -> str:
    rejection = record.rejection
    if rejection is None:
        role = " (the study's control)" if record.role == "control" else ""
        return f"### {record.verdict.value.capitalize()}{role}"
    return (
        f"### {record.verdict.value.capitalize()}: {rejection.code.value}\n\n"
        f"> {_line(rejection.reason)}\n\n"
        f"{CODE_MEANINGS[rejection.code]} Gate: {code(rejection.gate)}, rung: {record.rung}."
    )


def _differences(record: TrialRecord, control: TrialRecord | None) -> str:
    if record.role == "control" and (control is None or control.key == record.key):
        rows = [(name, code(value)) for name, value in record.assignment.items()]
        return "**Identity.** Every knob at its control value.\n\n" + table(("knob", "value"), rows)
    if control is None:
        sha = code((record.control_sha or "none yet")[:12])
        rows = [(name, code(value)) for name, value in record.assignment.items()]
        return f"**Identity.** The control was {sha}.\n\n" + table(("knob", "value"), rows)
    changes = control.identity.diff(record.identity)
    if not changes:
        return "**Identity against the control.** Nothing differs."
    rows3 = [(code(path), code(before), code(after)) for path, (before, after) in changes.items()]
    return f"**Identity against the control** (trial {control.number}).\n\n" + table(
        ("what", "control", "this trial"), rows3
    )


def _result(record: TrialRecord, control: TrialRecord | None) -> str:
    if record.rate is None:
        return "**Result.** No rate was measured."
    text = f"**Result.** {rate_in_words(record.rate)}"
    if control is not None and control.rate is not None and control.key != record.key:
        ratio = record.rate.tok_s.mean / control.rate.tok_s.mean
        text += (
            f"; the control had {rate_in_words(control.rate)}: {ratio:.3f} times, across sessions"
        )
    warnings = [_line(warning) for warning in record.rate.warnings]
    return text + "." + "".join(f"\n- {warning}" for warning in warnings)


def _gates(record: TrialRecord) -> str:
    if not record.gates:
        return "**Gates.** None ran: it ended before an engine was started."
    rows = [
        (code(gate.gate), gate.rung, gate.status.value, f"{gate.seconds:.1f}", gate.reason)
        for gate in record.gates
    ]
    text = "**Gates.**\n\n" + table(("gate", "rung", "status", "seconds", "what was seen"), rows)
    if record.judgement.missing:
        missing = ", ".join(code(name) for name in record.judgement.missing)
        text += f"\n\nNot run, so missing and never counted as passed: {missing}."
    return text


def _mismatch(gate: GateResult) -> str:
    """The evidence of a failed correctness gate: what was expected and what came."""
    if gate.kind not in (GateKind.CANARY, GateKind.PARITY, GateKind.QUALITY) or not gate.evidence:
        return ""
    rows = [
        (name.replace("_", " "), code(value))
        for name, value in gate.evidence.items()
        if value not in (None, [], {}) and not isinstance(value, dict | list)
    ]
    parts = [f"**Evidence of {code(gate.gate)}.**", table(("what", "value"), rows) if rows else ""]
    divergences = gate.evidence.get("divergences") or []
    if divergences:
        columns = ("prompt", "first differs at", "expected", "got", "the reference's margin there")
        cells = [
            (
                one.get("prompt"),
                one.get("index"),
                token(one.get("expected_id"), one.get("expected_text")),
                token(one.get("got_id"), one.get("got_text")),
                "-" if one.get("margin") is None else f"{one['margin']:.4f}",
            )
            for one in divergences
        ]
        parts.append(table(columns, cells))
    return "\n\n".join(part for part in parts if part)


def token(number: int | None, text: str | None) -> str:
    """A token by its text and id; an answer that had already ended has none."""
    return "the end" if number is None else f"{code(repr(text))} ({number})"


def _failure(record: TrialRecord) -> str:
    failure = record.failure
    if failure is None:
        return ""
    excerpt = "\n".join(plain(line) for line in failure.excerpt)
    fence = "~~~~" if "~~~" in excerpt else "~~~"
    status = "" if failure.returncode is None else f", exit status {failure.returncode}"
    return (
        f"**Failure.** During {failure.phase}{status}; to blame: {failure.blame}.\n\n"
        f"{fence}text\n{excerpt}\n{fence}"
    )


def _notices(record: TrialRecord) -> str:
    if not record.notices:
        return ""
    return "**Notices.**\n" + "\n".join(f"- {_line(notice)}" for notice in record.notices)


def _decision(record: TrialRecord) -> str:
    text = DECISIONS[record.verdict]
    if record.duplicate_of is not None:
        text += f" Trial {record.duplicate_of} settled this identity."
    judgement = record.judgement
    facts = (
        f" Quality validated: {_yes(judgement.quality_validated)}; "
        f"promotion ready: {_yes(judgement.promotion_ready)}."
    )
    return text + facts


def _where(record: TrialRecord) -> str:
    place = ", ".join((record.host, *record.devices))
    return (
        f"Identity {code(record.identity.sha)} on {_line(place)}, {record.started_at} to "
        f"{record.finished_at}. Evidence: {code(record.directory)} in the study's folder, and this "
        "run's artifacts."
    )


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _line(text: str) -> str:
    """Text that stays in its line and cannot start markup of its own."""
    flat = " ".join(plain(text).split("\n"))
    return flat.replace("|", "\\|").replace("<", "&lt;")
