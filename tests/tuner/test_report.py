"""The report says what won, how sure that is, what was rejected and what was not tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tuner.trial_records import (
    CONTROL_ARGS,
    accepted_record,
    control_record,
    invalid_record,
    rate_of,
    record_of,
    rejected_record,
)
from tuner.figures import as_bytes, figures
from tuner.ledger import Ledger, TrialRecord
from tuner.notebook import entry, headline
from tuner.report import html_report, markdown_report, study_note, write_report
from tuner.rows import rows_of
from tuner.standing import Standing, knob_shares
from tuner.verdict import Code, Judgement, Verdict

STORY = (
    control_record(0),
    rejected_record(1),
    rejected_record(2, Code.TOO_SLOW, args={**CONTROL_ARGS, "dtype": "float32"}),
    invalid_record(3),
    accepted_record(4),
    rejected_record(5, Code.DEVICE_LOST, rate=None),
    record_of(6, judgement=Judgement(verdict=Verdict.PROMISING, missing=("ab", "quality.copy"))),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return ledger_of(tmp_path, *STORY)


def ledger_of(folder: Path, *records: TrialRecord) -> Ledger:
    ledger = Ledger(folder / "ledger.jsonl")
    for record in records:
        ledger.append(record)
    return ledger


def section(markdown: str, title: str) -> str:
    return markdown.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_summary_names_the_winner_with_its_interval_and_what_it_changed(
    ledger: Ledger,
) -> None:
    summary = markdown_report(ledger).split("\n## ")[0]
    assert "7 trials" in summary
    assert "3 rejected" in summary
    assert "**Trial 4 won**, with 40.55 tok/s (95% interval 39.88 to 41.22, 4 repeats)" in summary
    assert "max-num-seqs=16" in summary


def test_without_a_promotion_the_report_says_that_nothing_beat_the_control(tmp_path: Path) -> None:
    text = markdown_report(ledger_of(tmp_path, control_record(), rejected_record(1)))
    assert "**Nothing beat the control**" in text


def test_without_a_control_it_says_that_nothing_can_be_exported(tmp_path: Path) -> None:
    text = markdown_report(ledger_of(tmp_path, rejected_record(1)))
    assert "nothing can be exported" in text


def test_trials_of_an_earlier_lane_are_left_out(tmp_path: Path) -> None:
    old = [accepted_record(8, lane="0" * 64), rejected_record(9, lane="0" * 64)]
    text = markdown_report(ledger_of(tmp_path, *old, control_record(0), rejected_record(1)))
    assert "2 trials" in text
    assert "**Nothing beat the control**" in text


def test_an_empty_ledger_has_a_report_too(tmp_path: Path) -> None:
    assert "Nothing has been tried yet" in markdown_report(ledger_of(tmp_path))
    assert "<html" in html_report(ledger_of(tmp_path))


def test_certainty_is_told_in_the_gates_own_numbers(ledger: Ledger) -> None:
    certainty = section(markdown_report(ledger), "How sure is this?")
    assert "ab, deep: ab holds." in certainty
    assert "Quality validated: yes; promotion ready: yes." in certainty


def test_a_promotion_shows_its_difference_from_its_control_and_its_evidence(
    ledger: Ledger,
) -> None:
    promotions = section(markdown_report(ledger), "Promotions")
    assert "| `configuration.args.max-num-seqs` | `8` | `16` |" in promotions
    assert "| `ab` | deep | passed | ab holds. |" in promotions


def test_rejections_are_grouped_by_code_with_their_reasons(ledger: Ledger) -> None:
    rejections = section(markdown_report(ledger), "Rejections by code")
    for code in ("parity_mismatch (1)", "too_slow (1)", "device_lost (1)"):
        assert f"### {code}" in rejections
    assert "dtype=float32" in rejections
    assert "differs at index 12" in rejections


def test_what_was_not_tested_is_said(ledger: Ledger) -> None:
    untested = section(markdown_report(ledger), "What was not tested")
    assert "Trial 6 passed what ran; not run: ab, quality.copy." in untested
    assert "No gate of these kinds ran on the best trial: startup, quality, slo." in untested
    assert "p128-o128 only" in untested


def test_the_notebook_is_in_the_order_of_time_with_every_attempt(tmp_path: Path) -> None:
    first = invalid_record(9, finished_at="2026-12-01T09:00:00+00:00")
    again = rejected_record(9, attempt=2, finished_at="2026-12-01T09:30:00+00:00")
    ledger = ledger_of(tmp_path, *STORY, again, first)
    titles = re.findall(r"^## (2026\S+) Trial (.*)$", markdown_report(ledger), re.MULTILINE)
    assert titles[:3] == [
        ("2026-12-01T09:00", "9"),
        ("2026-12-01T09:30", "9, attempt 2"),
        ("2026-12-01T10:00", "0"),
    ]


def test_missing_is_never_passed_in_the_table() -> None:
    row = rows_of([rejected_record(1)])[0]
    assert (row.parity, row.canaries, row.quality) == ("failed", "missing", "missing")
    assert row.first_failure == "parity"
    assert not row.quality_validated


def test_promotion_needs_the_asked_rate_besides_the_verdict() -> None:
    (row,) = rows_of([accepted_record(4)], min_tok_s=40)
    assert row.promotion_ready
    assert row.ms_per_token == pytest.approx(1000 / 40.55)
    (row,) = rows_of([accepted_record(4)], min_tok_s=41)
    assert not row.promotion_ready
    assert row.quality_validated


def test_the_html_is_one_file_that_fetches_nothing(ledger: Ledger) -> None:
    html = html_report(ledger)
    assert "data:image/svg+xml;base64," in html
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", html)
    assert addresses
    assert all(address.startswith("data:image/svg+xml;") for address in addresses)
    assert "<script" not in html


def test_what_an_engine_says_is_text_and_never_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) ![y](http://evil/x.png) | a\n# b"
    record = rejected_record(1, hypothesis=evil, notices=(evil,))
    ledger = ledger_of(tmp_path, control_record(), record)
    html = html_report(ledger)
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert 'evil/x.png"' not in html
    assert "\n# b" not in markdown_report(ledger)


def test_the_files_are_written_with_their_pictures(ledger: Ledger, tmp_path: Path) -> None:
    markdown, html = write_report(ledger, tmp_path / "out", min_tok_s=30)
    pictures = re.findall(r"\]\((figures/\w+\.svg)\)", markdown.read_text())
    assert len(pictures) == 6
    assert all((markdown.parent / picture).is_file() for picture in pictures)
    assert html.read_text().startswith("<!doctype html>")


def test_equal_trials_give_equal_pictures() -> None:
    standing = Standing.of(STORY)
    first, second = figures(standing), figures(standing)
    assert first.keys() == {"rates", "repeats", "seconds", "rejections", "pareto", "knobs"}
    for name in first:
        assert as_bytes(first[name], "svg") == as_bytes(second[name], "svg")


def test_a_picture_that_nothing_fills_is_not_drawn() -> None:
    assert figures(Standing.of([rejected_record(1, rate=None, seconds_by_rung={})])).keys() == {
        "rejections"
    }


def test_the_knob_that_alone_decides_the_rate_explains_all_of_its_variance() -> None:
    trials = [
        record_of(n, assignment={"fast": n % 2, "idle": n // 2, "same": 1}, rate=rate_of(speed))
        for n, speed in enumerate((10.0, 20.0, 10.0, 20.0))
    ]
    shares = knob_shares(trials)
    assert shares["fast"] == pytest.approx(1)
    assert shares["idle"] == pytest.approx(0, abs=1e-12)
    assert "same" not in shares


def test_two_trials_say_nothing_about_knobs() -> None:
    assert knob_shares([control_record(), accepted_record(1)]) == {}


def test_the_studys_note_counts_rejections_and_points_to_the_report() -> None:
    note = study_note(Standing.of(STORY))
    assert "| parity_mismatch | 1 | 1 |" in note
    assert "report.html" in note


def test_an_entry_reads_as_hypothesis_difference_result_and_decision() -> None:
    text = entry(rejected_record(1), control_record())
    parts = ["### Rejected: parity_mismatch", "**Hypothesis.**", "**Identity against the control**"]
    parts += ["**Result.**", "**Gates.**", "**Evidence of `parity`.**", "**Decision.**"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "never counted as passed: `quality.copy`" in text


def test_a_headline_says_why_before_all_else() -> None:
    assert headline(rejected_record(7)) == "7 parity_mismatch · rejected · 33.5 tok/s"
    assert headline(control_record()) == "0 control · accepted · 33.5 tok/s"
    assert headline(accepted_record(3)) == "3 accepted · 40.5 tok/s"
