"""A real vLLM is killed in the middle of its work: all of it is gone in time, and it is classed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runners import Device, EngineServer, Lease, Runner, open_engine
from runners.process import MarkedProcess, marked
from tests.runners.scripted import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.engine]

LIMIT_S = 15.0
LEASE = Lease(devices=(Device(kind="cpu", index=0, name="CPU", host="here"),), host="here", id="l")


@pytest.fixture
def server(embedded_engine: Path, embedded_model: Path, tmp_path: Path) -> Iterator[EngineServer]:
    runner = Runner(
        name="vllm-cpu",
        python=str(embedded_engine),
        model=str(embedded_model),
        args={"max-model-len": 2048, "dtype": "bfloat16", "enforce-eager": True},
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
        harness_env={"HF_HUB_OFFLINE": "1"},
    )
    marker = f"vllm-killed-{os.getpid()}/1/1"
    started, _ = open_engine(
        runner, args={}, env={}, lease=LEASE, directory=tmp_path, marker=marker
    )
    yield started
    started.stop()
    assert marked(started.launch.marker) == []


class Stream(threading.Thread):
    """A client in the middle of a long answer."""

    def __init__(self, server: EngineServer) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.events = 0
        self.error: Exception | None = None
        self.started = threading.Event()

    def run(self) -> None:
        body: dict[str, Any] = {
            "model": self.server.model,
            "prompt": "Once upon a time",
            "max_tokens": 1500,
            "ignore_eos": True,
            "stream": True,
        }
        try:
            with httpx.stream(
                "POST", f"{self.server.base_url}/v1/completions", json=body, timeout=30
            ) as answer:
                for line in answer.iter_lines():
                    if '"error"' in line:
                        raise httpx.RemoteProtocolError(line)
                    self.events += 1
                    if self.events == 5:
                        self.started.set()
        except httpx.HTTPError as error:
            self.error = error


@pytest.fixture
def stream(server: EngineServer) -> Stream:
    client = Stream(server)
    client.start()
    assert client.started.wait(60)
    return client


def process(server: EngineServer, name: str) -> MarkedProcess:
    return next(p for p in marked(server.launch.marker) if name in p.command)


def gone_within(server: EngineServer, began: float) -> float:
    """Seconds until nothing of the engine was left."""
    assert eventually(lambda: not marked(server.launch.marker), LIMIT_S)
    took = time.monotonic() - began
    assert took < LIMIT_S
    print(f"gone after {took:.1f} s")
    return took


def test_a_worker_that_is_killed_mid_stream(server: EngineServer, stream: Stream) -> None:
    began = time.monotonic()
    os.kill(process(server, "VLLM::Worker").pid, signal.SIGKILL)
    stream.join(30)
    assert stream.error is not None
    failure = server.diagnose(stream.error)
    assert (failure.code, failure.blame, failure.retry) == ("host_fault", "host", True)
    server.stop()
    gone_within(server, began)


def test_an_api_server_that_is_killed_does_not_leave_its_engine_core(
    server: EngineServer, stream: Stream
) -> None:
    began = time.monotonic()
    assert server.engine_pid is not None
    os.kill(server.engine_pid, signal.SIGKILL)
    gone_within(server, began)  # by the supervisor alone, nobody called stop
    stream.join(30)
    assert stream.error is not None
    failure = server.diagnose(stream.error)
    assert (failure.code, failure.blame) == ("host_fault", "host")
    assert "SIGKILL" in failure.reason


def test_a_server_that_hangs_on_sigterm_with_an_open_stream(
    server: EngineServer, stream: Stream
) -> None:
    began = time.monotonic()
    assert server.engine_pid is not None
    os.kill(server.engine_pid, signal.SIGTERM)
    time.sleep(2)
    assert server.alive, "this version no longer hangs: the ladder may be shortened"
    failure = server.diagnose(httpx.ReadTimeout("no token for a while"))
    assert failure.phase == "serving"
    assert failure.code in ("engine_hung", "engine_died", "host_fault")
    ended = server.stop()
    assert ended.clean
    gone_within(server, began)
    stream.join(30)
