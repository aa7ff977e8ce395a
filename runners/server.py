"""One engine, from its start to the proof that nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from runners.device import Lease
from runners.device_guard import DeviceGuard
from runners.diagnosis import Ending, diagnose
from runners.failure import EngineFailure, Failure, Phase
from runners.launch import Launch, LaunchRefused, plan_launch
from runners.log import LogFollower, progress_of, read_log
from runners.port import PortHold, is_free, listeners
from runners.process import SUPERVISES, marked, sweep
from runners.read_back import ReadBack, compare
from runners.readiness import NotServing, OnProgress, Readiness, answers, client_for, first_token
from runners.redaction import plain
from runners.runner import Argument, Runner, Timeouts
from runners.supervisor import start_time

PORT_ATTEMPTS = 3
DYING_S = 4.0
"""How long a vLLM whose worker was killed takes to end by itself (measured: 2.0 to 2.6 s)."""


@dataclass(frozen=True)
class Teardown:
    """How an engine ended, and the proof that it did.

    `signals` are those that were needed, in order. `clean` means: no process of it is left, nobody
    listens on its port, and its devices' memory is back. `leftovers` are pids that could not be
    ended. `devices_back` is None where a device's memory cannot be seen.
    """

    clean: bool
    seconds: float
    signals: tuple[str, ...]
    returncode: int | None
    leftovers: tuple[int, ...] = ()
    port_free: bool = True
    log_error: str | None = None
    devices_back: bool | None = None


class EngineServer:
    """A running engine. Always stop it; used as a context manager it stops itself.

    `start` returns as soon as the process runs. `wait_ready` returns once the engine has given a
    real token. If this process dies, in any way, the supervisor ends the engine.
    """

    def __init__(
        self,
        launch: Launch,
        timeouts: Timeouts,
        hold: PortHold | None = None,
        guard: DeviceGuard | None = None,
    ) -> None:
        self.launch = launch
        self.timeouts = timeouts
        self.phase: Phase = "launch"
        self.returncode: int | None = None
        self.engine_pid: int | None = None
        self._hold = hold
        self._guard = guard
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._teardown: Teardown | None = None
        self._stages: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._supervisor: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        launch: Launch,
        timeouts: Timeouts,
        hold: PortHold | None = None,
        guard: DeviceGuard | None = None,
    ) -> Self:
        """Starts the engine under a supervisor.

        `hold` is the reservation of its port, kept until the engine is stopped. `guard` looks at
        its devices before the start and after the end.

        Raises:
            EngineFailure: a device is not clean, or the program to run does not exist.
            LaunchRefused: a secret that the launch names is not set.
        """
        server = cls(launch, timeouts, hold, guard)
        server._start()
        return server

    @property
    def base_url(self) -> str:
        """Where it answers, without a trailing slash and without /v1."""
        return self.launch.base_url

    @property
    def model(self) -> str:
        """What requests call its model."""
        return self.launch.model

    @property
    def stages(self) -> tuple[tuple[float, str], ...]:
        """How far its start came, as `(seconds since its start, stage)`."""
        return tuple(self._stages)

    @property
    def alive(self) -> bool:
        """Whether the engine's first process still runs."""
        return self._event("exited") is None and self._event("stopped") is None

    def wait_ready(self, on_progress: OnProgress | None = None) -> Readiness:
        """Waits until the engine has given a real token; `on_progress` hears each new stage.

        Raises:
            EngineFailure: it died, took too long, answered with an error, or another process
                answers on its port. The engine is not stopped by this.
        """
        follower = LogFollower(self.launch.log)
        last_line = self._began
        self.phase = "launch"
        with client_for(self.launch, self.timeouts.request_s) as client:
            while not answers(client, self.launch.readiness.path):
                lines = follower.new_lines()
                now = time.monotonic()
                if lines:
                    last_line = now
                    self.phase = "startup"
                self._note(lines, on_progress)
                self._require_alive()
                self._require_in_time(now, last_line)
                self._wait(self.launch.readiness.poll_s)
            self._note(follower.new_lines(), on_progress)
            owner = self._require_own_port()
            ready_s = time.monotonic() - self._began
            self.phase = "first_request"
            took_s = self._ask_first_token(client) if self.launch.readiness.generation else 0.0
        self.phase = "serving"
        return Readiness(ready_s, took_s, self.stages, owner)

    def read_back(self) -> ReadBack:
        """What the engine says that it runs, compared with what was asked for.

        An engine without /server_info (any but vLLM) gives an empty read-back in which every
        argument is unverified.

        Raises:
            EngineFailure: the engine died meanwhile.
        """
        with client_for(self.launch, self.timeouts.request_s) as client:
            info = self._get_json(client, "/server_info?config_format=json")
            version = self._get_json(client, "/version")
        if not self.alive:
            raise EngineFailure(self.diagnose(None))
        if not info:
            names = (*self.launch.args, *(n for n in self.launch.env if n.startswith("VLLM_")))
            return ReadBack(version=_text(version.get("version")), unverified=names)
        return compare(
            self.launch,
            version=_text(version.get("version")),
            config=info.get("vllm_config") or {},
            env=info.get("vllm_env") or {},
            system=info.get("system_env") or {},
            log=read_log(self.launch.log),
        )

    def diagnose(self, error: BaseException | None = None) -> Failure:
        """Why the engine failed. `error` is what the caller met: a failed request, a timeout.

        A vLLM whose worker died answers with errors for some seconds before it ends, so a failed
        request waits for that end before it is blamed on a living engine.
        """
        if isinstance(error, EngineFailure):
            return error.failure
        timed_out = _is_timeout(error)
        if error is not None and not timed_out:
            self._wait_for("exited", DYING_S)
        healthy: bool | None = None
        if self.alive:
            with client_for(self.launch, 5.0) as client:
                healthy = answers(client, self.launch.readiness.path)
        limit_s = self.timeouts.request_s
        return self._diagnosis(
            request_error=None if error is None else plain(str(error)) or type(error).__name__,
            timed_out_s=limit_s if timed_out or (error is not None and healthy is False) else None,
            answers=healthy,
        )

    def stop(self) -> Teardown:
        """Ends the engine's whole tree and proves it; again returns the same answer.

        Close the clients first: a vLLM with an open stream hangs on SIGINT and SIGTERM.
        """
        if self._teardown is not None:
            return self._teardown
        self.phase = "teardown"
        began = time.monotonic()
        proof = self._stop_supervisor()
        # The supervisor may itself have been killed; then nobody else ended the engine.
        swept = [process for process in sweep(self.launch.marker) if not process.gone]
        if self._hold is not None:
            self._hold.close()
        port_free = self._wait_port_free()
        leftovers = tuple(sorted({*proof.get("leftovers", ()), *(p.pid for p in swept)}))
        leftovers = tuple(pid for pid in leftovers if _lives(pid))
        self.returncode = proof.get("returncode", self.returncode)
        devices_back = None if self._guard is None else self._guard.comes_back()
        self._teardown = Teardown(
            clean=not leftovers and port_free and devices_back is not False,
            seconds=time.monotonic() - began,
            signals=tuple(proof.get("rungs", ())),
            returncode=self.returncode,
            leftovers=leftovers,
            port_free=port_free,
            log_error=proof.get("log_error"),
            devices_back=devices_back,
        )
        return self._teardown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- starting ---

    def _start(self) -> None:
        launch = self.launch
        if self._guard is not None:
            self._guard.require_clean()
        env = launch.process_env()
        launch.cwd.mkdir(parents=True, exist_ok=True)
        _set_aside(launch.log)
        order = {
            "argv": launch.argv,
            "env": env,
            "cwd": str(launch.cwd),
            "log": str(launch.log),
            "log_cap_bytes": launch.log_cap_bytes,
            "redact": launch.secret_values(),
            "marker": launch.marker,
            "cores": launch.cores,
            "ladder_s": _ladder(self.timeouts.teardown_s),
            "parent": {"pid": os.getpid(), "started": start_time(os.getpid())},
        }
        script = Path(__file__).with_name("supervisor.py")
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            env={"PATH": env.get("PATH", os.defpath), SUPERVISES: launch.marker},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert self._supervisor.stdin is not None  # noqa: S101
        self._began = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()
        # Secrets travel here, through a pipe: arguments and environments can be read by others.
        self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        self._supervisor.stdin.flush()
        if not self._wait_for("started", self.timeouts.launch_s):
            failed = self._event("failed") or {}
            failure = Failure(
                code="user_error",
                phase="launch",
                blame="user",
                retry=False,
                reason=f"The engine cannot be started: {failed.get('error', 'no answer')}.",
                fix="Check `python` (or `command`) in the runner's document.",
            )
            self.stop()
            raise EngineFailure(failure)
        self.engine_pid = (self._event("started") or {}).get("pid")

    def _listen(self) -> None:
        assert self._supervisor is not None  # noqa: S101
        assert self._supervisor.stdout is not None  # noqa: S101
        for line in self._supervisor.stdout:
            with contextlib.suppress(ValueError):
                self._add_event(json.loads(line))
        self._add_event({"event": "gone"})

    def _add_event(self, event: dict[str, Any]) -> None:
        with self._changed:
            self._events.append(event)
            if event["event"] == "exited":
                self.returncode = event["returncode"]
            self._changed.notify_all()

    def _event(self, name: str) -> dict[str, Any] | None:
        return next((event for event in self._events if event["event"] == name), None)

    def _wait_for(self, name: str, seconds: float) -> bool:
        """Waits for an event; false when it did not come, or cannot come any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._event(name) is not None or self._event("gone") is not None, seconds
            )
        return self._event(name) is not None

    def _wait(self, seconds: float) -> None:
        """Sleeps, but wakes when the engine ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self.alive, seconds)

    # --- becoming ready ---

    def _note(self, lines: list[str], on_progress: OnProgress | None) -> None:
        for line in lines:
            stage = progress_of(line)
            if stage is not None and (not self._stages or self._stages[-1][1] != stage):
                self._stages.append((time.monotonic() - self._began, stage))
                if on_progress is not None:
                    on_progress(stage)

    def _require_alive(self) -> None:
        if self._event("gone") is not None and self._event("stopped") is None:
            sweep(self.launch.marker)
            raise EngineFailure(_supervisor_killed(self.phase))
        if not self.alive:
            self._wait_for("stopped", self.timeouts.teardown_s)  # the log is whole then
            raise EngineFailure(self._diagnosis())

    def _require_in_time(self, now: float, last_line: float) -> None:
        age_s = now - self._began
        if self.phase == "launch" and age_s > self.timeouts.launch_s:
            raise EngineFailure(self._diagnosis(timed_out_s=self.timeouts.launch_s))
        if age_s > self.timeouts.ready_s:
            raise EngineFailure(self._diagnosis(timed_out_s=self.timeouts.ready_s))
        if now - last_line > self.timeouts.stall_s:
            raise EngineFailure(self._diagnosis(timed_out_s=self.timeouts.stall_s))

    def _require_own_port(self) -> int | None:
        """The pid that listens on our port, proven to be of our engine.

        None where the kernel does not let us see who listens.
        """
        owners = listeners(self.launch.port)
        ours = {process.pid for process in marked(self.launch.marker)}
        if owners and not owners & ours:
            reason = f"Port {self.launch.port} is answered by another process ({min(owners)})."
            raise EngineFailure(
                Failure(
                    code="host_fault",
                    phase="startup",
                    blame="host",
                    retry=True,
                    reason=reason,
                    signature="port_in_use",
                )
            )
        return min(owners & ours) if owners else None

    def _ask_first_token(self, client: httpx.Client) -> float:
        key = self.launch.process_env().get("VLLM_API_KEY")
        limit_s = self.timeouts.first_token_s
        try:
            return first_token(client, self.launch, key, limit_s)
        except httpx.TimeoutException:
            raise EngineFailure(self._diagnosis(timed_out_s=limit_s)) from None
        except NotServing as error:
            raise EngineFailure(self.diagnose(error)) from error

    # --- failing and ending ---

    def _diagnosis(
        self,
        *,
        timed_out_s: float | None = None,
        request_error: str | None = None,
        answers: bool | None = None,
    ) -> Failure:
        if self._event("gone") is not None and self._event("stopped") is None:
            return _supervisor_killed(self.phase)
        lost = self._event("log_lost") or self._event("stopped") or {}
        ending = Ending(
            phase=self.phase,
            returncode=self.returncode,
            timed_out_s=timed_out_s,
            stage=self._stages[-1][1] if self._stages else None,
            request_error=request_error,
            answers=answers,
            log_error=lost.get("error") or lost.get("log_error"),
        )
        return diagnose(read_log(self.launch.log), ending)

    def _stop_supervisor(self) -> dict[str, Any]:
        if self._supervisor is None:
            return {}
        assert self._supervisor.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError, ValueError):
            self._supervisor.stdin.write(b'{"stop": true}\n')
            self._supervisor.stdin.flush()
        self._wait_for("stopped", sum(_ladder(self.timeouts.teardown_s)) + 10)
        with contextlib.suppress(OSError, ValueError):
            self._supervisor.stdin.close()
        self._supervisor.wait()  # only the first fork, which ended at once
        self._wait_for("gone", 5)
        return self._event("stopped") or {}

    def _wait_port_free(self) -> bool:
        until = time.monotonic() + 2
        while not is_free(self.launch.port, self.launch.host):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _get_json(self, client: httpx.Client, path: str) -> dict[str, Any]:
        try:
            answer = client.get(path)
            data = answer.json() if answer.status_code == httpx.codes.OK else {}
        except (httpx.HTTPError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}


