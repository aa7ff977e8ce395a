"""A tuning run as data: JSON lines, the first of which says where and how the rest came about."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.ops import KernelError
from kernels.tuning import KernelTrial, TuneResult


@dataclass(frozen=True)
class TrialTable:
    """A table read back. `header` is the identity: device, versions, date, command, case."""

    header: dict[str, Any]
    rows: tuple[KernelTrial, ...]


def write_table(result: TuneResult, path: str | Path, *, command: str) -> None:
    """Write every trial of `result`; `command` is what a reader runs to measure it again."""
    with Path(path).open("w", encoding="utf-8") as file:
        for line in table_lines(result, command):
            file.write(json.dumps(line) + "\n")


def table_lines(result: TuneResult, command: str) -> Iterator[dict[str, Any]]:
    """The header, then one line per trial in the order of the parameters."""
    names = sorted({name for trial in result.trials for name in trial.config})
    yield {
        "table": "kernel trials",
        "op": result.op,
        "case": result.case.to_json(),
        "candidate": result.candidate,
        "metric": "us",
        "direction": "minimize",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "command": command,
        "identity": result.identity,
        "limits": result.limits.to_json(),
        "ceilings": result.ceilings.to_json(),
        "parameters": names,
        "trials": len(result.trials),
        "counts": result.counts(),
        "best": result.best.to_json() if result.best else None,
        "deep_check": result.deep.reason if result.deep else None,
        "separate_us": result.separate_us,
        "floor_us": result.floor_us,
    }
    for trial in sorted(result.trials, key=lambda t: [str(t.config.get(n)) for n in names]):
        yield {
            "config": trial.config,
            "status": trial.status,
            "us": rounded(trial.us),
            "low_us": rounded(trial.low_us),
            "high_us": rounded(trial.high_us),
            "warm_us": rounded(trial.warm_us),
            "reason": "" if trial.status == "exact" else trial.reason,
        }


def rounded(value: float | None) -> float | None:
    """A tenth of a nanosecond is finer than any clock here."""
    return None if value is None else round(value, 4)


def read_table(path: str | Path) -> TrialTable:
    """Read a table back. Raises KernelError naming the line that is not one of a table."""
    rows: list[KernelTrial] = []
    header: dict[str, Any] | None = None
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                data = json.loads(line)
                if header is None:
                    header = data if data["table"] == "kernel trials" else None
                    if header is None:
                        raise ValueError("not a table of kernel trials")
                    continue
                rows.append(KernelTrial(number=len(rows), **data))
            except (ValueError, KeyError, TypeError) as error:
                raise KernelError(f"{path}, line {number}: {error}") from error
    if header is None:
        raise KernelError(f"{path} is empty")
    return TrialTable(header, tuple(rows))
