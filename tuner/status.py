"""Where a study stands at this moment, read from its folder only."""

from __future__ import annotations

import fcntl
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tuner.study import Study


class Status(BaseModel):
    """A study as its folder shows it; another process may be running it (`running`).

    `in_progress` are the trials whose folder is there and whose record is not yet: those that run
    now, or that a run left unfinished.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    folder: str
    running: bool
    finished: int
    budget: int
    verdicts: dict[str, int]
    rejections: dict[str, int]
    best: int | None
    best_tok_s: float | None
    in_progress: tuple[int, ...]
    waiting_for_mlflow: int

    def sentences(self) -> list[str]:
        """The status in words, a line each."""
        state = "is running" if self.running else "is not running"
        lines = [f"study {self.study} {state}: {self.finished} of {self.budget} trials"]
        if self.verdicts:
            lines.append("verdicts: " + _listed(self.verdicts))
        if self.rejections:
            lines.append("rejections: " + _listed(self.rejections))
        if self.best is not None:
            rate = "" if self.best_tok_s is None else f" at {self.best_tok_s:.1f} tok/s"
            lines.append(f"best: trial {self.best}{rate}")
        if self.in_progress:
            numbers = ", ".join(map(str, self.in_progress))
            what = "running now" if self.running else "unfinished, begun again by the next run"
            lines.append(f"{what}: trial {numbers}")
        if self.waiting_for_mlflow:
            lines.append(f"{self.waiting_for_mlflow} trials wait to be sent to MLflow")
        return lines


def status_of(study: Study) -> Status:
    """The status of a study. Raises LedgerError if its ledger is damaged."""
    trials = study.trials
    best = study.best
    recorded = {record.key for record in study.ledger}
    return Status(
        study=study.name,
        folder=str(study.folder),
        running=_is_held(study.folder / ".lock"),
        finished=len(trials),
        budget=study.files.study.budget.trials,
        verdicts=dict(Counter(trial.verdict.value for trial in trials)),
        rejections=dict(Counter(t.rejection.code.value for t in trials if t.rejection)),
        best=best.number if best else None,
        best_tok_s=best.tok_s if best else None,
        in_progress=tuple(sorted({n for n, a in _begun(study.folder) if (n, a) not in recorded})),
        waiting_for_mlflow=sum(1 for _ in (study.folder / "outbox").rglob("*.json")),
    )


def _begun(folder: Path) -> list[tuple[int, int]]:
    """(trial, attempt) of every attempt that has a folder."""
    return [
        (int(path.parent.name), int(path.name.removeprefix("attempt-")))
        for path in (folder / "trials").glob("[0-9]*/attempt-[0-9]*")
    ]


def _is_held(lock: Path) -> bool:
    """Whether a process holds the study's lock."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
