"""The normalised table of a study: one row a trial, the same columns whatever was measured."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from objectives import GateKind
from tuner.ledger import TrialRecord
from tuner.standing import first_failure, status_of


class Row(BaseModel):
    """A trial in columns. A gate that did not run is `missing`, never `passed`.

    `ms_per_token` is the inverse of the corrected rate. `promotion_ready` needs, besides what the
    verdict needs, that the rate reaches the asked floor.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trial: int
    verdict: str
    code: str
    tok_s: float | None
    tok_s_low: float | None
    tok_s_high: float | None
    ms_per_token: float | None
    canaries: str
    parity: str
    quality: str
    first_failure: str
    quality_validated: bool
    promotion_ready: bool


def rows_of(trials: Iterable[TrialRecord], *, min_tok_s: float | None = None) -> list[Row]:
    """The rows, in the order of the trials."""
    return [_row(trial, min_tok_s) for trial in trials]


def _row(trial: TrialRecord, min_tok_s: float | None) -> Row:
    speed = trial.rate.tok_s if trial.rate is not None else None
    fast_enough = min_tok_s is None or (speed is not None and speed.mean >= min_tok_s)
    return Row(
        trial=trial.number,
        verdict=trial.verdict.value,
        code=trial.rejection.code.value if trial.rejection else "",
        tok_s=speed.mean if speed else None,
        tok_s_low=speed.low if speed else None,
        tok_s_high=speed.high if speed else None,
        ms_per_token=1000 / speed.mean if speed and speed.mean > 0 else None,
        canaries=status_of(trial, GateKind.CANARY),
        parity=status_of(trial, GateKind.PARITY),
        quality=status_of(trial, GateKind.QUALITY),
        first_failure=first_failure(trial),
        quality_validated=trial.judgement.quality_validated,
        promotion_ready=trial.judgement.promotion_ready and fast_enough,
    )
