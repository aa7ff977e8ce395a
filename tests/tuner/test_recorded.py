"""Records of a laboratory, judged by the code that judges our own trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.recorded import RecordedError, RecordJudgement, judge_file
from tuner.verdict import Verdict

LABORATORY = Path(__file__).parent / "data" / "laboratory.yaml"


@pytest.fixture(scope="module")
def judged() -> dict[str, RecordJudgement]:
    return {judgement.record: judgement for judgement in judge_file(LABORATORY)}


@pytest.mark.parametrize(
    ("record", "verdict", "code"),
    [
        ("base/deep", Verdict.ACCEPTED, None),
        ("faster/deep", Verdict.ACCEPTED, None),
        ("faster/shallow", Verdict.PROMISING, None),
        ("slower/stated", Verdict.REJECTED, "too_slow"),
        ("slower/by-its-base", Verdict.REJECTED, "too_slow"),
        ("slower/by-difference", Verdict.REJECTED, "too_slow"),
        ("corrupt/late", Verdict.REJECTED, "canary_mismatch"),
        ("quality/lost", Verdict.REJECTED, "quality_failed"),
        ("device/lost", Verdict.REJECTED, "device_lost"),
        ("device/dirty", Verdict.INVALID, "device_dirty"),
        ("oracle/nospec", Verdict.DIAGNOSTIC, None),
        ("draft/differs", Verdict.REJECTED, "parity_mismatch"),
        ("draft/against-an-old-fixture", Verdict.INVALID, "stale_oracle"),
        ("draft/never-drafted", Verdict.INVALID, "not_comparable"),
        ("tool/known-drift", Verdict.DIAGNOSTIC, None),
    ],
)
def test_each_kind_of_evidence_gets_the_verdict_and_code_it_asks_for(
    judged: dict[str, RecordJudgement], record: str, verdict: Verdict, code: str | None
) -> None:
    assert (judged[record].verdict, judged[record].code) == (verdict, code)
    assert judged[record].agrees


def test_a_rate_without_its_gates_is_not_accepted_whatever_the_record_says(
    judged: dict[str, RecordJudgement],
) -> None:
    judgement = judged["reference/without-gates"]
    assert judgement.verdict is Verdict.PROMISING
    assert not judgement.agrees
    assert "canary.json" in judgement.reason


def test_a_reason_carries_the_numbers_of_the_record(judged: dict[str, RecordJudgement]) -> None:
    assert "Repeat 77 of 128" in judged["corrupt/late"].reason
    assert "index 17" in judged["draft/differs"].reason
    assert "0.9778" in judged["slower/by-its-base"].reason


def test_the_records_own_verdict_decides_nothing(tmp_path: Path) -> None:
    turned = LABORATORY.read_text(encoding="utf-8")
    turned = turned.replace("verdict: promoted", "verdict: rejected")
    turned = turned.replace("verdict: promising", "verdict: rejected")
    file = tmp_path / "turned.yaml"
    file.write_text(turned, encoding="utf-8")
    before = [(j.record, j.verdict, j.code) for j in judge_file(LABORATORY)]
    assert [(j.record, j.verdict, j.code) for j in judge_file(file)] == before


def test_agreement_is_asked_for_where_verdict_and_gates_are_stated(
    judged: dict[str, RecordJudgement],
) -> None:
    assert judged["base/deep"].counts
    assert not judged["oracle/old-fixture"].counts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1", "must be a list"),
        ("- id: x\n  kind: endpoint", r"record 1 \(x\): verdict"),
        ("[", "YAML"),
    ],
)
def test_a_file_that_is_no_list_of_records_is_refused_with_its_place(
    tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecordedError, match=message):
        judge_file(file)
