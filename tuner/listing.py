"""The trials of a study as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from runners.redaction import plain
from tuner.identity import ABSENT, Value
from tuner.ledger import Ledger, TrialRecord
from tuner.telling import TELLING_REPEATS
from tuner.verdict import Verdict
from tuner.view import VERDICT_STYLES

SORTS = ("number", "rate", "verdict")
HEADER = ("trial", "verdict", "rung", "tok/s", "changed")


class UnknownChoiceError(ValueError):
    """A filter or an order that the listing does not have."""


def chosen(ledger: Ledger, *, verdict: str = "", sort: str = "number") -> list[TrialRecord]:
    """The last attempt of each trial, filtered by verdict and sorted.

    Raises UnknownChoiceError, naming what there is, for an unknown verdict or order.
    """
    if verdict and verdict not in list(Verdict):
        raise UnknownChoiceError(
            f"no verdict is called '{verdict}'; there are: {', '.join(Verdict)}"
        )
    if sort not in SORTS:
        raise UnknownChoiceError(f"cannot sort by '{sort}'; there are: {', '.join(SORTS)}")
    trials = [trial for trial in ledger.trials if not verdict or trial.verdict.value == verdict]
    if sort == "rate":
        trials.sort(key=lambda trial: -(trial.tok_s or 0.0))
    elif sort == "verdict":
        trials.sort(key=lambda trial: list(Verdict).index(trial.verdict))
    return trials


def table(trials: Iterable[TrialRecord]) -> RenderableType:
    """Two lines a trial: number, verdict, rung, rate with interval, what was changed; then why.

    The reason has the whole width to itself, since it is the one thing that people came to read.
    """
    trials = list(trials)
    controls = [trial for trial in trials if trial.role == "control"]
    base = controls[0].assignment if controls else {}
    rows = [
        (
            str(trial.number),
            trial.verdict.value,
            trial.rung,
            _rate(trial),
            "(control)" if trial.role == "control" else _changes(trial, base),
        )
        for trial in trials
    ]
    widths = [max(len(row[at]) for row in [HEADER, *rows]) for at in range(len(HEADER))]
    lines: list[RenderableType] = [Text(_line(HEADER, widths), style="bold")]
    for trial, row in zip(trials, rows, strict=True):
        line = Text(_line(row, widths))
        line.highlight_words([trial.verdict.value], style=VERDICT_STYLES[trial.verdict.value])
        lines.append(line)
        if trial.rejection is not None:
            why = plain(f"{trial.rejection.code.value}: {trial.rejection.reason}")
            lines.append(Padding(Text(why, style="dim"), (0, 0, 0, widths[0] + 2)))
    return Group(*lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _rate(trial: TrialRecord) -> str:
    if trial.rate is None:
        return "-"
    tok_s = trial.rate.tok_s
    if tok_s.low is None or tok_s.high is None or tok_s.n < TELLING_REPEATS:
        return f"{tok_s.mean:.1f}"
    return f"{tok_s.mean:.1f} ±{(tok_s.high - tok_s.low) / 2:.1f}"


def _changes(trial: TrialRecord, base: Mapping[str, Value]) -> str:
    mine = trial.assignment
    knobs = [*mine, *(name for name in base if name not in mine)]
    changed = [k for k in knobs if mine.get(k, ABSENT) != base.get(k, ABSENT)]
    return ", ".join(f"{knob}={mine.get(knob, ABSENT)}" for knob in changed) or "nothing"
