"""Invalid attempts: tried again boundedly and elsewhere, until three hosts agree whom to blame."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from runners import Failure
from tests.tuner.trial_records import accepted_record
from tuner.ledger import TrialRecord
from tuner.retries import convicted, resolution
from tuner.verdict import Code, Judgement, Rejection, Verdict


def lost(host: str, attempt: int, code: Code = Code.DEVICE_LOST) -> TrialRecord:
    """An attempt that lost its device on that host."""
    failure = Failure(
        code=code.value, phase="serving", blame="device", retry=True, reason="The device was lost."
    )
    judgement = Judgement(
        verdict=Verdict.INVALID,
        rejection=Rejection(code=code, reason=failure.reason, gate="serving"),
    )
    return accepted_record(1).model_copy(
        update={
            "host": host,
            "attempt": attempt,
            "failure": failure,
            "judgement": judgement,
        }
    )


def attempts(*hosts: str) -> list[TrialRecord]:
    return [lost(host, number) for number, host in enumerate(hosts, start=1)]


def test_a_lost_device_is_tried_again_on_another_host() -> None:
    again = resolution(attempts("a"), 3)
    assert again is not None
    assert (again.retry, again.avoid_hosts) == (True, frozenset({"a"}))


def test_the_same_host_is_asked_a_bounded_number_of_times() -> None:
    again = resolution(attempts("a", "a", "a"), 3)
    assert again is not None
    assert not again.retry


@pytest.mark.parametrize("hosts", [["a"], ["a", "b"], ["a", "b", "a"]])
def test_two_hosts_convict_nobody(hosts: Sequence[str]) -> None:
    *earlier, last = attempts(*hosts)
    assert convicted(last, earlier, 3).verdict is Verdict.INVALID


def test_three_hosts_that_fail_alike_convict_the_candidate() -> None:
    *earlier, last = attempts("a", "b", "c")
    record = convicted(last, earlier, 3)
    assert record.verdict is Verdict.REJECTED
    assert record.rejection is not None
    assert record.rejection.code is Code.DEVICE_LOST
    assert "3 different hosts" in record.rejection.reason


@pytest.mark.parametrize("code", [Code.HARNESS_ERROR, Code.USER_ERROR, Code.LANE_UNHEALTHY])
def test_what_would_only_repeat_is_not_tried_again(code: Code) -> None:
    assert resolution([lost("a", 1, code)], 3) is None


def test_a_settled_trial_is_not_tried_again() -> None:
    assert resolution([accepted_record(1)], 3) is None