def open_engine(
    runner: Runner,
    *,
    args: Mapping[str, Argument],
    env: Mapping[str, str],
    lease: Lease,
    directory: Path,
    marker: str,
    on_progress: OnProgress | None = None,
) -> tuple[EngineServer, Readiness]:
    """Plans, starts and waits: an engine that serves, or the failure that says why not.

    The port is reserved before the start. If another process takes it all the same, the start is
    tried again with another port, the last time without holding it (for a server that does not
    set SO_REUSEADDR).

    Raises:
        EngineFailure: it did not come up; nothing of it is left.
        LaunchRefused: it cannot be planned.
    """
    for attempt in range(1, PORT_ATTEMPTS + 1):
        hold = PortHold(runner.host)
        try:
            launch = plan_launch(
                runner,
                args=args,
                env=env,
                lease=lease,
                port=hold.port,
                directory=directory,
                marker=marker,
            )
            if attempt == PORT_ATTEMPTS:
                hold.close()
            guard = DeviceGuard(lease, runner.health, runner.cleanup)
            server = EngineServer.start(launch, runner.timeouts, hold, guard)
        except (LaunchRefused, EngineFailure, OSError):
            hold.close()
            raise
        try:
            return server, server.wait_ready(on_progress)
        except EngineFailure as error:
            server.stop()
            if error.failure.signature != "port_in_use" or attempt == PORT_ATTEMPTS:
                raise
        except BaseException:
            server.stop()
            raise
    raise AssertionError("unreachable")


def _is_timeout(error: BaseException | None) -> bool:
    """Whether a time-out is at the bottom of this error, whatever it was wrapped in on the way."""
    while error is not None:
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _set_aside(log: Path) -> None:
    """Moves the log of an earlier start in the same folder away, as it would be diagnosed again."""
    if not log.is_file():
        return
    number = 1 + len(list(log.parent.glob(f"{log.stem}-earlier-*{log.suffix}")))
    log.rename(log.with_name(f"{log.stem}-earlier-{number}{log.suffix}"))
    for segment in log.parent.glob(f"{log.name}.*"):
        segment.unlink()


def _ladder(teardown_s: float) -> tuple[float, float, float]:
    """Seconds for SIGINT, SIGTERM and SIGKILL.

    vLLM needs 0.6 s on SIGINT or hangs for good (measured); other engines may need longer.
    """
    return (teardown_s * 0.4, teardown_s * 0.2, teardown_s * 0.4)


def _lives(pid: int) -> bool:
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _supervisor_killed(phase: Phase) -> Failure:
    return Failure(
        code="host_fault",
        phase=phase,
        blame="host",
        retry=True,
        reason="The supervisor of the engine was killed, so the engine was ended with it.",
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
