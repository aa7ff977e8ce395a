"""Verdicts: what the evidence of a trial comes to, and that worse evidence never helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives import GateKind, GateResult, GateStatus
from runners import Failure
from tuner.verdict import (
    CODE_MEANINGS,
    CORRECTNESS,
    VERDICT_MEANINGS,
    Code,
    Evidence,
    Verdict,
    judge,
)

KINDS = {
    "startup": GateKind.STARTUP,
    "speed": GateKind.SPEED,
    "parity": GateKind.PARITY,
    "canary.json": GateKind.CANARY,
    "quality.arithmetic": GateKind.QUALITY,
    "ab": GateKind.AB,
}
REQUIRED = frozenset(KINDS)
RANK = [Verdict.ACCEPTED, Verdict.PROMISING, Verdict.REJECTED, Verdict.INVALID]


def gate(name: str, status: GateStatus = GateStatus.PASSED, code: str | None = None) -> GateResult:
    failed = status is GateStatus.FAILED
    return GateResult(
        gate=name,
        kind=KINDS[name],
        rung="deep",
        status=status,
        code=code,
        reason=f"{name} {status.value}.",
        constraint=0.5 if failed else 0.0,
    )


def crash(blame: str = "candidate", code: Code = Code.STARTUP_CRASH) -> Failure:
    return Failure.model_validate(
        {
            "code": code.value,
            "phase": "startup",
            "blame": blame,
            "retry": False,
            "reason": "It ended with status 1.",
        }
    )


ALL_PASSED = tuple(gate(name) for name in KINDS)


def test_every_verdict_and_every_code_has_its_sentence() -> None:
    assert set(VERDICT_MEANINGS) == set(Verdict)
    assert set(CODE_MEANINGS) == set(Code)
    assert all(meaning.endswith(".") for meaning in CODE_MEANINGS.values())


def test_a_candidate_that_passes_every_required_gate_is_accepted() -> None:
    judged = judge(Evidence(gates=ALL_PASSED, required=REQUIRED))
    assert judged.verdict is Verdict.ACCEPTED
    assert judged.quality_validated
    assert judged.promotion_ready
    assert judged.missing == ()


@pytest.mark.parametrize("absent", sorted(REQUIRED))
def test_a_gate_that_did_not_run_is_missing_and_never_passed(absent: str) -> None:
    gates = tuple(result for result in ALL_PASSED if result.gate != absent)
    judged = judge(Evidence(gates=gates, required=REQUIRED))
    assert judged.verdict is Verdict.PROMISING
    assert judged.missing == (absent,)
    assert not judged.promotion_ready


def test_a_gate_that_reports_missing_counts_like_one_that_did_not_run() -> None:
    gates = tuple(
        gate(name, GateStatus.MISSING if name == "parity" else GateStatus.PASSED) for name in KINDS
    )
    judged = judge(Evidence(gates=gates, required=REQUIRED))
    assert (judged.verdict, judged.missing) == (Verdict.PROMISING, ("parity",))
    assert not judged.quality_validated


def test_a_correct_but_unproven_gain_is_validated_and_not_ready() -> None:
    gates = (*ALL_PASSED[:-1], gate("ab", GateStatus.FAILED, "gain_unproven"))
    judged = judge(Evidence(gates=gates, required=REQUIRED))
    assert judged.verdict is Verdict.REJECTED
    assert judged.rejection is not None
    assert judged.rejection.code is Code.GAIN_UNPROVEN
    assert judged.quality_validated
    assert not judged.promotion_ready


def test_a_failed_gate_rejects_with_its_code_and_its_numbers() -> None:
    failed = gate("canary.json", GateStatus.FAILED, "canary_mismatch")
    judged = judge(Evidence(gates=(gate("startup"), failed), required=REQUIRED))
    assert judged.rejection is not None
    assert judged.rejection.code is Code.CANARY_MISMATCH
    assert judged.rejection.gate == "canary.json"
    assert "canary.json failed." in judged.rejection.reason


@pytest.mark.parametrize("name", ["parity", "canary.json", "quality.arithmetic"])
def test_a_gate_that_the_control_fails_too_accuses_the_lane(name: str) -> None:
    failed = gate(name, GateStatus.FAILED)
    alike = judge(Evidence(gates=(failed,), required=REQUIRED, control_gates={name: failed}))
    assert alike.verdict is Verdict.INVALID
    assert alike.rejection is not None
    assert alike.rejection.code is Code.LANE_UNHEALTHY
    passes = judge(Evidence(gates=(failed,), required=REQUIRED, control_gates={name: gate(name)}))
    assert passes.verdict is Verdict.REJECTED


def test_a_slow_control_does_not_excuse_a_slow_candidate() -> None:
    slow = gate("speed", GateStatus.FAILED, "too_slow")
    judged = judge(Evidence(gates=(slow,), required=REQUIRED, control_gates={"speed": slow}))
    assert judged.verdict is Verdict.REJECTED


@pytest.mark.parametrize(
    ("blame", "verdict"),
    [
        ("candidate", Verdict.REJECTED),
        ("device", Verdict.INVALID),
        ("host", Verdict.INVALID),
        ("user", Verdict.INVALID),
    ],
)
def test_a_crash_counts_against_whoever_is_to_blame(blame: str, verdict: Verdict) -> None:
    assert judge(Evidence(failure=crash(blame), required=REQUIRED)).verdict is verdict


def test_an_engine_that_does_not_run_what_was_asked_for_says_nothing_about_it() -> None:
    drifted = Evidence(gates=ALL_PASSED, required=REQUIRED, identity_drift=("async is off",))
    judged = judge(drifted)
    assert judged.verdict is Verdict.INVALID
    assert judged.rejection is not None
    assert judged.rejection.code is Code.IDENTITY_DRIFT
    assert "async is off" in judged.rejection.reason


def test_a_stale_oracle_says_nothing_about_the_candidate() -> None:
    judged = judge(Evidence(gates=ALL_PASSED, required=REQUIRED, oracle_is_stale=True))
    assert judged.rejection is not None
    assert (judged.verdict, judged.rejection.code) == (Verdict.INVALID, Code.STALE_ORACLE)


def test_a_diagnostic_run_is_never_anything_else() -> None:
    failed = gate("speed", GateStatus.FAILED, "too_slow")
    assert judge(Evidence(gates=(failed,), diagnostic=True)).verdict is Verdict.DIAGNOSTIC


def test_nothing_measured_is_invalid() -> None:
    assert judge(Evidence(required=REQUIRED)).verdict is Verdict.INVALID


def test_passing_gates_alone_accept_nothing_when_none_is_required() -> None:
    assert judge(Evidence(gates=ALL_PASSED)).verdict is Verdict.PROMISING


STATUSES = st.dictionaries(st.sampled_from(sorted(REQUIRED)), st.sampled_from(list(GateStatus)))


@given(STATUSES, st.sampled_from(sorted(REQUIRED)))
def test_a_further_failure_never_improves_the_verdict(
    statuses: dict[str, GateStatus], also: str
) -> None:
    before = tuple(gate(name, status) for name, status in statuses.items())
    after = (*before, gate(also, GateStatus.FAILED))
    ranked = [
        RANK.index(judge(Evidence(gates=gates, required=REQUIRED)).verdict)
        for gates in (before, after)
    ]
    nothing_ran = not any(s is not GateStatus.MISSING for s in statuses.values())
    assert ranked[1] >= ranked[0] or nothing_ran


@given(STATUSES)
def test_acceptance_means_that_each_required_gate_passed(statuses: dict[str, GateStatus]) -> None:
    gates = tuple(gate(name, status) for name, status in statuses.items())
    judged = judge(Evidence(gates=gates, required=REQUIRED))
    everything = all(statuses.get(name) is GateStatus.PASSED for name in REQUIRED)
    assert (judged.verdict is Verdict.ACCEPTED) == everything
    correct = all(
        statuses.get(name) is GateStatus.PASSED for name in REQUIRED if KINDS[name] in CORRECTNESS
    )
    assert judged.quality_validated == correct
