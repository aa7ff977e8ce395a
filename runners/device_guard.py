"""Whether leased devices are clean before an engine starts on them, and again after it ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence

from runners.device import DeviceKind, DeviceReading, Health, Lease
from runners.devices import inventory
from runners.failure import EngineFailure, Failure
from runners.runner import Cleanup, HealthCheck

Read = Callable[[str, DeviceKind], list[DeviceReading]]

POLL_S = 0.5


class DeviceGuard:
    """Looks at one lease's devices around one engine.

    A CPU is never dirty: the kernel gives back what a dead process held. There, only the runner's
    own health command is asked.
    """

    def __init__(
        self, lease: Lease, health: HealthCheck, cleanup: Cleanup, read: Read = inventory
    ) -> None:
        self._lease = lease
        self._health = health
        self._cleanup = cleanup
        self._read = read

    def require_clean(self) -> None:
        """Checks the devices before a start.

        Raises:
            EngineFailure: one is lost, held by others, or has too little free memory, or the health
                command fails. The device is to blame: the trial is invalid, never rejected.
        """
        for reading in self._readings():
            if reading.health is Health.LOST:
                raise EngineFailure(_failure("device_lost", reading.problem, reading.fix))
            problem = self._dirt(reading)
            if problem:
                raise EngineFailure(_failure("device_dirty", problem, reading.fix))
        command = self._health.command
        if command and not self._succeeds(command):
            reason = f"The health check `{' '.join(command)}` of the runner fails."
            raise EngineFailure(_failure("device_fault", reason, ""))

    def comes_back(self) -> bool | None:
        """Waits until the devices are clean again, cleaning up once if they do not become so.

        None when there is nothing to be seen of them (a CPU, or a tool that is missing).
        """
        if not self._readings():
            return None
        if self._settles():
            return True
        if not self._cleanup.commands:
            return False
        for command in self._cleanup.commands:
            self._succeeds(command)
        return self._settles()

    def _settles(self) -> bool:
        until = time.monotonic() + self._health.settle_s
        while any(self._dirt(reading) for reading in self._readings()):
            if time.monotonic() >= until:
                return False
            time.sleep(POLL_S)
        return True

    def _readings(self) -> list[DeviceReading]:
        if self._lease.kind == "cpu":
            return []
        ours = {device.id for device in self._lease.devices}
        readings = self._read(self._lease.host, self._lease.kind)
        return [reading for reading in readings if reading.device.id in ours]

    def _dirt(self, reading: DeviceReading) -> str:
        """What is wrong with the device's memory, in a sentence; empty when nothing is."""
        if reading.health in (Health.DIRTY, Health.LOST):
            return reading.problem
        total, used = reading.device.memory_bytes, reading.memory_used_bytes
        if not total or used is None:
            return ""
        free = 1 - used / total
        wanted = self._health.free_memory_fraction
        if free >= wanted:
            return ""
        return (
            f"{reading.device.id} has {free:.0%} of its memory free, and {wanted:.0%} is asked for."
        )

    def _succeeds(self, command: Sequence[str]) -> bool:
        try:
            done = subprocess.run(
                list(command),
                env={**os.environ, **self._lease.env},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._cleanup.timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def _failure(code: str, reason: str, fix: str) -> Failure:
    return Failure(
        code=code, phase="launch", blame="device", retry=True, reason=reason or code, fix=fix
    )
