"""The quality suite: each case its own verdict, judged by right answers and by the control."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives import GateResult, GateStatus, Objective, quality_gates, record_quality
from objectives.answer import answer_problem
from objectives.json_schema import schema_problem
from objectives.quality_cases import Expected, Quality, QualityCase, TaskFile
from objectives.tasks import TaskFileError, read_task
from tests.objectives.conftest import Serve


def by_name(gates: list[GateResult]) -> dict[str, GateResult]:
    return {gate.gate: gate for gate in gates}


def test_every_case_of_the_suite_is_a_gate_and_the_control_passes_its_own(
    serve: Serve, objective: Objective
) -> None:
    endpoint = serve("--tok-s", "0")
    baseline = record_quality(endpoint, objective)
    gates = quality_gates(endpoint, objective, baseline=baseline, rung="deep")
    assert [gate.gate for gate in gates] == [f"quality.{n}" for n in objective.quality_names()]
    assert {gate.status for gate in gates} == {GateStatus.PASSED}
    assert "fails" in baseline.sentence()


def test_a_wrong_answer_where_the_control_is_right_fails_that_case_alone(
    serve: Serve, objective: Objective
) -> None:
    baseline = record_quality(serve("--tok-s", "0"), objective)
    wrong = serve("--tok-s", "0", "--knob-wrong-canary", "1")
    gates = by_name(quality_gates(wrong, objective, baseline=baseline, rung="deep"))
    assert gates["quality.arithmetic"].code == "quality_failed"
    assert gates["quality.repeat"].status is GateStatus.PASSED


def test_a_case_that_the_control_fails_must_still_be_answered_as_it_does(
    serve: Serve, objective: Objective
) -> None:
    baseline = record_quality(serve("--tok-s", "0"), objective)
    other = serve("--tok-s", "0", "--flip-token-at", "1")
    gates = by_name(quality_gates(other, objective, baseline=baseline, rung="deep"))
    assert gates["quality.long_context"].code == "quality_failed"
    assert "the control says" in gates["quality.long_context"].reason


def test_runs_that_differ_from_each_other_fail_without_any_control(
    serve: Serve, objective: Objective
) -> None:
    unsteady = serve("--tok-s", "0", "--corrupt-probability", "0.5", "--random-seed", "3")
    suite = objective.quality.model_copy(update={"repeat_runs": 12})
    lively = objective.model_copy(update={"quality": suite})
    gates = by_name(quality_gates(unsteady, lively, baseline=None, rung="deep"))
    assert gates["quality.repeat"].code == "quality_failed"


def test_without_a_baseline_what_needs_the_control_is_missing(
    serve: Serve, objective: Objective
) -> None:
    gates = quality_gates(serve("--tok-s", "0"), objective, baseline=None, rung="deep")
    statuses = {gate.status for gate in gates if gate.gate != "quality.arithmetic"}
    assert GateStatus.MISSING in statuses
    assert all(gate.constraint > 0 for gate in gates if gate.status is GateStatus.MISSING)


def test_users_add_cases_and_task_files(serve: Serve, objective: Objective, tmp_path: Path) -> None:
    rows = [
        {"prompt": "What is 2 + 3?", "target": "5"},
        {"prompt": "What is 2 + 4?", "target": "no such answer"},
    ]
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    quality = Quality(
        builtin=False,
        long_context_tokens=0,
        cases=(QualityCase(name="paris", prompt="The capital of France?", contains="Paris"),),
        tasks=(TaskFile(name="sums", path=str(file), max_tokens=1),),
    )
    custom = objective.model_copy(update={"quality": quality})
    endpoint = serve("--tok-s", "0")
    baseline = record_quality(endpoint, custom)
    assert baseline.tasks["sums"] == (True, False)
    gates = by_name(quality_gates(endpoint, custom, baseline=baseline, rung="deep"))
    assert gates["quality.sums"].status is GateStatus.PASSED
    assert gates["quality.paris"].status is GateStatus.PASSED
    wrong = serve("--tok-s", "0", "--knob-wrong-canary", "1")
    gates = by_name(quality_gates(wrong, custom, baseline=baseline, rung="deep"))
    assert gates["quality.sums"].code == "quality_failed"
    assert gates["quality.sums"].evidence["lost"] == 1


def test_a_task_file_that_cannot_be_read_says_which_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"prompt": "a", "target": "b"}\n{"prompt": "c"}\n', encoding="utf-8")
    with pytest.raises(TaskFileError, match=r"broken\.jsonl:2"):
        read_task(TaskFile(name="t", path=str(file)))
    with pytest.raises(TaskFileError, match="cannot read"):
        read_task(TaskFile(name="t", path=str(tmp_path / "none.jsonl")))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"answer": "42", "unit": "widgets"}', None),
        ('```json\n{"answer": "42", "unit": "widgets"}\n```', None),
        ('{"answer": "12", "unit": "widgets"}', "instead of"),
        ('{"answer": 42, "unit": "widgets"}', "not of type string"),
        ('{"answer": "42"}', "lacks the key 'unit'"),
        ("forty-two", "not JSON"),
    ],
)
def test_a_json_answer_is_checked_by_schema_and_by_value(text: str, problem: str | None) -> None:
    schema = {
        "type": "object",
        "required": ["answer", "unit"],
        "properties": {"answer": {"type": "string"}},
    }
    expected = Expected(value={"answer": "42", "unit": "widgets"})
    found = answer_problem(text, expected=expected, json_schema=schema)
    assert (found is None) if problem is None else (problem in (found or ""))


@pytest.mark.parametrize(
    ("value", "schema", "wrong"),
    [
        (True, {"type": "integer"}, "not of type"),
        (1.5, {"type": "number", "maximum": 1}, "over"),
        ([1, "a"], {"type": "array", "items": {"type": "integer"}}, "[1]"),
        ({"a": 1}, {"additionalProperties": False}, "unexpected key"),
        ("abc", {"pattern": "^b"}, "pattern"),
        ("x", {"enum": ["y"]}, "none of"),
        ({"a": {"b": 2}}, {"properties": {"a": {"properties": {"b": {"const": 3}}}}}, "'b'"),
        ({"a": 1, "b": [1, 2]}, {"required": ["a"], "properties": {"b": {"maxItems": 2}}}, None),
    ],
)
def test_the_schema_checker_finds_what_is_wrong(
    value: object, schema: dict[str, object], wrong: str | None
) -> None:
    found = schema_problem(value, schema)
    assert (found is None) if wrong is None else (wrong in (found or ""))


def test_a_schema_that_would_check_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="oneOf"):
        schema_problem({}, {"oneOf": []})
