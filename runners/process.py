"""Processes as the kernel shows them: who carries our marker, and how to end exactly those."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runners.supervisor import MARKER, process_table, start_time

SUPERVISES = "TUNER_SUPERVISES"


@dataclass(frozen=True)
class Swept:
    """One process that was found alive and ended: what it was, and whether it is gone now."""

    pid: int
    marker: str
    command: str
    gone: bool


@dataclass(frozen=True)
class MarkedProcess:
    """A living process whose environment carries a marker of ours.

    `started` guards against a pid that was given to somebody else since.
    """

    pid: int
    started: str
    marker: str
    command: str
    is_supervisor: bool


def marked(marker_prefix: str) -> list[MarkedProcess]:
    """Every living process whose marker is `marker_prefix` or lies under it (`study`, `study/3`).

    Zombies are dead: their environment is gone, and only their parent can remove them.
    """
    return [process for process in _marked() if is_under(process.marker, marker_prefix)]


def unwatched() -> list[MarkedProcess]:
    """Engine processes of any study whose supervisor is gone: nobody will end them."""
    everything = list(_marked())
    watched = {process.marker for process in everything if process.is_supervisor}
    return [process for process in everything if process.marker not in watched]


def _marked() -> Iterator[MarkedProcess]:
    for pid, (_, state) in process_table().items():
        if state in "ZX" or pid == os.getpid():
            continue
        try:
            environ = Path("/proc", str(pid), "environ").read_bytes()
        except OSError:
            continue
        for entry in environ.split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name.decode(errors="replace") not in (MARKER, SUPERVISES):
                continue
            marker = value.decode(errors="replace")
            started = start_time(pid)
            if started is not None:
                yield MarkedProcess(
                    pid, started, marker, _command(pid), name == SUPERVISES.encode()
                )
                break


def is_under(marker: str, prefix: str) -> bool:
    """Whether a marker is the prefix or below it: `a/1` is under `a`, not so `a/10` under `a/1`."""
    prefix = prefix.rstrip("/")
    return bool(prefix) and (marker == prefix or marker.startswith(prefix + "/"))


def sweep(marker_prefix: str, *, grace_s: float = 5.0) -> list[Swept]:
    """Ends every process under this marker, and no other; returns what was found.

    Supervisors are asked first, as they end their engine in good order. Whatever is left after
    `grace_s` is killed, with what it started meanwhile. A process is only signalled while pid and
    start time are those that were seen with the marker.

    Raises:
        ValueError: an empty prefix, which would match the engines of every study.
    """
    if not marker_prefix.rstrip("/"):
        raise ValueError("a sweep needs the marker of a study, a trial or an attempt")
    found: dict[int, MarkedProcess] = {}

    def look() -> list[MarkedProcess]:
        alive = marked(marker_prefix)
        found.update({process.pid: process for process in alive})
        return alive

    alive = look()
    supervisors = [process for process in alive if process.is_supervisor]
    for process in supervisors or alive:
        _send(process, signal.SIGTERM)
    until = time.monotonic() + (grace_s if alive else 0)
    while alive and time.monotonic() < until:
        time.sleep(0.05)
        alive = look()
        supervised = {process.marker for process in alive if process.is_supervisor}
        for process in alive:
            if process.marker not in supervised:
                _send(process, signal.SIGKILL)
    until = time.monotonic() + grace_s
    while alive and time.monotonic() < until:
        for process in alive:
            _send(process, signal.SIGKILL)
        time.sleep(0.02)
        alive = look()
    left = {process.pid for process in alive}
    return [
        Swept(process.pid, process.marker, process.command, process.pid not in left)
        for process in found.values()
    ]


def _send(process: MarkedProcess, number: signal.Signals) -> None:
    if start_time(process.pid) == process.started:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _command(pid: int) -> str:
    """The command line, shortened: for a person to recognise the process."""
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()[:200]
