"""Trial records as a study would write them, for tests of what people see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from objectives import GateKind, GateResult, GateStatus
from objectives.rate import Rate, Repeat
from objectives.statistics import percentiles, summarize
from objectives.workload import Workload
from tuner.identity import Identity
from tuner.ledger import TrialRecord
from tuner.verdict import Code, Judgement, Rejection, Verdict

SCRIPTED_SERVER = Path(__file__).parent.parent / "engines" / "scripted_server.py"
WORKLOAD = Workload(name="p128-o128", prompt_tokens=128, output_tokens=128)
CONTROL_ARGS: dict[str, Any] = {"dtype": "bfloat16", "max-num-seqs": 8}


def rate_of(*tok_s: float) -> Rate:
    rows = tuple(
        Repeat(
            prompt=f"prompt {i}",
            prompt_tokens=128,
            output_tokens=128,
            cached_tokens=0,
            ttft_ms=200.0,
            decode_s=127 / speed,
            total_s=0.2 + 127 / speed,
            tok_s=speed,
            tok_s_99=speed,
            tok_s_end_to_end=128 / (0.2 + 127 / speed),
            output_sha="0" * 16,
            started_at_s=5.0 * i,
        )
        for i, speed in enumerate(tok_s)
    )
    return Rate(
        tok_s=summarize(tok_s),
        tok_s_99=summarize(tok_s),
        tok_s_end_to_end=summarize([row.tok_s_end_to_end for row in rows]),
        ttft_ms=summarize([200.0] * len(tok_s)),
        itl_ms=percentiles([1000 / speed for speed in tok_s]),
        e2e_ms=percentiles([1000 * row.total_s for row in rows]),
        ttft_percentiles_ms=percentiles([200.0] * len(tok_s)),
        repeats=rows,
        engine=None,
        workload=WORKLOAD,
        warnings=("Two repeats only: the interval is wide.",) if len(tok_s) == 2 else (),
    )


def identity_of(args: dict[str, Any], env: dict[str, str] | None = None) -> Identity:
    return Identity(
        configuration={"args": args, "env": env or {}},
        engine={"name": "scripted", "version": "0.0.0+scripted"},
        model={"name": "toy"},
        topology={"kind": "cpu", "count": 1},
        workload=WORKLOAD.model_dump(mode="json"),
    )


def gate(
    name: str, kind: GateKind, *, rung: str = "smoke", failed: str | None = None, **evidence: Any
) -> GateResult:
    return GateResult(
        gate=name,
        kind=kind,
        rung=rung,
        status=GateStatus.FAILED if failed else GateStatus.PASSED,
        reason=failed or f"{name} holds.",
        constraint=0.5 if failed else -0.5,
        seconds=1.5,
        evidence=evidence,
    )


def launch_of(args: dict[str, Any], env: dict[str, str] | None = None) -> dict[str, Any]:
    from runners.rendering import render_args

    words = [sys.executable, str(SCRIPTED_SERVER), "--host", "127.0.0.1", "--port", "41999"]
    return {
        "engine": "command",
        "argv": [*words, *render_args(args)],
        "args": args,
        "env": env or {},
        "harness_env": {},
        "inherit": ["PATH", "HOME", "LANG", "LC_*"],
        "secrets": [],
        "cwd": "trial",
        "log": "trial/server.log",
        "log_cap_bytes": 1 << 20,
        "host": "127.0.0.1",
        "port": 41999,
        "marker": "study/0/1/41999",
        "model": "toy",
        "readiness": {"path": "/health", "generation": True, "poll_s": 0.25},
    }


def record_of(number: int, **changes: Any) -> TrialRecord:
    args = changes.pop("args", CONTROL_ARGS)
    env = changes.pop("env", {})
    fields: dict[str, Any] = {
        "study": "quick",
        "lane": "ab12" * 16,
        "number": number,
        "role": "candidate",
        "hypothesis": "dtype=float16 is faster here.",
        "assignment": {k: v for k, v in args.items() if not isinstance(v, (dict, list))},
        "identity": identity_of(args, env),
        "judgement": Judgement(verdict=Verdict.PROMISING),
        "rung": "smoke",
        "rate": rate_of(33.0, 34.0, 33.5),
        "launch": launch_of(args, env),
        "host": "here",
        "devices": ("cpu:0",),
        "seconds_by_rung": {"startup": 20.0, "smoke": 12.5},
        "started_at": f"2026-12-01T10:{number % 60:02}:00.000+00:00",
        "finished_at": f"2026-12-01T10:{number % 60:02}:40.000+00:00",
        "directory": f"trials/{number:04}/attempt-1",
    }
    return TrialRecord(**(fields | changes))


def control_record(number: int = 0, **changes: Any) -> TrialRecord:
    fields: dict[str, Any] = {
        "role": "control",
        "hypothesis": "The reference.",
        "judgement": Judgement(
            verdict=Verdict.ACCEPTED, quality_validated=True, promotion_ready=True
        ),
        "rung": "deep",
    }
    return record_of(number, **(fields | changes))


def rejected_record(number: int, code: Code = Code.PARITY_MISMATCH, **changes: Any) -> TrialRecord:
    reason = "Of 4 prompts, prompt 'clock' differs at index 12: ' the' (262) where ' a' (257) was."
    parity = gate(
        "parity",
        GateKind.PARITY,
        failed=reason,
        prompts=4,
        divergences=[{"prompt": "clock", "index": 12, "margin": 0.03}],
    )
    fields: dict[str, Any] = {
        "args": {**CONTROL_ARGS, "dtype": "float16"},
        "judgement": Judgement(
            verdict=Verdict.REJECTED,
            rejection=Rejection(code=code, reason=reason, gate="parity"),
            missing=("quality.copy",),
        ),
        "gates": (gate("speed", GateKind.SPEED), parity),
        "control_sha": identity_of(CONTROL_ARGS).sha,
    }
    return record_of(number, **(fields | changes))


def accepted_record(number: int, **changes: Any) -> TrialRecord:
    fields: dict[str, Any] = {
        "args": {**CONTROL_ARGS, "max-num-seqs": 16},
        "judgement": Judgement(
            verdict=Verdict.ACCEPTED, quality_validated=True, promotion_ready=True
        ),
        "rung": "deep",
        "rate": rate_of(40.0, 41.0, 40.5, 40.7),
        "gates": (
            gate("speed", GateKind.SPEED, rung="deep"),
            gate("parity", GateKind.PARITY, rung="deep"),
            gate("canary.json", GateKind.CANARY, rung="deep", repeats=64, corruption_bound=0.046),
            gate("ab", GateKind.AB, rung="deep", ratio=1.2, low=1.18, high=1.22),
        ),
        "control_sha": identity_of(CONTROL_ARGS).sha,
    }
    return record_of(number, **(fields | changes))


def invalid_record(number: int, code: Code = Code.HOST_FAULT, **changes: Any) -> TrialRecord:
    fields: dict[str, Any] = {
        "judgement": Judgement(
            verdict=Verdict.INVALID,
            rejection=Rejection(code=code, reason="The actor went away.", gate="host"),
        ),
        "rate": None,
    }
    return record_of(number, **(fields | changes))
