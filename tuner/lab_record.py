"""A laboratory's trial records: the form of the file, and how it is read.

A file is a YAML list of records. A record has:

- `id`, `kind` (endpoint, oracle_parity, kernel, timing_diagnostic, startup, topology), `verdict`
  (accepted_base, promoted, promising, neutral, deferred, rejected, invalid, diagnostic), `reason`,
  and `verdict_inferred`: true where the laboratory wrote no explicit word;
- `base`: the id of the record it was compared with, or a phrase;
- `env`: what it was started with, among it METRICS_REPEATS, JSON_REPEATS and COLOR_REPEATS;
- `gates`: `metrics` (repeats), `json` and `color` (requested, completed_or_failed_at, passed),
  `quality` and `long_context` (status), `parity` (status, mode, mismatches, roles,
  first_divergence, compared_with); a status is pass, fail, skipped or not_run;
- `metrics`: tok_s_corrected, drafted, and differences (`delta_*`, `speedup_*`) from a control;
- `failure`: class (`none` where the engine did not fail), phase, detail.

Everything else in a record is ignored. `tuner.recorded` judges what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

SPECULATION = re.compile(r"spec|ngram|draft|oracle-?k?\d")
"""How the laboratory names trials of speculative decoding."""

ACTIVITY = ("drafted", "accepted", "acceptance_rate", "mean_acceptance_length", "trace_rows")
"""Metrics of which any one above zero shows that tokens were drafted."""


class RecordedError(ValueError):
    """A file of records cannot be read; the message says where and why."""


class Record(BaseModel):
    """One record, as far as it is read here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    kind: str
    verdict: str
    reason: str = ""
    verdict_inferred: bool = False
    base: str | None = None
    env: Mapping[str, Any] = {}
    gates: Mapping[str, Mapping[str, Any]] = {}
    metrics: Mapping[str, Any] = {}
    failure: Mapping[str, str] | None = None

    @property
    def is_reference(self) -> bool:
        """Whether it records what the control says, rather than trying a candidate."""
        return self.reason.lower().startswith("control") or "nospec" in self.id

    @property
    def speculates(self) -> bool:
        """Whether it tries speculative decoding, so that a draft has to be shown."""
        return not self.is_reference and bool(SPECULATION.search(self.id.lower()))

    @property
    def rate(self) -> float | None:
        """Corrected decode rate, tokens per second."""
        value = self.metrics.get("tok_s_corrected")
        return None if value is None else float(value)

    @property
    def failure_class(self) -> str:
        """The laboratory's class of failure, `none` where the engine did not fail."""
        return "none" if self.failure is None else self.failure.get("class", "none")


def read_records(path: Path) -> list[Record]:
    """The records of a file. Raises RecordedError."""
    try:
        rows = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordedError(f"{path}: cannot read this file ({error.strerror}).") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise RecordedError(f"{path}: is not valid YAML ({error}).") from None
    if not isinstance(rows, list):
        raise RecordedError(f"{path}: must be a list of records.")
    records: list[Record] = []
    for number, row in enumerate(rows, start=1):
        try:
            records.append(Record.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "record"
            name = row.get("id", "without id") if isinstance(row, dict) else "not a mapping"
            raise RecordedError(
                f"{path}: record {number} ({name}): {where}: {first['msg']}."
            ) from None
    return records
