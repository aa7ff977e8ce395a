"""The terminal while a study runs: a live board, plain lines without a terminal, or JSON."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from runners.redaction import plain
from tuner.board import Best, Board, Running
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

VERDICT_STYLES = {
    "accepted": "bold green",
    "promising": "cyan",
    "rejected": "red",
    "invalid": "yellow",
    "diagnostic": "dim",
}
LEVEL_STYLES = {"info": "dim", "warning": "yellow", "error": "bold red"}
REFRESH_PER_S = 4


class View(Protocol):
    """Shows events until it is closed; a context manager."""

    def show(self, event: Event | dict[str, Any]) -> None:
        """Take in one event, given as a model or as the plain document it was sent as."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def choose_view(*, json: bool = False, stream: TextIO | None = None) -> View:
    """JSON lines if asked for, the live board on a terminal, plain lines anywhere else."""
    out = sys.stdout if stream is None else stream
    if json:
        return JsonView(out)
    console = Console(file=out)
    return LiveView(console) if console.is_terminal else PlainView(out)


class _Lines:
    """Writes lines until its reader goes away: `tuner run STUDY | head` must not end the study."""

    def __init__(self, out: TextIO) -> None:
        self._out: TextIO | None = out

    def _print(self, line: str) -> None:
        try:
            if self._out is not None:
                print(line, file=self._out, flush=True)
        except BrokenPipeError:
            self._out = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class JsonView(_Lines):
    """One JSON object a line, each with its `event` and `at_s`: the shapes of tuner/events.py."""

    def show(self, event: Event | dict[str, Any]) -> None:
        """Print the event."""
        known = parse(event) if isinstance(event, dict) else event
        self._print(known.model_dump_json())


class PlainView(_Lines):
    """A line for each thing that a person would want in a log, so none for progress in a gate."""

    def show(self, event: Event | dict[str, Any]) -> None:
        """Print the event's lines, each with the time of day."""
        known = parse(event) if isinstance(event, dict) else event
        clock = time.strftime("%H:%M:%S", time.localtime(known.at_s))
        for line in sentences(known):
            self._print(f"{clock} {line}")


class LiveView:
    """A board at the bottom of the terminal; finished trials and notices scroll away above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board = Board()
        self._live = Live(
            console=console,
            get_renderable=lambda: board_of(self._board, time.time()),
            refresh_per_second=REFRESH_PER_S,
            transient=True,
        )

    def show(self, event: Event | dict[str, Any]) -> None:
        """Take the event in; the board redraws by itself."""
        known = parse(event) if isinstance(event, dict) else event
        self._board.fold(known)
        if isinstance(known, StudyStarted | TrialFinished | StudyFinished | Notice):
            for line in sentences(known):
                self._console.print(Text(line, style=_style(known)))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()


def sentences(event: Event) -> list[str]:
    """An event in words, as lines; none for progress inside a gate."""
    match event:
        case StudyStarted():
            return _study_started(event)
        case TrialStarted():
            return [_trial_started(event)]
        case GateProgress(done=0):
            return [f"trial {event.number}: {event.rung}/{event.gate} …"]
        case GateProgress():
            return []
        case GateFinished():
            rate = "" if event.tok_s is None else f" at {event.tok_s:.1f} tok/s"
            why = f": {plain(event.reason)}" if event.status != "passed" and event.reason else ""
            gate = f"{event.rung}/{event.gate}"
            return [f"trial {event.number}: {gate} {event.status}{rate}{why}"]
        case TrialFinished():
            return [_trial_finished(event)]
        case StudyFinished():
            return _study_finished(event)
        case Notice():
            where = "" if event.number is None else f"trial {event.number}: "
            level = "" if event.level == "info" else f"{event.level}: "
            return [f"{level}{where}{plain(event.message)}"]


def board_of(board: Board, now_s: float) -> RenderableType:
    """The live board at a moment."""
    running = Table(box=None, expand=True, padding=(0, 1), header_style="dim")
    for column in ("where", "trial", "gate", "progress", "elapsed", "tok/s", "tries"):
        running.add_column(
            column, no_wrap=column != "tries", ratio=2 if column == "tries" else None
        )
    for number, run in sorted(board.running.items()):
        running.add_row(
            escape(run.place),
            f"{number}{' control' if run.started.role == 'control' else ''}",
            f"{run.rung}/{run.gate}",
            progress_bar(run.done, run.total),
            duration(now_s - run.started.at_s),
            "-" if run.tok_s is None else f"{run.tok_s:.1f}",
            escape(changes_of(run)),
        )
    if not board.running:
        running.add_row("[dim]no trial is running[/dim]", *[""] * 6)
    return Group(Text("─" * 40, style="dim"), running, _totals(board, now_s))


def progress_bar(done: int, total: int, width: int = 12) -> str:
    """A bar with its count; empty where nothing is counted."""
    if total <= 0:
        return "·"
    filled = min(round(width * done / total), width)
    return f"{'━' * filled}{'╌' * (width - filled)} {done}/{total}"


def duration(seconds: float) -> str:
    """Seconds as people say them: 8 s, 3:05, 1:02:03."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def changes_of(run: Running) -> str:
    """The knobs that a running trial sets otherwise than the control."""
    return ", ".join(f"{name}={value}" for name, value in run.started.changes.items())


