"""Every way an engine can die: it is classed, blamed rightly, and nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runners import (
    EngineFailure,
    EngineServer,
    Failure,
    PortHold,
    Runner,
    is_free,
    open_engine,
    plan_launch,
)
from runners.process import marked
from tests.runners.scripted import LEASE, SERVER, eventually, scripted_runner

pytestmark = pytest.mark.chaos


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> Iterator[str]:
    """A marker of this test alone; at its end no process may carry it."""
    name = f"chaos-{os.getpid()}-{abs(hash(request.node.nodeid))}"
    yield f"{name}/1/1"
    assert eventually(lambda: not marked(name)), f"left behind: {marked(name)}"


def opened(
    marker: str, folder: Path, *, timeouts: dict[str, float] | None = None, **args: Any
) -> EngineServer:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    server, _ = open_engine(
        scripted_runner(timeouts=timeouts or {}),
        args=named,
        env={},
        lease=LEASE,
        directory=folder,
        marker=marker,
    )
    return server


def failed_start(marker: str, folder: Path, **args: Any) -> Failure:
    with pytest.raises(EngineFailure) as caught:
        opened(marker, folder, **args).stop()
    return caught.value.failure


def ask(server: EngineServer, *, tokens: int = 64, timeout_s: float = 5.0) -> int:
    """Streams one completion; returns the events that came. Raises httpx.HTTPError."""
    body = {"model": server.model, "prompt": "Tell me.", "max_tokens": tokens, "stream": True}
    events = 0
    with (
        httpx.Client(base_url=server.base_url, timeout=timeout_s, trust_env=False) as client,
        client.stream("POST", "/v1/completions", json={**body, "ignore_eos": True}) as answer,
    ):
        answer.raise_for_status()
        for line in answer.iter_lines():
            if '"error"' in line:
                raise httpx.RemoteProtocolError(line)
            events += line.startswith("data:")
    return events


def failure_while_serving(server: EngineServer) -> Failure:
    with server:
        with pytest.raises(httpx.HTTPError) as caught:
            ask_until_it_fails(server)
        return server.diagnose(caught.value)


def ask_until_it_fails(server: EngineServer) -> None:
    for _ in range(5):
        ask(server, timeout_s=1.0)


# --- start-up ---


@pytest.mark.parametrize(
    ("args", "code", "blame", "says"),
    [
        ({"die_at": "startup"}, "startup_crash", "candidate", "status 1 before it was ready"),
        ({"die_at": "startup", "exit_code": 0}, "startup_crash", "candidate", "status 0"),
        ({"no_such_flag": 1}, "argument_refused", "candidate", "--no-such-flag"),
        ({"die_at": "request:1"}, "first_request_failed", "candidate", "request 1"),
        ({"fail_request": 1}, "first_request_failed", "candidate", "HTTP 500"),
        ({"fail_request": 1, "fail_status": 503}, "first_request_failed", "candidate", "HTTP 503"),
        (
            {
                "print": "RuntimeError: backend failed: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
                "die_at": "startup",
            },
            "device_lost",
            "device",
            "was lost",
        ),
        (
            {"print": "OSError: [Errno 28] No space left on device", "die_at": "startup"},
            "host_fault",
            "host",
            "disk is full",
        ),
        (
            {"print": "torch.OutOfMemoryError: XPU out of memory.", "die_at": "startup"},
            "out_of_memory",
            "candidate",
            "more memory",
        ),
    ],
)
def test_a_start_that_fails_is_classed(
    marker: str, tmp_path: Path, args: dict[str, Any], code: str, blame: str, says: str
) -> None:
    failure = failed_start(marker, tmp_path, **args)
    assert (failure.code, failure.blame) == (code, blame)
    assert says in failure.reason


def test_a_start_that_hangs_ends_at_its_timeout(marker: str, tmp_path: Path) -> None:
    failure = failed_start(
        marker, tmp_path, hang_at="startup", log_lines=1, timeouts={"ready_s": 1.5}
    )
    assert (failure.code, failure.blame) == ("readiness_timeout", "candidate")
    assert "not ready within 1.5 s" in failure.reason


def test_a_first_request_that_hangs_ends_at_its_timeout(marker: str, tmp_path: Path) -> None:
    failure = failed_start(marker, tmp_path, hang_at="request:1", timeouts={"first_token_s": 1.0})
    assert failure.code == "first_request_failed"
    assert "no first token within 1 s" in failure.reason


def test_a_slow_start_is_no_failure(marker: str, tmp_path: Path) -> None:
    with opened(marker, tmp_path, startup_s=1.0) as server:
        assert ask(server) > 0
    assert server.stop().clean


def test_a_program_that_is_missing_is_the_users_mistake(marker: str, tmp_path: Path) -> None:
    runner = Runner(
        name="r", engine="command", model="m", command=("/no/such/server", "--port", "{port}")
    )
    with pytest.raises(EngineFailure) as caught:
        open_engine(runner, args={}, env={}, lease=LEASE, directory=tmp_path, marker=marker)
    assert caught.value.failure.blame == "user"
    assert "/no/such/server" in caught.value.failure.reason


# --- serving ---


@pytest.mark.parametrize(
    ("args", "code", "blame"),
    [
        ({"die_at": "request:3"}, "engine_died", "candidate"),
        ({"die_at": "midstream:3"}, "engine_died", "candidate"),
        ({"die_at": "midstream:3", "exit_code": 0}, "engine_died", "candidate"),
        ({"fail_request": 3}, "request_failed", "candidate"),
    ],
)
def test_an_engine_that_fails_while_it_serves_is_classed(
    marker: str, tmp_path: Path, args: dict[str, Any], code: str, blame: str
) -> None:
    failure = failure_while_serving(opened(marker, tmp_path, **args))
    assert (failure.code, failure.blame) == (code, blame)
    assert failure.phase == "serving"


@pytest.mark.parametrize("where", ["request:3", "midstream:3"])
def test_an_engine_that_hangs_while_it_serves_is_classed(
    marker: str, tmp_path: Path, where: str
) -> None:
    failure = failure_while_serving(opened(marker, tmp_path, hang_at=where))
    assert (failure.code, failure.blame) == ("engine_hung", "candidate")


def test_an_engine_that_is_killed_from_outside_is_not_the_candidates_fault(
    marker: str, tmp_path: Path
) -> None:
    server = opened(marker, tmp_path, tok_s=20, leave_orphan=True)
    assert server.engine_pid is not None
    os.kill(server.engine_pid, signal.SIGKILL)
    failure = failure_while_serving(server)
    assert (failure.code, failure.blame, failure.retry) == ("host_fault", "host", True)
    assert "SIGKILL" in failure.reason


def test_an_engine_whose_supervisor_is_killed_ends_with_it(marker: str, tmp_path: Path) -> None:
    server = opened(marker, tmp_path, leave_orphan=True)
    (supervisor,) = [process for process in marked(marker) if process.is_supervisor]
    os.kill(supervisor.pid, signal.SIGKILL)
    failure = failure_while_serving(server)
    assert (failure.code, failure.blame) == ("host_fault", "host")
    assert "supervisor" in failure.reason
    assert server.stop().clean


# --- the end ---


@pytest.mark.parametrize(
    ("args", "signals"),
    [
        ({}, ("SIGINT",)),
        ({"ignore_sigint": True}, ("SIGINT", "SIGTERM")),
        ({"ignore_sigint": True, "ignore_sigterm": True}, ("SIGINT", "SIGTERM", "SIGKILL")),
        ({"leave_orphan": True}, ("SIGINT", "SIGTERM")),
    ],
)
def test_the_ladder_goes_as_far_as_it_must(
    marker: str, tmp_path: Path, args: dict[str, Any], signals: tuple[str, ...]
) -> None:
    server = opened(marker, tmp_path, timeouts={"teardown_s": 2}, **args)
    ended = server.stop()
    assert ended.clean
    assert ended.signals == signals
    assert is_free(server.launch.port)


def test_a_server_that_waits_for_an_open_stream_is_ended_all_the_same(
    marker: str, tmp_path: Path
) -> None:
    server = opened(marker, tmp_path, tok_s=5, stuck_shutdown=True, timeouts={"teardown_s": 2})
    body = {"model": server.model, "prompt": "x", "max_tokens": 500, "stream": True}
    with (
        contextlib.suppress(httpx.HTTPError),
        httpx.stream("POST", f"{server.base_url}/v1/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()  # kept: a stream that nobody reads any more is closed
        next(lines)
        ended = server.stop()
    assert ended.clean
    assert ended.signals[-1] == "SIGKILL"


def test_stopping_twice_gives_the_same_answer(marker: str, tmp_path: Path) -> None:
    server = opened(marker, tmp_path)
    assert server.stop() is server.stop()


# --- port, disk, secrets ---


def test_a_stolen_port_is_the_hosts_fault_and_a_new_one_is_taken(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thieves: list[socket.socket] = []

    class Stolen(PortHold):
        def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
            super().__init__(host, port)
            if not thieves:
                thief = socket.socket()
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind((host, self.port))
                thief.listen()
                thieves.append(thief)

    monkeypatch.setattr("runners.server.PortHold", Stolen)
    with opened(marker, tmp_path) as server:
        assert server.launch.port != thieves[0].getsockname()[1]
        assert ask(server) > 0
    assert (tmp_path / "server-earlier-1.log").exists()
    thieves[0].close()


def test_an_answer_of_another_process_is_not_taken_for_ours(marker: str, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, str(SERVER), "--model", "scripted", "--port", (port := _free_port())]
    )
    try:
        assert eventually(lambda: not is_free(int(port)))
        launch = plan_launch(
            scripted_runner(),
            args={"hang-at": "startup"},
            env={},
            lease=LEASE,
            port=int(port),
            directory=tmp_path,
            marker=marker,
        )
        with EngineServer.start(launch, scripted_runner().timeouts) as server:
            with pytest.raises(EngineFailure) as caught:
                server.wait_ready()
            assert caught.value.failure.blame == "host"
            assert str(other.pid) in caught.value.failure.reason
    finally:
        other.kill()
        other.wait()


def _free_port() -> str:
    with PortHold() as hold:
        return str(hold.port)


def test_a_full_disk_stops_the_log_and_not_the_engine(marker: str, tmp_path: Path) -> None:
    with PortHold() as hold:
        launch = plan_launch(
            scripted_runner(),
            args={"log-lines": 50, "die-at": "request:3"},
            env={},
            lease=LEASE,
            port=hold.port,
            directory=tmp_path,
            marker=marker,
        ).model_copy(update={"log": Path("/dev/full")})
        with EngineServer.start(launch, scripted_runner().timeouts) as server:
            server.wait_ready()
            assert ask(server) > 0
            failure = failure_while_serving(server)
    assert (failure.code, failure.blame) == ("host_fault", "host")
    assert "No space left" in failure.reason
    assert "No space left" in (server.stop().log_error or "")


def test_a_secret_reaches_the_engine_and_no_file(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    server, _ = open_engine(
        scripted_runner(secrets=("HF_TOKEN",)),
        args={"echo-env": "HF_TOKEN", "print": "token hf_very_secret is used"},
        env={},
        lease=LEASE,
        directory=tmp_path,
        marker=marker,
    )
    with server:
        seen = httpx.get(f"{server.base_url}/echo", trust_env=False).text
    assert "hf_very_secret" in seen
    for path in tmp_path.rglob("*"):
        assert "hf_very_secret" not in path.read_text()
    assert "token [redacted] is used" in (tmp_path / "server.log").read_text()


def test_nothing_of_ours_can_be_imported_in_an_engine(
    marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    server, _ = open_engine(
        scripted_runner(),
        args={"echo-env": "PYTHONPATH"},
        env={},
        lease=LEASE,
        directory=tmp_path,
        marker=marker,
    )
    with server:
        seen = httpx.get(f"{server.base_url}/echo", trust_env=False).json()
        cwd = Path(f"/proc/{server.engine_pid}/cwd").readlink()
    assert seen["env"].get("PYTHONPATH") is None
    assert cwd == tmp_path


# --- whoever started it ---

DRIVER = """
    import sys, time
    from pathlib import Path
    from runners import open_engine
    from tests.runners.scripted import LEASE, scripted_runner
    server, _ = open_engine(
        scripted_runner(), args={"leave-orphan": True, "ignore-sigint": True}, env={},
        lease=LEASE, directory=Path(sys.argv[1]), marker=sys.argv[2],
    )
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_dies_leaves_no_engine(
    marker: str, tmp_path: Path, number: signal.Signals
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path), marker],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    assert len(marked(marker)) >= 3  # supervisor, engine, orphan
    driver.send_signal(number)
    driver.wait()
    assert eventually(lambda: not marked(marker), 15)
