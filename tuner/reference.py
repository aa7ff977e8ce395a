"""The reference: what the control says, recorded once and checked against itself.

A candidate's tokens, canary answers and quality baseline are compared with these. The reference
belongs to one identity; when the control's identity no longer matches, it is recorded again.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from objectives import (
    CanaryBaseline,
    GateKind,
    GateResult,
    GateStatus,
    Objective,
    Oracle,
    QualityBaseline,
    Rung,
    SelfParity,
)


class Reference(BaseModel):
    """The control's token traces and baselines, with how exactly it repeats itself.

    `self_parity` compares it with a restarted server, `under_load` with one that answers several
    requests at a time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity_sha: str
    oracle: Oracle
    self_parity: SelfParity
    under_load: SelfParity
    canaries: dict[str, CanaryBaseline]
    quality: QualityBaseline | None

    def save(self, path: Path) -> None:
        """Write to `path` in one step: a reader sees the old file or the new one, never half."""
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: Path, identity_sha: str) -> Reference | None:
        """The reference at `path` if it is whole and belongs to that identity, else None."""
        try:
            reference = cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            return None
        return reference if reference.identity_sha == identity_sha else None

    def notices(self, streams: int) -> list[str]:
        """What a person should know of how far exact parity can be asked for in this lane."""
        told = [f"Restarted: {self.self_parity.sentence()}"]
        if not self.under_load.exact:
            told.append(
                f"With {streams} requests at a time the reference itself says something else on "
                f"{len(self.under_load.differing)} of {self.under_load.prompts} prompts, first at "
                f"index {self.under_load.first_index}: parity holds for one request at a time."
            )
        return told


def self_parity_gate(parity: SelfParity, objective: Objective, rung: Rung) -> GateResult:
    """The control's own parity gate: exact, or at least bounded where the objective asks no more."""
    bounded = objective.parity.mode == "bounded" and parity.margin is not None
    passed = parity.exact or bounded
    return GateResult(
        gate="parity",
        kind=GateKind.PARITY,
        rung=rung.rung,
        status=GateStatus.PASSED if passed else GateStatus.FAILED,
        code=None if passed else "parity_mismatch",
        reason=parity.sentence(),
        constraint=0.0 if passed else len(parity.differing) / parity.prompts,
        evidence=parity.model_dump(mode="json"),
    )
