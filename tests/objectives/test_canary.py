"""Canaries find what strikes one repeat in many, and say what their silence proves."""

from __future__ import annotations

import pytest

from objectives import Canary, GateStatus, Objective, canary_gate, corruption_bound, learn_canary
from objectives.quality_cases import Expected
from tests.objectives.conftest import Serve

JSON = Canary(
    name="json",
    prompt="Reply with JSON with the keys answer and unit: what is 6 x 7 widgets?",
    expected=Expected(value={"answer": "42", "unit": "widgets"}),
    json_schema={"type": "object", "required": ["answer", "unit"]},
)


def test_the_first_wrong_repeat_ends_the_gate_and_is_named(serve: Serve) -> None:
    gate = canary_gate(
        serve("--tok-s", "0", "--corrupt-canary-at", "7"), JSON, repeats=20, rung="r"
    )
    assert gate.status is GateStatus.FAILED
    assert gate.code == "canary_mismatch"
    assert gate.evidence["failed_at"] == 7
    assert "12" in gate.reason
    assert gate.constraint > 0


def test_the_mismatch_is_asked_again_with_logprobs(serve: Serve) -> None:
    once = canary_gate(serve("--tok-s", "0", "--corrupt-canary-at", "3"), JSON, repeats=5, rung="r")
    recheck = once.evidence["recheck"]
    assert recheck["was_top"] is False
    assert recheck["repeated"] is False
    always = serve("--tok-s", "0", "--knob-wrong-canary", "1")
    baseline = learn_canary(serve("--tok-s", "0"), JSON)
    learned = JSON.model_copy(update={"expected": "control", "json_schema": None})
    drifted = canary_gate(always, learned, repeats=5, rung="r", baseline=baseline)
    assert drifted.evidence["recheck"]["was_top"] is True


def test_clean_repeats_bound_the_corruption_rate(serve: Serve) -> None:
    gate = canary_gate(serve("--tok-s", "0"), JSON, repeats=12, rung="deep")
    assert gate.status is GateStatus.PASSED
    assert gate.evidence["corruption_bound"] == pytest.approx(corruption_bound(12))
    assert gate.constraint <= 0


def test_clean_repeats_of_an_earlier_rung_count_and_are_not_asked_again(serve: Serve) -> None:
    endpoint = serve("--tok-s", "0", "--corrupt-canary-at", "5")
    gate = canary_gate(endpoint, JSON, repeats=10, already=7, rung="deep")
    assert gate.status is GateStatus.PASSED
    assert gate.evidence["corruption_bound"] == pytest.approx(corruption_bound(10))


def test_what_the_control_says_can_be_the_expected_answer(
    serve: Serve, objective: Objective
) -> None:
    canary = objective.canaries[1]
    control = serve("--tok-s", "0")
    baseline = learn_canary(control, canary)
    assert baseline.problem is None
    assert canary_gate(control, canary, repeats=3, rung="r", baseline=baseline).code is None
    other = serve("--tok-s", "0", "--knob-wrong-canary", "1")
    assert canary_gate(other, canary, repeats=3, rung="r", baseline=baseline).code


def test_without_the_controls_answer_the_gate_is_missing_not_passed(
    serve: Serve, objective: Objective
) -> None:
    gate = canary_gate(serve("--tok-s", "0"), objective.canaries[0], repeats=3, rung="r")
    assert gate.status is GateStatus.MISSING
    assert gate.constraint > 0


def test_a_control_that_contradicts_itself_cannot_be_a_reference(serve: Serve) -> None:
    baseline = learn_canary(serve("--tok-s", "0", "--corrupt-canary-at", "4"), JSON, repeats=8)
    assert baseline.problem is not None
    assert "repeat 4" in baseline.problem


@pytest.mark.parametrize("api", ["chat", "completion"])
def test_a_canary_can_be_a_chat_turn_or_a_raw_completion(serve: Serve, api: str) -> None:
    canary = JSON.model_copy(update={"api": api})
    assert canary_gate(serve("--tok-s", "0"), canary, repeats=2, rung="r").code is None
