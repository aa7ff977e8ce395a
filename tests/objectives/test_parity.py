"""Parity with the oracle: exact, bounded, with known drift, and under speculation."""

from __future__ import annotations

from objectives import (
    GateStatus,
    Objective,
    ParityPolicy,
    SelfParity,
    parity_gate,
    record_oracle,
    self_parity,
    self_parity_gate,
)
from objectives.oracle import Oracle
from objectives.parity import Divergence, judge_parity
from tests.objectives.conftest import Serve


def divergence(index: int = 3, margin: float | None = 0.5, role: str | None = None) -> Divergence:
    return Divergence(
        prompt="p",
        index=index,
        expected_id=1,
        expected_text="a",
        got_id=2,
        got_text="b",
        margin=margin,
        role=role,
    )


def judged(policy: ParityPolicy, *found: Divergence, **more: object):  # type: ignore[no-untyped-def]
    return judge_parity(found, policy, rung="deep", prompts=4, tokens=100, **more)


def test_the_same_engine_says_the_same(serve: Serve, objective: Objective) -> None:
    oracle = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    gate = parity_gate(serve("--tok-s", "0"), oracle, objective, rung="deep", prompts=None)
    assert gate.status is GateStatus.PASSED
    assert gate.evidence["prompts"] == 4
    assert gate.evidence["tokens"] == 4 * 32


def test_the_first_other_token_is_named_with_its_place_and_margin(
    serve: Serve, objective: Objective
) -> None:
    oracle = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    other = serve("--tok-s", "0", "--flip-token-at", "9")
    gate = parity_gate(other, oracle, objective, rung="smoke", prompts=2)
    assert gate.code == "parity_mismatch"
    [found] = gate.evidence["divergences"]
    assert found["index"] == 9
    assert found["expected_id"] == oracle.traces[0].ids[9] != found["got_id"]
    assert found["margin"] > 0
    assert "index 9" in gate.reason


def test_what_passed_on_an_earlier_rung_is_not_asked_again(
    serve: Serve, objective: Objective
) -> None:
    endpoint = serve("--tok-s", "0")
    oracle = record_oracle(endpoint, objective, identity_sha="c")
    gate = parity_gate(endpoint, oracle, objective, rung="deep", prompts=4, skip=3)
    assert gate.evidence["prompts"] == 1


def test_an_oracle_survives_json_and_knows_when_it_is_stale(
    serve: Serve, objective: Objective
) -> None:
    oracle = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    assert Oracle.model_validate_json(oracle.model_dump_json()) == oracle
    assert not oracle.is_stale("c")
    assert oracle.is_stale("another")


def test_a_stale_oracle_is_refused_before_anything_is_asked(
    serve: Serve, objective: Objective
) -> None:
    endpoint = serve("--tok-s", "0")
    oracle = record_oracle(endpoint, objective, identity_sha="c")
    ask = {"rung": "deep", "prompts": None}
    stale = parity_gate(endpoint, oracle, objective, reference_sha="d", **ask)
    assert stale.status is GateStatus.MISSING
    assert "stale" in stale.reason
    fresh = parity_gate(endpoint, oracle, objective, reference_sha="c", **ask)
    assert fresh.status is GateStatus.PASSED


def test_a_reference_is_checked_against_itself_also_under_load(
    serve: Serve, objective: Objective
) -> None:
    first = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    again = serve("--tok-s", "0")
    second = record_oracle(again, objective, identity_sha="c")
    loaded = record_oracle(again, objective, identity_sha="c", concurrent=True)
    parity = self_parity(first, second, concurrent=loaded)
    assert parity.exact
    assert parity.under_load == ()
    assert self_parity_gate(parity, objective, "deep").status is GateStatus.PASSED


def test_a_reference_that_differs_from_itself_forbids_exact_mode(
    serve: Serve, objective: Objective
) -> None:
    first = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    other = serve("--tok-s", "0", "--flip-token-at", "20")
    parity = self_parity(first, record_oracle(other, objective, identity_sha="c"))
    assert not parity.exact
    assert parity.first_index == 20
    assert parity.margin is not None
    assert self_parity_gate(parity, objective, "deep").status is GateStatus.FAILED
    bounded = objective.model_copy(update={"parity": ParityPolicy(mode="bounded")})
    assert self_parity_gate(parity, bounded, "deep").status is GateStatus.PASSED


def test_speculation_that_never_drafted_proves_nothing(serve: Serve, objective: Objective) -> None:
    oracle = record_oracle(serve("--tok-s", "0"), objective, identity_sha="c")
    idle = serve("--tok-s", "0", "--speculative-config", '{"method": "ngram"}')
    gate = parity_gate(idle, oracle, objective, rung="deep", prompts=None)
    assert gate.status is GateStatus.MISSING
    active = serve("--tok-s", "0", "--spec-drafts", "9", "--spec-accepted", "5")
    gate = parity_gate(active, oracle, objective, rung="deep", prompts=None)
    assert gate.status is GateStatus.PASSED
    assert "9 drafts" in gate.reason


def test_bounded_mode_excuses_only_what_the_reference_leaves_undecided() -> None:
    bounded = ParityPolicy(mode="bounded")
    own = SelfParity(exact=False, prompts=4, margin=0.1)
    assert judged(bounded, divergence(margin=0.05), own=own).status is GateStatus.PASSED
    assert judged(bounded, divergence(margin=0.2), own=own).status is GateStatus.FAILED
    assert judged(bounded, divergence(margin=None), own=own).status is GateStatus.FAILED
    assert judged(bounded, divergence(margin=0.05)).status is GateStatus.FAILED
    assert judged(ParityPolicy(), divergence(margin=0.05), own=own).status is GateStatus.FAILED


def test_known_drift_must_be_as_stated_no_more_and_no_less() -> None:
    known = ParityPolicy(mode="known-drift", expected_mismatches=1, roles=("bonus",))
    assert judged(known, divergence(role="bonus")).status is GateStatus.PASSED
    assert judged(known).status is GateStatus.FAILED
    assert judged(known, divergence(role="replacement")).status is GateStatus.FAILED
    two = [divergence(role="bonus"), divergence(role="bonus")]
    assert judged(known, *two).status is GateStatus.FAILED


def test_a_later_difference_is_the_smaller_violation() -> None:
    early = judged(ParityPolicy(), divergence(index=1)).constraint
    late = judged(ParityPolicy(), divergence(index=90)).constraint
    assert early > late > 0
