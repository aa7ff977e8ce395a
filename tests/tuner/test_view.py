"""What a person sees while a study runs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from tuner.board import Board
from tuner.events import (
    Event,
    GateFinished,
    GateProgress,
    Notice,
    StudyFinished,
    StudyStarted,
    TrialFinished,
    TrialStarted,
    parse,
)
from tuner.view import JsonView, LiveView, PlainView, board_of, choose_view, duration

START = StudyStarted(at_s=0, study="quick", folder="studies/quick", trials=10)
CONTROL = TrialStarted(at_s=0, number=0, role="control", host="lab", devices=("xpu:0",))
ACCEPTED = TrialFinished(
    at_s=60, number=0, verdict="accepted", tok_s=33.0, low=32.0, high=34.0, seconds=60
)
CANDIDATE = TrialStarted(
    at_s=60, number=1, host="lab", devices=("xpu:1",), changes={"dtype": "float16"}
)
REJECTED = TrialFinished(
    at_s=100, number=1, verdict="rejected", code="parity_mismatch", reason="Differs.", seconds=40
)


def plain_lines(*events: Event | dict[str, Any]) -> list[str]:
    out = io.StringIO()
    with PlainView(out) as view:
        for event in events:
            view.show(event)
    return [line[9:] for line in out.getvalue().splitlines()]


def drawn(board: Board, now_s: float) -> str:
    console = Console(file=io.StringIO(), width=140)
    with console.capture() as capture:
        console.print(board_of(board, now_s))
    return capture.get()


def folded(*events: Event) -> Board:
    board = Board()
    for event in events:
        board.fold(event)
    return board


def test_the_board_says_where_which_trial_is_at_which_gate_and_how_far() -> None:
    progress = GateProgress(at_s=70, number=1, rung="deep", gate="canary.json", done=32, total=64)
    text = drawn(folded(START, CONTROL, ACCEPTED, CANDIDATE, progress), now_s=90)
    for piece in ("lab xpu:1", "deep/canary.json", "32/64", "30 s", "dtype=float16"):
        assert piece in text


def test_the_board_says_the_best_with_its_interval_and_rejections_by_code() -> None:
    text = drawn(folded(START, CONTROL, ACCEPTED, CANDIDATE, REJECTED), now_s=100)
    assert "trial 0, 33.0 tok/s (32.0 to 34.0)" in text
    assert "parity_mismatch 1" in text
    assert "2 of 10" in text


def test_the_end_is_estimated_from_the_trials_that_ended() -> None:
    assert folded(START, CONTROL).remaining_s(10) is None
    board = folded(START, CONTROL, ACCEPTED, CANDIDATE, REJECTED)
    assert board.remaining_s(100) == pytest.approx(8 * 50)


def test_a_running_trial_counts_for_as_long_as_it_ran() -> None:
    board = folded(START, CONTROL, ACCEPTED, CANDIDATE)
    assert board.remaining_s(90) == pytest.approx(9 * 60 - 30)


def test_an_invalid_attempt_that_is_retried_is_no_finished_trial() -> None:
    retried = TrialFinished(number=1, verdict="invalid", code="host_fault", will_retry=True)
    board = folded(START, CONTROL, ACCEPTED, CANDIDATE, retried)
    assert board.finished == 1
    assert board.codes == {"host_fault": 1}


def test_plain_lines_tell_the_story_without_the_progress_inside_gates() -> None:
    lines = plain_lines(
        START,
        CANDIDATE,
        GateProgress(number=1, rung="smoke", gate="speed", done=0, total=2),
        GateProgress(number=1, rung="smoke", gate="speed", done=1, total=2),
        GateFinished(number=1, rung="smoke", gate="speed", status="passed", tok_s=35.5),
        GateFinished(number=1, rung="smoke", gate="parity", status="failed", reason="Differs."),
        REJECTED,
    )
    assert lines == [
        "study quick: 10 trials; results in studies/quick",
        "trial 1 starts on lab xpu:1: dtype=float16",
        "trial 1: smoke/speed …",
        "trial 1: smoke/speed passed at 35.5 tok/s",
        "trial 1: smoke/parity failed: Differs.",
        "trial 1 rejected (parity_mismatch) after 40 s: Differs.",
    ]


def test_the_end_says_why_what_won_and_what_to_type_next() -> None:
    end = StudyFinished(
        study="quick",
        why="Its budget is spent.",
        finished=2,
        verdicts={"accepted": 1, "rejected": 1},
        best=0,
        best_tok_s=33.0,
        script="studies/quick/launch.sh",
        next=("tuner ui quick",),
        waiting_for_mlflow=2,
    )
    text = "\n".join(plain_lines(end))
    for piece in ("budget is spent", "1 accepted, 1 rejected", "trial 0 at 33.0", "launch.sh"):
        assert piece in text
    assert "2 trials wait to be sent to MLflow" in text
    assert "next: tuner ui quick" in text


def test_what_an_engine_says_cannot_paint_the_terminal() -> None:
    notice = Notice(level="error", message="\x1b[31mred\x1b[0m [bold]not markup[/bold]")
    assert plain_lines(notice) == ["error: red [bold]not markup[/bold]"]
    assert "[bold]not markup[/bold]" in drawn(folded(START, notice), now_s=1)


def test_json_lines_hold_every_event_and_read_back_as_the_same() -> None:
    events: list[Event] = [START, CONTROL, ACCEPTED, CANDIDATE, REJECTED, Notice(message="hm")]
    out = io.StringIO()
    with JsonView(out) as view:
        for event in events:
            view.show(event.model_dump())
    assert [parse(json.loads(line)) for line in out.getvalue().splitlines()] == events


def test_the_view_is_chosen_by_where_it_goes() -> None:
    assert isinstance(choose_view(stream=io.StringIO()), PlainView)
    assert isinstance(choose_view(json=True, stream=io.StringIO()), JsonView)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_finished_trials_scroll_above_the_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    view = choose_view(stream=out)
    assert isinstance(view, LiveView)
    with view:
        for event in (START, CONTROL, ACCEPTED, CANDIDATE, REJECTED):
            view.show(event)
    assert "trial 1 rejected (parity_mismatch) after 40 s: Differs." in out.getvalue()


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_goes_away_does_not_end_the_study() -> None:
    for view in (PlainView(ClosedPipe()), JsonView(ClosedPipe())):
        view.show(START)
        view.show(CONTROL)


@pytest.mark.parametrize(
    ("seconds", "text"), [(8.9, "8 s"), (185, "3:05"), (3723, "1:02:03"), (-1, "0 s")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
