"""A result record for leaderboards: what ran, how fast, how right, and hashes to check it by."""

from __future__ import annotations

import json
from typing import Any

from objectives import GateKind, GateStatus
from tuner.export.settings import ExportError, Settings
from tuner.identity import sha256_of
from tuner.standing import status_of

SCHEMA = "tuner.result/1"

CORRECTNESS = (GateKind.CANARY, GateKind.PARITY, GateKind.QUALITY)


def result_record(settings: Settings) -> str:
    """The record as JSON. Raises ExportError for a trial that measured no rate.

    `outputs` are hashes of the token ids of each measured repeat, by the prompt's name; two
    records with the same prompts and outputs said the same. No host name and no path is in it.
    """
    record = settings.record
    if record.rate is None:
        raise ExportError(f"trial {record.number} measured no rate, so it has no result to record.")
    rate, identity = record.rate, record.identity
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "identity": identity.sha,
        "verdict": record.verdict.value,
        "measured_at": record.finished_at,
        "model": {
            "name": identity.model.get("name"),
            "files_sha256": sha256_of(identity.model.get("files", {})),
            "quantization": _first(settings.args, "quantization", "none"),
            "dtype": _first(settings.args, "dtype", "auto"),
        },
        "hardware": dict(identity.topology),
        "engine": {k: v for k, v in identity.engine.items() if k not in ("binaries", "command")},
        "engine_binaries_sha256": sha256_of(identity.engine.get("binaries", {})),
        "configuration": identity.configuration,
        "workload": rate.workload.model_dump(mode="json"),
        "rates": {
            "tok_s": rate.tok_s.model_dump(mode="json"),
            "tok_s_end_to_end": rate.tok_s_end_to_end.model_dump(mode="json"),
            "ttft_ms": rate.ttft_ms.model_dump(mode="json"),
            "itl_ms": rate.itl_ms.model_dump(mode="json"),
        },
        "correctness": {
            **{kind.value: status_of(record, kind) for kind in CORRECTNESS},
            "quality_validated": record.judgement.quality_validated,
            "promotion_ready": record.judgement.promotion_ready,
            "evidence": {
                gate.gate: gate.reason
                for gate in record.gates
                if gate.kind in CORRECTNESS and gate.status is not GateStatus.MISSING
            },
        },
        "prompts_sha256": sha256_of([row.prompt for row in rate.repeats]),
        "outputs": [{"prompt": row.prompt, "sha": row.output_sha} for row in rate.repeats],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _first(args: Any, name: str, default: str) -> Any:
    value = args.get(name)
    return default if value is None else value
