"""A dirty device makes a trial invalid before it starts, and is cleaned up after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runners import Device, DeviceReading, EngineFailure, Health, Lease
from runners.device_guard import DeviceGuard
from runners.runner import Cleanup, HealthCheck
from tests.runners.scripted import LEASE

CARD = Device("xpu", 0, "B70", "here", memory_bytes=1000)
CARDS = Lease((CARD,), "here", {}, "l")


def guard(
    *readings: DeviceReading, health: HealthCheck | None = None, cleanup: Cleanup | None = None
) -> DeviceGuard:
    """A guard that sees these readings one after the other, the last one for ever."""
    left = list(readings)

    def read(host: str, kind: str) -> Iterator[DeviceReading]:
        return [left.pop(0) if len(left) > 1 else left[0]]  # type: ignore[return-value]

    policy = health or HealthCheck(settle_s=0)
    return DeviceGuard(CARDS, policy, cleanup or Cleanup(), read)  # type: ignore[arg-type]


def reading(health: Health = Health.HEALTHY, used: int = 0) -> DeviceReading:
    problem = "" if health is Health.HEALTHY else f"it is {health.value}"
    return DeviceReading(CARD, health, memory_used_bytes=used, problem=problem)


def test_a_clean_device_is_let_through() -> None:
    guard(reading()).require_clean()


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (reading(Health.LOST), "device_lost"),
        (reading(Health.DIRTY), "device_dirty"),
        (reading(used=200), "device_dirty"),
    ],
)
def test_a_device_that_is_not_clean_is_to_blame(seen: DeviceReading, code: str) -> None:
    with pytest.raises(EngineFailure) as caught:
        guard(seen).require_clean()
    failure = caught.value.failure
    assert (failure.code, failure.blame, failure.retry) == (code, "device", True)


def test_a_health_command_that_fails_is_to_be_heard() -> None:
    health = HealthCheck(command=("false",))
    with pytest.raises(EngineFailure, match="health check `false`"):
        guard(reading(), health=health).require_clean()
    guard(reading(), health=HealthCheck(command=("true",))).require_clean()


def test_memory_that_comes_back_late_is_waited_for() -> None:
    slow = [reading(), reading(used=900), reading(used=900), reading()]
    assert guard(*slow, health=HealthCheck(settle_s=5)).comes_back() is True


def test_memory_that_does_not_come_back_is_said() -> None:
    assert guard(reading(used=900)).comes_back() is False


def test_what_stays_dirty_is_cleaned_up_once() -> None:
    seen = [reading(used=900), reading(used=900), reading()]
    assert guard(*seen, cleanup=Cleanup(commands=(("true",),))).comes_back() is True


def test_a_cpu_is_never_dirty() -> None:
    cpu = DeviceGuard(LEASE, HealthCheck(), Cleanup(), lambda host, kind: [])
    cpu.require_clean()
    assert cpu.comes_back() is None
