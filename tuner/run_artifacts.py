"""The files of a trial's MLflow run: its evidence, its script and its tables, free of secrets."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from objectives import GateStatus
from tuner.export import ExportError, Format, export
from tuner.ledger import TrialRecord

TEXT = {".json", ".md", ".sh", ".txt", ".yaml", ".yml", ".jsonl"}
LOGS = {".log"}

Redact = Callable[[str], str]


def stage_artifacts(
    stage: Path,
    record: TrialRecord,
    control: TrialRecord | None,
    *,
    note: str,
    directory: Path,
    redact: Redact,
) -> list[str]:
    """Fill the empty folder `stage`; returns the names of the tables in it.

    `directory` holds the trial's evidence, and may be missing. Logs are compressed; every text
    goes through `redact`.
    """
    for source in sorted(directory.rglob("*")) if directory.is_dir() else []:
        if source.is_file() and not source.is_symlink():
            target = stage / source.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(source, target, redact)
    (stage / "report.md").write_text(redact(note), encoding="utf-8")
    try:
        script = export(record, Format.SH)
    except ExportError:
        pass
    else:
        (stage / "launch.sh").write_text(redact(script), encoding="utf-8")
    tables = {
        "tables/identity_diff.json": _differences(record, control),
        "tables/mismatches.json": _mismatches(record),
    }
    written: list[str] = []
    for name, table in tables.items():
        if table["data"]:
            (stage / "tables").mkdir(exist_ok=True)
            text = json.dumps(table, ensure_ascii=False)
            (stage / name).write_text(redact(text), encoding="utf-8")
            written.append(name)
    return written


def table_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A table in the form that MLflow's UI draws: column names, and rows of values."""
    return {"columns": list(columns), "data": [list(row) for row in rows]}


def _copy(source: Path, target: Path, redact: Redact) -> None:
    if source.suffix in LOGS:
        text = redact(source.read_text(encoding="utf-8", errors="replace"))
        # A fixed time: the same log gives the same file.
        compressed = gzip.compress(text.encode(), mtime=0)
        target.with_name(f"{target.name}.gz").write_bytes(compressed)
    elif source.suffix in TEXT:
        text = source.read_text(encoding="utf-8", errors="replace")
        target.write_text(redact(text), encoding="utf-8")
    elif source.name.endswith(".log.gz"):
        text = redact(gzip.decompress(source.read_bytes()).decode("utf-8", "replace"))
        target.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        shutil.copyfile(source, target)


def _differences(record: TrialRecord, control: TrialRecord | None) -> dict[str, Any]:
    changes = {} if control is None else control.identity.diff(record.identity)
    rows = [(path, _text(before), _text(after)) for path, (before, after) in changes.items()]
    return table_of(("what", "control", "this trial"), rows)


def _mismatches(record: TrialRecord) -> dict[str, Any]:
    """Every place where this trial said something else than it should, a row each."""
    rows: list[tuple[Any, ...]] = []
    for gate in record.gates:
        if gate.status is not GateStatus.FAILED:
            continue
        evidence = gate.evidence
        rows += [
            (
                gate.gate,
                one.get("prompt"),
                one.get("index"),
                _token(one.get("expected_id"), one.get("expected_text")),
                _token(one.get("got_id"), one.get("got_text")),
                one.get("margin"),
            )
            for one in evidence.get("divergences", [])
        ]
        if "failed_at" in evidence:
            answer = _text(evidence.get("answer"))
            rows.append((gate.gate, "", evidence["failed_at"], "", answer, None))
    return table_of(("gate", "prompt", "index or repeat", "expected", "got", "margin"), rows)


def _token(number: int | None, text: str | None) -> str:
    return "the end" if number is None else f"{text!r} ({number})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
