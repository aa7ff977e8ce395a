"""Sick devices are looked at again, and blame follows evidence from several hosts."""

from __future__ import annotations

import pytest

from runners import FailedAttempt, Failure, resolve
from runners.quarantine import CHECKS, after_check, is_due, quarantine


def failure(code: str = "device_lost", blame: str = "device") -> Failure:
    return Failure(
        code=code,
        phase="serving",
        blame=blame,  # type: ignore[arg-type]
        retry=blame in ("device", "host"),
        reason="The device was lost.",
    )


def failed(*hosts: str, code: str = "device_lost", blame: str = "device") -> list[FailedAttempt]:
    return [FailedAttempt(host, failure(code, blame)) for host in hosts]


def test_a_sick_device_is_checked_with_growing_pauses_and_then_given_up() -> None:
    record = quarantine("a/xpu0", "lost", now=0.0)
    now, waits = 0.0, []
    while not record.given_up:
        waits.append(record.next_check - now)
        now = record.next_check
        assert is_due(record, now)
        following = after_check(record, healthy=False, problem="still lost", now=now)
        assert following is not None
        record = following
    assert waits == sorted(waits)
    assert len(waits) == CHECKS
    assert not is_due(record, now + 1e9)
    assert record.reason == "still lost"


def test_a_healthy_check_returns_the_device() -> None:
    assert after_check(quarantine("a/xpu0", "lost", 0.0), True, "", 30.0) is None


def test_the_candidates_own_failure_is_final_at_once() -> None:
    resolution = resolve(failed("a", code="argument_refused", blame="candidate"))
    assert not resolution.retry
    assert resolution.failure.blame == "candidate"


def test_a_sick_device_gets_the_candidate_another_host() -> None:
    resolution = resolve(failed("a"))
    assert resolution.retry
    assert resolution.avoid_hosts == {"a"}
    assert resolution.failure.blame == "device"


def test_three_hosts_that_agree_convict_the_candidate() -> None:
    resolution = resolve(failed("a", "b", "c"))
    assert not resolution.retry
    assert resolution.failure.blame == "candidate"
    assert "3 different hosts" in resolution.failure.reason


def test_one_host_three_times_convicts_nobody() -> None:
    resolution = resolve(failed("a", "a", "a"))
    assert not resolution.retry
    assert resolution.failure.blame == "device"


def test_hosts_that_disagree_convict_nobody() -> None:
    attempts = [*failed("a", "b"), *failed("c", code="host_fault", blame="host")]
    assert resolve(attempts).failure.blame == "host"


def test_attempts_are_bounded() -> None:
    assert resolve(failed("a"), max_attempts=1).retry is False
    assert resolve(failed("a", "b"), max_attempts=2).retry is True  # a third host decides


def test_nothing_follows_from_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        resolve([])
