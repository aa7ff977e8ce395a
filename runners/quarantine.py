"""Sick devices and failing hosts: when to look again, when to give up, whom to blame. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runners.failure import Failure

FIRST_CHECK_S = 30.0
LONGEST_WAIT_S = 1800.0
CHECKS = 8
"""30 s, doubled up to half an hour: a device that is still sick after 1.5 hours needs a person."""
HOSTS_THAT_CONVICT = 3
ATTEMPTS = 3


@dataclass(frozen=True)
class Quarantined:
    """A device that is given to nobody. `next_check` is on the caller's clock, in seconds."""

    device_id: str
    reason: str
    failed_checks: int
    next_check: float
    given_up: bool = False


def quarantine(device_id: str, reason: str, now: float) -> Quarantined:
    """Puts a device aside, to be looked at for the first time in `FIRST_CHECK_S`."""
    return Quarantined(device_id, reason, 0, now + FIRST_CHECK_S)


def after_check(record: Quarantined, healthy: bool, problem: str, now: float) -> Quarantined | None:
    """The state after one health check: None when the device may work again.

    Each failed check doubles the wait; after `CHECKS` of them the device is given up.
    """
    if healthy:
        return None
    failed = record.failed_checks + 1
    wait_s = min(LONGEST_WAIT_S, FIRST_CHECK_S * 2**failed)
    return replace(
        record,
        reason=problem or record.reason,
        failed_checks=failed,
        next_check=now + wait_s,
        given_up=failed >= CHECKS,
    )


def is_due(record: Quarantined, now: float) -> bool:
    """Whether the device should be looked at now."""
    return not record.given_up and now >= record.next_check


@dataclass(frozen=True)
class FailedAttempt:
    """One attempt at a candidate that ended in a failure, and where."""

    host: str
    failure: Failure


@dataclass(frozen=True)
class Resolution:
    """What follows from a candidate's failed attempts.

    `retry`: try it once more, not on `avoid_hosts` if there are others. `failure`: what is told of
    the candidate, with the blame as it stands after all attempts.
    """

    retry: bool
    failure: Failure
    avoid_hosts: frozenset[str] = frozenset()


def resolve(attempts: Sequence[FailedAttempt], *, max_attempts: int = ATTEMPTS) -> Resolution:
    """Whom to blame after these attempts at one candidate, and whether to try again.

    A failure that is the candidate's own, or the user's, is final at once. One of a device or a
    host is tried again elsewhere, until `HOSTS_THAT_CONVICT` different hosts have failed with the
    same code: then it is the candidate that brings them down. Attempts are bounded by
    `max_attempts`, but a third host is always asked when two agree.

    Raises:
        ValueError: no attempt was given.
    """
    if not attempts:
        raise ValueError("resolve() needs at least one failed attempt")
    last = attempts[-1].failure
    if last.blame in ("candidate", "user") or not last.retry:
        return Resolution(False, last)
    agreeing = {attempt.host for attempt in attempts if attempt.failure.code == last.code}
    if len(agreeing) >= HOSTS_THAT_CONVICT:
        reason = (
            f"{len(agreeing)} different hosts failed alike with this candidate, so it is the "
            f"cause: {last.reason}"
        )
        return Resolution(
            False, last.model_copy(update={"blame": "candidate", "retry": False, "reason": reason})
        )
    hosts = frozenset(attempt.host for attempt in attempts)
    allowed = max(max_attempts, HOSTS_THAT_CONVICT if len(agreeing) == 2 else 0)
    return Resolution(len(attempts) < allowed, last, hosts)
