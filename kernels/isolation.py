"""The parent's side of a worker: start it, ask it, and survive whatever happens to it.

A worker that dies, hangs or loses its device context costs the one request it was working on.
The next request starts a fresh one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Self

from kernels.bundle import build_worker
from kernels.ops import KernelError

MARK = "TUNER_KERNEL_WORKER"
"""Environment variable by which every process of a worker's tree is recognised."""

Outcome = Literal["ok", "refused", "raised", "context_lost", "crashed", "hung", "not_started"]


@dataclass(frozen=True)
class Reply:
    """What became of a request. `result` is there only when `outcome` is "ok"."""

    outcome: Outcome
    result: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """The worker answered, and did what was asked."""
        return self.outcome == "ok"


@dataclass(frozen=True)
class WorkerSettings:
    """How to start workers. `python` is an interpreter that has torch (an engine's, say)."""

    python: str = sys.executable
    device: str | None = None
    op_files: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: float = 180.0
    torch_ops: tuple[Mapping[str, Any], ...] = ()
    """Requests {"op", "torch_op", "loads"} that name a user's torch.ops as candidates."""


class KernelWorker:
    """One worker process at a time, replaced when it is lost. Not for use from two threads."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.started = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = ""
        self._stderr: IO[bytes] | None = None
        self._buffer = b""
        self._next_id = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, verb: str, *, timeout_s: float, **fields: Any) -> Reply:
        """Send one request and wait for its reply, at most `timeout_s` seconds."""
        started = time.monotonic()
        if self._process is None:
            opened = self._open()
            if not opened.ok:
                return opened
        reply = self._exchange({"verb": verb, **fields}, timeout_s)
        return Reply(reply.outcome, reply.result, reply.message, time.monotonic() - started)

    def close(self) -> None:
        """End the worker: by closing its input, then by force."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        self._discard()

    def _running(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        process = self._process
        if process is None or process.stdin is None:
            raise KernelError("the kernel worker is not running")
        return process, process.stdin

    def _open(self) -> Reply:
        self._mark = uuid.uuid4().hex
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment.update(self.settings.env)
        environment[MARK] = self._mark
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the worker
        try:
            self._process = subprocess.Popen(
                [self.settings.python, "-B", str(build_worker())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
                cwd=tempfile.gettempdir(),
                start_new_session=True,
            )
        except OSError as error:
            return Reply("not_started", message=f"cannot start {self.settings.python}: {error}")
        self._buffer = b""
        self.started += 1
        opening = {
            "device": self.settings.device,
            "op_files": [str(Path(path).resolve()) for path in self.settings.op_files],
        }
        reply = self._exchange(opening, self.settings.start_timeout_s)
        if not reply.ok:
            self._discard()
            return Reply("not_started", message=f"the kernel worker did not start: {reply.message}")
        for request in self.settings.torch_ops:
            added = self._exchange({"verb": "add_torch_op", **request}, 120.0)
            if not added.ok:
                self._discard()
                return added
        return reply

    def _exchange(self, message: Mapping[str, Any], timeout_s: float) -> Reply:
        _, stdin = self._running()
        number, self._next_id = self._next_id, self._next_id + 1
        line = json.dumps({"id": number, **message}) + "\n"
        try:
            stdin.write(line.encode())
            stdin.flush()
        except BrokenPipeError:
            return self._crashed()
        answer = self._read_line(time.monotonic() + timeout_s)
        if answer is None:
            self._discard()
            return Reply("hung", message=f"no answer within {timeout_s:g} s; its processes ended")
        if not answer:
            return self._crashed()
        reply = json.loads(answer)
        if reply.get("context_lost"):
            self._discard()
            return Reply("context_lost", reply.get("result", {}), lost_message(reply))
        if reply["ok"]:
            return Reply("ok", reply["result"])
        return Reply("refused" if reply.get("refused") else "raised", message=reply["error"])

    def _read_line(self, deadline: float) -> bytes | None:
        """A line, b"" when the worker's output ended, None when the deadline passed."""
        stdout = self._running()[0].stdout
        if stdout is None:
            return b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    return b""
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _crashed(self) -> Reply:
        process, _ = self._running()
        try:
            code = process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = None
        tail = self._stderr_tail()
        self._discard()
        how = "closed its output" if code is None else describe_exit(code)
        return Reply("crashed", message=f"the worker {how}" + (f": {tail}" if tail else ""))

    def _stderr_tail(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4096))
        lines = self._stderr.read().decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:300] if said else ""

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_tree(process, self._mark)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None


def lost_message(reply: Mapping[str, Any]) -> str:
    """Why a context was lost, from the reply that announced it."""
    result = reply.get("result") or {}
    reason = reply.get("error") or result.get("check", result).get("reason", "")
    return f"the device context was lost: {reason}"


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def end_tree(process: subprocess.Popen[bytes], mark: str, *, timeout_s: float = 15.0) -> None:
    """Kill the worker, its process group, and whatever else carries its mark."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        alive = marked_processes(mark)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.poll() is not None and not alive:
            return
        time.sleep(0.02)


def marked_processes(mark: str) -> list[int]:
    """Live processes (zombies do not count) whose environment carries the mark. Linux only."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in proc_entries():
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if wanted in environment.split(b"\0") and state not in ("Z", "X"):
            found.append(int(entry.name))
    return found


def proc_entries() -> Iterable[Path]:
    """Folders of all processes; none where there is no /proc."""
    proc = Path("/proc")
    return (entry for entry in proc.iterdir() if entry.name.isdigit()) if proc.is_dir() else ()
