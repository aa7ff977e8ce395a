"""The flags of the scripted server: some of vLLM's, its pace, its faults, and knobs for studies."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

# Flags of vLLM that this server takes and only remembers (what it "resolved" is in /server_info).
VALUE_FLAGS = [
    "served-model-name",
    "dtype",
    "quantization",
    "kv-cache-dtype",
    "block-size",
    "seed",
    "tokenizer",
    "revision",
    "gpu-memory-utilization",
    "max-num-batched-tokens",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "load-format",
    "data-parallel-size",
    "generation-config",
    "optimization-level",
    "shutdown-timeout",
    "uvicorn-log-level",
    "distributed-executor-backend",
    "attention-backend",
    "chat-template",
    "num-gpu-blocks-override",
]
SWITCHES = [
    "enforce-eager",
    "enable-prefix-caching",
    "async-scheduling",
    "enable-chunked-prefill",
    "trust-remote-code",
    "enable-prompt-tokens-details",
    "enable-log-requests",
    "enable-request-id-headers",
    "disable-log-stats",
    "fail-on-environ-validation",
    "enable-per-request-metrics",
    "enable-expert-parallel",
]
JSON_FLAGS = [
    "speculative-config",
    "compilation-config",
    "override-generation-config",
    "additional-config",
    "hf-overrides",
]


def parser() -> argparse.ArgumentParser:
    """The flags; an unknown one ends the process with status 2, as it does in vLLM."""
    p = argparse.ArgumentParser(
        description="A scripted OpenAI-compatible server.",
        allow_abbrev=False,
    )
    p.add_argument("model_path", nargs="?", help="as in `vllm serve MODEL`")
    p.add_argument("--model")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--api-key")
    p.add_argument("--max-model-len", type=int, default=32768)
    p.add_argument("--max-num-seqs", type=int, default=256)
    for name in VALUE_FLAGS:
        p.add_argument(f"--{name}")
    for name in SWITCHES:
        p.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    for name in JSON_FLAGS:
        p.add_argument(f"--{name}", type=json.loads)
    pace = p.add_argument_group("pace")
    pace.add_argument(
        "--tok-s",
        type=float,
        default=500.0,
        help="tokens per second of each stream; 0 is as fast as it can",
    )
    pace.add_argument(
        "--ttft-s", type=float, default=0.0, help="extra seconds before the first token"
    )
    pace.add_argument("--startup-s", type=float, default=0.0, help="seconds before it listens")
    pace.add_argument(
        "--drift", type=float, default=0.0, help="each request is slower by this share of the first"
    )
    pace.add_argument(
        "--first-slow", type=float, default=1.0, help="factor by which the first request is slower"
    )
    pace.add_argument(
        "--jitter", type=float, default=0.0, help="uniform relative noise of the rate, per request"
    )
    pace.add_argument(
        "--batch-slowdown",
        type=float,
        default=0.0,
        help="slower by this share per other open stream",
    )
    pace.add_argument("--chunk", type=int, default=1, help="tokens per server-sent event")
    say = p.add_argument_group("what it says")
    say.add_argument(
        "--flip-token-at", type=int, help="from this index on, other tokens than the script's"
    )
    say.add_argument(
        "--corrupt-canary-at",
        type=int,
        help="the N-th repeat (1-based) of each canary prompt is wrong",
    )
    say.add_argument(
        "--corrupt-canaries-while", type=Path, help="canaries are wrong while this file exists"
    )
    say.add_argument("--corrupt-probability", type=float, default=0.0)
    say.add_argument("--random-seed", type=int, default=0)
    say.add_argument(
        "--natural-length",
        type=int,
        help="tokens before the end-of-sequence token; default by prompt",
    )
    say.add_argument("--cached-tokens", type=int, default=0)
    say.add_argument(
        "--answers", type=answers, default=[], help="JSON file {part of a prompt: its answer}"
    )
    fail = p.add_argument_group("faults")
    fail.add_argument("--fail-request", type=int)
    fail.add_argument("--fail-status", type=int, default=500)
    fail.add_argument("--die-at", help="startup | ready | request:N | midstream:N")
    fail.add_argument("--exit-code", type=int, default=1)
    fail.add_argument("--hang-at", help="startup | request:N | midstream:N")
    fail.add_argument("--ignore-sigterm", action="store_true")
    fail.add_argument("--ignore-sigint", action="store_true")
    fail.add_argument(
        "--stuck-shutdown",
        action="store_true",
        help="a signal while a stream is open waits for its end",
    )
    fail.add_argument(
        "--leave-orphan", action="store_true", help="start a grandchild in a session of its own"
    )
    fail.add_argument(
        "--ignore-flag",
        action="append",
        default=[],
        help="report the default for this flag, not what was asked",
    )
    seen = p.add_argument_group("what it shows")
    seen.add_argument("--log-lines", type=int, default=0)
    seen.add_argument("--print", action="append", default=[], metavar="LINE")
    seen.add_argument("--echo-env", action="append", default=[], metavar="NAME")
    seen.add_argument("--engine-version", default="0.0.0+scripted")
    seen.add_argument("--spec-drafts", type=int, default=0)
    seen.add_argument("--spec-accepted", type=int, default=0)
    knob = p.add_argument_group("knobs, for studies")
    knob.add_argument(
        "--knob-speed", type=float, default=1.0, help="multiplies the rate; so does $SCRIPTED_SPEED"
    )
    knob.add_argument(
        "--knob-wrong", type=int, choices=(0, 1), default=0, help="1: other tokens from index 12 on"
    )
    knob.add_argument("--knob-wrong-canary", type=int, choices=(0, 1), default=0)
    knob.add_argument(
        "--knob-crash", type=int, choices=(0, 1), default=0, help="1: ends during start-up"
    )
    knob.add_argument("--knob-idle", help="no effect at all")
    return p


def answers(path: str) -> list[tuple[str, str]]:
    """The pairs of a JSON object."""
    return list(json.loads(Path(path).read_text(encoding="utf-8")).items())


def undotted(argv: list[str]) -> list[str]:
    """`--speculative-config.x 3` as vLLM takes it, folded into one JSON value for argparse."""
    plain: list[str] = []
    folded: dict[str, Any] = {}
    rest = iter(argv)
    for item in rest:
        flag, _, path = item.partition(".")
        if flag[2:] not in JSON_FLAGS or not path:
            plain.append(item)
            continue
        key, equals, value = path.partition("=")
        value = value if equals else next(rest, "")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        inner = folded.setdefault(flag, {})
        *parents, leaf = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[leaf] = parsed
    for flag, value in folded.items():
        plain += [flag, json.dumps(value)]
    return plain