def best_in_words(best: Best | None) -> str:
    """The fastest accepted identity with its interval."""
    if best is None:
        return "none accepted yet"
    name = "" if best.number is None else f"trial {best.number}, "
    if best.low is None or best.high is None:
        return f"{name}{best.tok_s:.1f} tok/s"
    return f"{name}{best.tok_s:.1f} tok/s ({best.low:.1f} to {best.high:.1f})"


def _totals(board: Board, now_s: float) -> Table:
    totals = Table.grid(padding=(0, 2))
    left_s = board.remaining_s(now_s)
    budget = f" of {board.study.trials}" if board.study else ""
    end = "" if left_s is None else f", about {duration(left_s)} to go"
    totals.add_row("[dim]trials[/dim]", f"{board.finished}{budget}{end}")
    totals.add_row("[dim]best[/dim]", f"[green]{best_in_words(board.best)}[/green]")
    verdicts = ", ".join(f"{name} {count}" for name, count in board.verdicts.most_common())
    totals.add_row("[dim]verdicts[/dim]", verdicts or "-")
    codes = ", ".join(f"{name} {count}" for name, count in board.codes.most_common())
    totals.add_row("[dim]rejections[/dim]", codes or "-")
    for notice in board.notices[-1:]:
        style = LEVEL_STYLES[notice.level]
        totals.add_row("[dim]notice[/dim]", f"[{style}]{escape(plain(notice.message))}[/{style}]")
    return totals


def _study_started(event: StudyStarted) -> list[str]:
    again = f", {event.finished} in the ledger already" if event.finished else ""
    lines = [f"study {event.study}: {event.trials} trials{again}; results in {event.folder}"]
    if event.tracking:
        lines.append(f"MLflow: {event.tracking}")
    return lines


def _trial_started(event: TrialStarted) -> str:
    place = " ".join((event.host, *event.devices)).strip()
    again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    what = "control" if event.role == "control" else _changes(event)
    return f"trial {event.number}{again} starts on {place or 'this host'}: {what}"


def _changes(event: TrialStarted) -> str:
    return ", ".join(f"{k}={v}" for k, v in event.changes.items()) or plain(event.hypothesis)


def _trial_finished(event: TrialFinished) -> str:
    parts = [f"trial {event.number} {event.verdict}"]
    if event.code:
        parts.append(f"({event.code})")
    if event.tok_s is not None:
        interval = "" if event.low is None else f", {event.low:.1f} to {event.high:.1f}"
        parts.append(f"{event.tok_s:.1f} tok/s{interval}")
    line = " ".join(parts) + f" after {duration(event.seconds)}"
    if event.reason:
        line += f": {plain(event.reason)}"
    return line + (" It will be tried again." if event.will_retry else "")


def _study_finished(event: StudyFinished) -> list[str]:
    verdicts = ", ".join(f"{count} {name}" for name, count in event.verdicts.items())
    lines = [f"study {event.study} ends: {plain(event.why)} {event.finished} trials: {verdicts}."]
    if event.best is not None:
        rate = "" if event.best_tok_s is None else f" at {event.best_tok_s:.1f} tok/s"
        lines.append(f"best: trial {event.best}{rate}")
    if event.script:
        lines.append(f"launch script: {event.script}")
    if event.waiting_for_mlflow:
        lines.append(f"{event.waiting_for_mlflow} trials wait to be sent to MLflow")
    return lines + [f"next: {line}" for line in event.next]


def _style(event: Event) -> str:
    if isinstance(event, TrialFinished):
        return VERDICT_STYLES[event.verdict]
    return LEVEL_STYLES[event.level] if isinstance(event, Notice) else "bold"
