"""Stands between the tuner and one engine, and takes the engine's whole tree down with its parent.

Run as a script by the Python of the tuner, standard library only. It speaks JSON lines: the first
line on stdin is the order (argv, env, cwd, cores, log, log_cap_bytes, marker, redact, ladder_s,
parent), later lines are `{"stop": true}`; stdin closing means that the parent is gone. On stdout it
says `started`, `log_lost`, `exited` and, at the end, `stopped` with the proof.

It forks first, so that it is nobody's child: a Ray worker that ends kills its direct children with
SIGKILL, and a supervisor that is killed can end nothing in good order.

Why a process of its own: whoever starts an engine may be killed with SIGKILL at any moment, and a
vLLM whose API server is killed leaves its engine core and workers running for minutes. The
supervisor is a child subreaper, so whatever the engine leaves behind becomes its child, also a
grandchild that made its own session or threw its environment away.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, BinaryIO

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.1
LAST_WORDS_S = 0.5
"""For the others to end, once the engine's first process has: after that it asks no more."""
LONGEST_LINE_BYTES = 64 * 1024
MARKER = "TUNER_MARKER"


class Log:
    """The engine's output on disk: its beginning is kept for ever, its end is rotated.

    `server.log` holds the first half of the cap, where causes of failed starts are; after that,
    `server.log.1`, `.2`, … hold a quarter each, and only the last two of them are kept. A disk that
    is full stops the writing, never the engine: its output is still drained.
    """

    def __init__(self, path: Path, cap_bytes: int, redact: list[bytes]) -> None:
        self.path = path
        self.cap_bytes = cap_bytes
        self.redact = sorted(redact, key=len, reverse=True)
        self.error: str | None = None
        self._segment = 0
        self._room = cap_bytes // 2
        self._partial = b""
        self._file: BinaryIO | None = None
        self._open()

    def feed(self, data: bytes) -> None:
        """Writes whole lines, so that no secret can hide across two writes."""
        lines, newline, rest = (self._partial + data).rpartition(b"\n")
        self._partial = rest
        if newline:
            self._write(lines + newline)
        if len(self._partial) > LONGEST_LINE_BYTES:
            self._write(self._partial)
            self._partial = b""

    def close(self) -> None:
        """Writes what is left of an unfinished line and closes the file."""
        if self._partial:
            self._write(self._partial)
            self._partial = b""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, data: bytes) -> None:
        for secret in self.redact:
            data = data.replace(secret, b"[redacted]")
        if self._file is None:
            return
        try:
            if len(data) > self._room:
                self._rotate()
            self._file.write(data)
            self._file.flush()
            self._room -= len(data)
        except OSError as error:
            self._lose(error)

    def _rotate(self) -> None:
        if self._file is not None:
            self._file.close()
        self._segment += 1
        self._room = self.cap_bytes // 4
        if self._segment > 2:
            stale = self.path.with_name(f"{self.path.name}.{self._segment - 2}")
            stale.unlink(missing_ok=True)
        self._open()

    def _open(self) -> None:
        suffix = f".{self._segment}" if self._segment else ""
        try:
            self._file = self.path.with_name(self.path.name + suffix).open("ab")
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.error = self.error or f"{error.strerror} while writing {self.path.name}"
        self._file = None


def say(event: str, **fields: Any) -> None:
    """One event to the parent; a parent that is gone is not an error here."""
    with contextlib.suppress(OSError, ValueError):
        print(json.dumps({"event": event, **fields}), flush=True)


def process_table() -> dict[int, tuple[int, str]]:
    """`{pid: (parent's pid, state)}` of every process that can be seen."""
    table: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        table[int(entry.name)] = (int(parent), state)
    return table


def start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot: with the pid, its identity."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def carries(pid: int, marker: bytes) -> bool:
    """Whether the process was started with this marker in its environment."""
    try:
        return marker in Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False


