"""A scripted server for the tests of the client and of the gates: a real process on a real port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from objectives import Canary, Endpoint, Objective, Rung, Workload

SERVER = Path(__file__).parents[1] / "engines" / "scripted_server.py"
Serve = Callable[..., Endpoint]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start scripted servers with the given flags; all are gone when the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*flags: str) -> Endpoint:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, str(SERVER), "--port", str(port), *flags], stderr=subprocess.DEVNULL
        )
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s:
            try:
                httpx.get(f"{url}/health", trust_env=False)
            except httpx.HTTPError:
                time.sleep(0.02)
            else:
                return Endpoint(url, "scripted")
        raise TimeoutError("the scripted server did not come up")

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def workload() -> Workload:
    return Workload(name="p64-o120", prompt_tokens=64, output_tokens=120, warmup=0)


@pytest.fixture
def objective(workload: Workload) -> Objective:
    """A small objective: three rungs, two canaries, exact parity."""
    return Objective(
        name="small",
        workload=workload,
        session_drift=0.02,
        canaries=(
            Canary(name="json", prompt="Reply with JSON with the key answer: what is 6 x 7?"),
            Canary(name="colours", prompt="Sort alphabetically: red, blue, orange, green"),
        ),
        parity={"output_tokens": 32, "prompts": 4, "prompt_tokens": 48},
        quality={"repeat_runs": 2, "repeat_tokens": 16, "long_context_tokens": 200},
        ladder=(
            Rung(rung="smoke", repeats=1, canary_repeats=2, parity_prompts=2),
            Rung(rung="deep", repeats=4, canary_repeats=8, parity_prompts=4, quality=True, ab=True),
        ),
    )
