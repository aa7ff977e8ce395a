"""What the engine resolved is compared with what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runners import Runner, plan_launch
from runners.read_back import ReadBack, compare
from tests.runners.scripted import LEASE

INFO = json.loads((Path(__file__).parent / "data" / "server_info.json").read_text())


def read_back(args: dict[str, Any], env: dict[str, str] | None = None, log: str = "") -> ReadBack:
    launch = plan_launch(
        Runner(name="r", python="/p", model="m"),
        args=args,
        env=env or {},
        lease=LEASE,
        port=1,
        directory=Path("/trial"),
        marker="s/1/1",
    )
    return compare(
        launch,
        version="0.32.0",
        config=INFO["vllm_config"],
        env=INFO["vllm_env"],
        system={},
        log=[log],
    )


@pytest.mark.parametrize(
    "args",
    [
        {"dtype": "bfloat16", "enforce-eager": True, "max-model-len": 2048},
        {"kv-cache-dtype": "auto", "max-num-batched-tokens": 2048, "block-size": 128},
        {"max-model-len": "2048", "enable-prefix-caching": True},
        {"quantization": None, "async-scheduling": False},
    ],
)
def test_what_was_asked_for_and_runs_is_no_drift(args: dict[str, Any]) -> None:
    assert read_back(args).drift == ()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"async-scheduling": True}, "--async-scheduling was asked to be true and is false"),
        ({"dtype": "float16"}, "--dtype was asked to be 'float16' and is 'torch.bfloat16'"),
        ({"kv-cache-dtype": "fp8"}, "--kv-cache-dtype was asked to be 'fp8' and is 'auto'"),
        ({"speculative-config.method": "ngram"}, "--speculative-config.method"),
        ({"compilation-config": {"mode": 3}}, "--compilation-config.mode was asked to be 3"),
    ],
)
def test_a_flag_that_the_engine_ignored_or_changed_is_drift(
    args: dict[str, Any], says: str
) -> None:
    assert any(says in sentence for sentence in read_back(args).drift)


def test_environment_is_compared_too() -> None:
    assert read_back({}, {"VLLM_CPU_KVCACHE_SPACE": "1"}).drift == ()
    assert "VLLM_CPU_KVCACHE_SPACE" in read_back({}, {"VLLM_CPU_KVCACHE_SPACE": "4"}).drift[0]
    assert read_back({}, {"VLLM_CPU_ATTN_SPLIT_KV": "1"}).drift == ()
    assert read_back({}, {"VLLM_CPU_ATTN_SPLIT_KV": "0"}).drift != ()


def test_what_the_engine_shows_nowhere_is_unverified_not_proven() -> None:
    seen = read_back({"uvicorn-log-level": "warning"}, {"VLLM_NO_SUCH": "1"})
    assert seen.unverified == ("uvicorn-log-level", "VLLM_NO_SUCH")
    assert seen.drift == ()


def test_a_quantization_that_does_nothing_is_drift() -> None:
    seen = read_back({}, log="(Worker pid=1) INFO [x.py:1] Quantizing 0 layers with int8")
    assert "0 layers" in seen.drift[0]
