"""A tracking server of a team: it may ask for a password, and it may die in the middle."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from mlflow import MlflowClient
from tests.tuner.trial_records import control_record, rejected_record
from tuner import tracking
from tuner.tracking import Tracker, local_store, shown

LANE = "ab12" * 16


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[None]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)),
            *("--backend-store-uri", local_store(folder), "--artifacts-destination", "artifacts"),
        ],
        cwd=folder,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        else:
            pytest.fail("the MLflow server did not come up in two minutes")
        yield
    finally:
        # As a power cut would: nothing is finished, nothing is said.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_twenty_trials_are_all_in_mlflow_after_the_server_was_killed_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "RETRY_AFTER_S", 2.0)
    store, study = tmp_path / "store", tmp_path / "study"
    store.mkdir()
    study.mkdir()
    port = free_port()
    tracker = Tracker(f"http://127.0.0.1:{port}", study, "quick", LANE)
    with mlflow_server(store, port):
        tracker.record(control_record(), study / "none")
        for number in range(1, 8):
            assert tracker.record(rejected_record(number), study / "none") is not None
    began = time.monotonic()
    for number in range(8, 14):
        assert tracker.record(rejected_record(number), study / "none") is None
    assert tracker.waiting == 6
    assert time.monotonic() - began < 60
    with mlflow_server(store, port):
        time.sleep(2)
        for number in range(14, 20):
            tracker.record(rejected_record(number), study / "none")
        assert tracker.flush() == 0
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (experiment,) = client.search_experiments(filter_string="name != 'Default'")
        runs = client.search_runs([experiment.experiment_id], "tags.role != 'study'")
        assert sorted(int(run.data.tags["trial"]) for run in runs) == list(range(20))
        names = {a.path for a in client.list_artifacts(runs[0].info.run_id)}
        assert {"launch.sh", "report.md"} <= names


def test_user_and_password_go_to_the_server_and_into_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []

    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - http.server names it so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = HTTPServer(("127.0.0.1", 0), Guarded)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "tr0ubador")
    try:
        tracker = Tracker(f"http://127.0.0.1:{server.server_port}", tmp_path, "quick", LANE)
        assert tracker.record(control_record(), tmp_path) is None
    finally:
        server.shutdown()
        server.server_close()
    assert f"Basic {base64.b64encode(b'ann:tr0ubador').decode()}" in seen
    assert tracker.waiting == 1
    assert "tr0ubador" not in caplog.text


def test_an_address_is_shown_without_its_password() -> None:
    assert shown("https://ann:pw@host:5000/x") == "https://ann:***@host:5000/x"
    assert shown("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
