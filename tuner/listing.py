"""The trials of a study as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from runners.redaction import plain
from tuner.identity import ABSENT, Value
from tuner.ledger import Ledger, TrialRecord
from tuner.verdict import Verdict
from tuner.view import VERDICT_STYLES

SORTS = ("number", "rate", "verdict")


class UnknownChoice(ValueError):
    """A filter or an order that the listing does not have."""


def chosen(ledger: Ledger, *, verdict: str = "", sort: str = "number") -> list[TrialRecord]:
    """The last attempt of each trial, filtered by verdict and sorted.

    Raises UnknownChoice, naming what there is, for an unknown verdict or order.
    """
    if verdict and verdict not in list(Verdict):
        raise UnknownChoice(f"no verdict is called '{verdict}'; there are: {', '.join(Verdict)}")
    if sort not in SORTS:
        raise UnknownChoice(f"cannot sort by '{sort}'; there are: {', '.join(SORTS)}")
    trials = [trial for trial in ledger.trials if not verdict or trial.verdict.value == verdict]
    if sort == "rate":
        trials.sort(key=lambda trial: -(trial.tok_s or 0.0))
    elif sort == "verdict":
        trials.sort(key=lambda trial: list(Verdict).index(trial.verdict))
    return trials


def table(trials: Iterable[TrialRecord]) -> Table:
    """One row a trial: number, verdict, rung, rate with interval, what was changed, why."""
    trials = list(trials)
    controls = [trial for trial in trials if trial.role == "control"]
    base = controls[0].assignment if controls else {}
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", "verdict", "rung"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("tok/s", no_wrap=True, justify="right")
    rows.add_column("changed", ratio=2, overflow="fold")
    rows.add_column("why", ratio=4, overflow="fold")
    for trial in trials:
        rows.add_row(
            str(trial.number),
            Text(trial.verdict.value, style=VERDICT_STYLES[trial.verdict.value]),
            trial.rung,
            _rate(trial),
            "(control)" if trial.role == "control" else _changes(trial, base),
            _why(trial),
        )
    return rows


def _rate(trial: TrialRecord) -> str:
    if trial.rate is None:
        return "-"
    tok_s = trial.rate.tok_s
    if tok_s.low is None or tok_s.high is None:
        return f"{tok_s.mean:.1f}"
    return f"{tok_s.mean:.1f} ±{(tok_s.high - tok_s.low) / 2:.1f}"


def _changes(trial: TrialRecord, base: Mapping[str, Value]) -> str:
    mine = trial.assignment
    knobs = [*mine, *(name for name in base if name not in mine)]
    changed = [k for k in knobs if mine.get(k, ABSENT) != base.get(k, ABSENT)]
    return ", ".join(f"{knob}={mine.get(knob, ABSENT)}" for knob in changed) or "nothing"


def _why(trial: TrialRecord) -> str:
    if trial.rejection is None:
        return ""
    return plain(f"{trial.rejection.code.value}: {trial.rejection.reason}")
