"""One study of three trials on the real engine, from the command line to a served launch script."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runners.process import marked
from tuner.study import Study
from tuner.verdict import Code, Verdict

pytestmark = [pytest.mark.study, pytest.mark.timeout(1800)]

STUDY = """
name: three-trials
space: vllm-cpu-quickstart
objective: quick
runner: vllm-cpu
budget: {trials: 3}
enqueue:
  - {dtype: float32}
  - {block_size: 16}
"""


@pytest.fixture(scope="module")
def study(
    tmp_path_factory: pytest.TempPathFactory, embedded_engine: Path, embedded_model: Path
) -> Study:
    """The finished study, as `tuner run` leaves it."""
    path = tmp_path_factory.mktemp("real") / "three.yaml"
    path.write_text(STUDY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tuner.cli", "run", str(path), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    for event in events:
        if event["event"] in ("trial_finished", "notice"):
            print(event)
    assert done.returncode == 0
    assert events[-1]["event"] == "study_finished"
    return Study.load(str(path))


def test_the_control_repeats_itself_on_the_real_engine(study: Study) -> None:
    control = study.trials[0]
    assert (control.role, control.verdict) == ("control", Verdict.ACCEPTED)
    assert control.judgement.quality_validated
    assert control.rate is not None
    assert control.rate.engine is not None
    assert control.rate.engine.cached_tokens == 0


def test_another_number_format_is_not_accepted(study: Study) -> None:
    """float32 says something else and reads twice the bytes: whichever gate is asked first."""
    record = study.trials[1]
    assert record.verdict is Verdict.REJECTED
    assert record.rejection is not None
    assert record.rejection.code in (Code.PARITY_MISMATCH, Code.TOO_SLOW, Code.CANARY_MISMATCH)


def test_a_block_size_that_this_build_lacks_is_named_from_the_engines_log(study: Study) -> None:
    record = study.trials[2]
    assert (record.verdict, record.rung) == (Verdict.REJECTED, "startup")
    assert record.rejection is not None
    assert "block size" in record.rejection.reason.lower()
    assert record.failure is not None
    assert record.failure.excerpt


def test_nothing_of_the_study_is_left_running(study: Study) -> None:
    assert marked(study.marker) == []


@pytest.fixture(scope="module")
def served(study: Study) -> Iterator[str]:
    """The address at which the study's launch script serves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = study.folder / "launch.sh"
    server = subprocess.Popen(
        ["bash", str(script)],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until and server.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=2).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise AssertionError(f"the launch script did not serve (exit status {server.poll()})")


def test_the_launch_script_serves_what_was_measured(study: Study, served: str) -> None:
    best = study.best
    assert best is not None
    printed = subprocess.run(
        ["bash", str(study.folder / "launch.sh"), "--print-identity"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert best.identity.sha in printed
    model = httpx.get(f"{served}/v1/models").json()["data"][0]["id"]
    answer = httpx.post(
        f"{served}/v1/chat/completions",
        json={
            "model": model,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0,
            "max_tokens": 16,
        },
        timeout=60,
    ).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
