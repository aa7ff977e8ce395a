"""Examines a host: its devices, what is wrong with it, and what a study on it could run."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runners.device import DeviceReading, Health
from runners.devices.cpu import read_cpus
from runners.devices.inventory import host_name
from runners.devices.nvidia import read_nvidia
from runners.devices.recording import recorded
from runners.devices.tool import run_tool
from runners.devices.xpu import read_xpus
from runners.leases import Infeasible, LeaseBook
from runners.process import unwatched
from runners.runner import Runner

GIB = 1024**3
LOW_DISK_BYTES = 5 * GIB
LOW_FILES = 4096
LOW_SHM_BYTES = 1 * GIB
"""vLLM's processes and Ray's object store share memory through /dev/shm."""


@dataclass(frozen=True)
class Problem:
    """Something that will get in the way, and what a person can do about it.

    `severity` error: nothing, or not this device, can run. warning: results or comfort suffer.
    """

    severity: Literal["error", "warning"]
    what: str
    fix: str


@dataclass(frozen=True)
class Fit:
    """What a runner could do here: trials at once, or the reason why none."""

    runner: str
    demand: str
    trials_at_once: int
    reason: str = ""


@dataclass(frozen=True)
class HostReport:
    """One host as the doctor sees it. `facts` are pairs of a name and a text for people."""

    host: str
    facts: tuple[tuple[str, str], ...]
    devices: tuple[DeviceReading, ...]
    problems: tuple[Problem, ...]
    fits: tuple[Fit, ...]

    @property
    def is_usable(self) -> bool:
        """Whether at least one of the runners that were asked about could run a trial here now."""
        return any(fit.trials_at_once for fit in self.fits)


def examine(
    runners: Sequence[Runner] = (),
    *,
    host: str | None = None,
    recording: Path | None = None,
) -> HostReport:
    """This host, or one that was recorded elsewhere (`runners.devices.recording.record`).

    For a recorded host only devices and fits are known.
    """
    name = host or (recording.name if recording else host_name())
    run = recorded(recording) if recording else run_tool
    readings = [
        *([] if recording else read_cpus(name)),
        *read_xpus(name, run=run),
        *read_nvidia(name, run=run),
    ]
    problems = [
        Problem(
            "warning" if reading.health in (Health.THROTTLED, Health.UNKNOWN) else "error",
            reading.problem,
            reading.fix,
        )
        for reading in readings
        if reading.problem
    ]
    if not recording:
        problems += _host_problems()
    book = LeaseBook()
    book.join(readings)
    fits = []
    for runner in runners:
        fit, problem = _fit(runner, book, check_files=recording is None)
        fits.append(fit)
        problems += problem
    facts = () if recording else _facts()
    return HostReport(name, facts, tuple(readings), tuple(problems), tuple(fits))


def _fit(runner: Runner, book: LeaseBook, *, check_files: bool) -> tuple[Fit, list[Problem]]:
    demand = f"{runner.devices.count} x {runner.devices.kind}"
    try:
        book.require_feasible(runner.devices)
    except Infeasible:
        here = sum(device.kind == runner.devices.kind for device in book.devices)
        return Fit(
            runner.name, demand, 0, f"this host has {here} {runner.devices.kind} devices"
        ), []
    if check_files:
        missing = _missing(runner)
        if missing:
            return Fit(runner.name, demand, 0, missing.what), [missing]
    capacity = book.capacity(runner.devices)
    reason = "" if capacity.free else "every device that it could use is put aside"
    return Fit(runner.name, demand, capacity.free, reason), []


def _missing(runner: Runner) -> Problem | None:
    """Whether the engine's Python and the model are there; neither is started or read."""
    if runner.engine == "vllm" and not os.access(runner.python_path, os.X_OK):
        return Problem(
            "warning",
            f"the engine's Python of runner {runner.name} is missing: {runner.python}",
            "Run `make setup`, or set `python` in the runner to an environment with vLLM.",
        )
    model = runner.model_path
    if model is not None and not model.exists():
        return Problem(
            "warning",
            f"the model of runner {runner.name} is missing: {runner.model}",
            "Run `make setup`, or set `model` in the runner to the model's folder.",
        )
    return None


def _facts() -> tuple[tuple[str, str], ...]:
    cores = len(os.sched_getaffinity(0))
    disk = shutil.disk_usage(Path.cwd())
    return (
        ("system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        ("cores", f"{cores} of {os.cpu_count()} usable"),
        ("memory", f"{_memory_bytes() / GIB:.1f} GiB"),
        ("disk here", f"{disk.free / GIB:.1f} of {disk.total / GIB:.1f} GiB free"),
        ("open files", str(resource.getrlimit(resource.RLIMIT_NOFILE)[0])),
    )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _host_problems() -> list[Problem]:
    problems = []
    free = shutil.disk_usage(Path.cwd()).free
    if free < LOW_DISK_BYTES:
        problems.append(
            Problem(
                "warning",
                f"Only {free / GIB:.1f} GiB of disk are free here.",
                "Free some: logs, compile caches and artifacts of a study take a few GiB.",
            )
        )
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= files < LOW_FILES:
        problems.append(
            Problem("warning", f"A process may open only {files} files.", "Run `ulimit -n 65536`.")
        )
    shm = Path("/dev/shm")  # noqa: S108 - looked at, not written to
    if shm.exists() and shutil.disk_usage(shm).free < LOW_SHM_BYTES:
        problems.append(
            Problem(
                "warning",
                f"{shm} has only {shutil.disk_usage(shm).free / GIB:.1f} GiB free.",
                "Enlarge it (docker: `--shm-size=8g`): engines and Ray share memory there.",
            )
        )
    problems += [
        Problem(
            "warning",
            f"Process {process.pid} belongs to an engine of study {process.marker.split('/')[0]} "
            "that no supervisor watches any more.",
            f"Continue that study, which ends it first, or run `kill {process.pid}`.",
        )
        for process in unwatched()
    ]
    return problems