class Supervisor:
    """Starts the engine, waits for its end or an order to end it, and proves that it is gone."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.marker = f"{MARKER}={order['marker']}".encode()
        self.log = Log(Path(order["log"]), order["log_cap_bytes"], _secret_values(order["redact"]))
        self.engine: subprocess.Popen[bytes] | None = None
        self.stop_reason: str | None = None
        self._selector = selectors.DefaultSelector()
        self._stdin = b""

    def run(self) -> None:
        """The whole life of one engine."""
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # A Ray worker has SIGINT blocked, and a blocked signal stays blocked through fork and exec:
        # the engine would never hear the politest way to end.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        if not self._start():
            return
        self._selector.register(0, selectors.EVENT_READ, self._hear)
        while self.stop_reason is None and self._returncode() is None:
            self._turn()
        returncode = self._returncode()
        if returncode is not None:
            say("exited", returncode=returncode)
        rungs = self._take_down()
        self.log.close()
        leftovers = self._alive()
        say(
            "stopped",
            returncode=self._returncode(),
            reason=self.stop_reason or "the engine ended by itself",
            rungs=rungs,
            leftovers=leftovers,
            log_error=self.log.error,
        )

    def _start(self) -> bool:
        parent_of_engine = os.getpid()

        def die_with_supervisor() -> None:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent_of_engine:
                os._exit(1)
            if self.order["cores"]:
                os.sched_setaffinity(0, self.order["cores"])

        try:
            self.engine = subprocess.Popen(
                self.order["argv"],
                env=self.order["env"],
                cwd=self.order["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                # Single-threaded here, so the usual danger of preexec_fn does not apply.
                preexec_fn=die_with_supervisor,  # noqa: PLW1509
            )
        except (OSError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or str(error)
            say("failed", error=f"{why}: {self.order['argv'][0]}")
            return False
        assert self.engine.stdout is not None  # noqa: S101
        os.set_blocking(self.engine.stdout.fileno(), False)
        self._selector.register(self.engine.stdout, selectors.EVENT_READ, self._drain)
        say("started", pid=self.engine.pid)
        return True

    def _turn(self) -> None:
        """Waits a moment for output, an order, or the end of somebody."""
        lost = self.log.error
        for key, _ in self._selector.select(POLL_S):
            key.data()
        if self.log.error and not lost:
            say("log_lost", error=self.log.error)
        if not self._parent_lives():
            self.stop_reason = self.stop_reason or "the parent is gone"

    def _parent_lives(self) -> bool:
        parent = self.order["parent"]
        return bool(start_time(parent["pid"]) == parent["started"])

    def _hear(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self.stop_reason = self.stop_reason or "the parent closed its end"
            self._selector.unregister(0)
        self._stdin += data
        if b"\n" in self._stdin:
            self.stop_reason = self.stop_reason or "asked to stop"

    def _drain(self) -> None:
        assert self.engine is not None  # noqa: S101
        assert self.engine.stdout is not None  # noqa: S101
        try:
            data = os.read(self.engine.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.log.feed(data)
        else:
            self._selector.unregister(self.engine.stdout)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.stop_reason = self.stop_reason or f"received {signal.Signals(number).name}"

    def _returncode(self) -> int | None:
        return None if self.engine is None else self.engine.poll()

    def _take_down(self) -> list[str]:
        """SIGINT, SIGTERM, SIGKILL, each to those still alive; returns those that were needed.

        Only the engine's first process gets SIGINT: it is the one that knows how to end the others.
        When that one is dead already, nobody is left who would end the others in good order.
        """
        rungs = []
        asking = True
        for number, seconds in zip(
            (signal.SIGINT, signal.SIGTERM, signal.SIGKILL), self.order["ladder_s"], strict=True
        ):
            if not self._alive():
                break
            if number is signal.SIGINT and self._returncode() is not None:
                continue
            rungs.append(number.name)
            if number is signal.SIGINT and self.engine is not None:
                _signal(self.engine.pid, number)
            else:
                for pid in self._alive():
                    _signal(pid, number)
            until = time.monotonic() + seconds
            while self._alive() and time.monotonic() < until:
                self._turn()
                if number is signal.SIGINT and asking and self._returncode() is not None:
                    asking = False
                    until = min(until, time.monotonic() + LAST_WORDS_S)
                if number is signal.SIGKILL:
                    for pid in self._alive():  # what was forked since the last look
                        _signal(pid, number)
        self._turn()
        return rungs

    def _alive(self) -> list[int]:
        """Every process of the engine that still runs. Zombies are dead, and reaped on the way."""
        self._returncode()
        table = process_table()
        own = os.getpid()
        family = {own}
        grown = True
        while grown:
            more = {pid for pid, (parent, _) in table.items() if parent in family} - family
            family |= more
            grown = bool(more)
        for pid, (parent, state) in table.items():
            engine_pid = self.engine.pid if self.engine is not None else None
            if state == "Z" and parent == own and pid != engine_pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        marked = {pid for pid in table if pid not in family and carries(pid, self.marker)}
        return sorted(
            pid for pid in (family | marked) - {own} if pid in table and table[pid][1] not in "ZX"
        )


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _secret_values(values: list[str]) -> list[bytes]:
    return [value.encode() for value in values if value]


def main() -> None:
    """Reads the order and obeys it, as a process that nobody is the parent of."""
    if os.fork():
        os._exit(0)
    say("supervising", pid=os.getpid())
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    Supervisor(json.loads(line)).run()


if __name__ == "__main__":
    main()
