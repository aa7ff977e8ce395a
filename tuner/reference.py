"""The reference: what the control says, recorded once and checked against itself.

A candidate's tokens, canary answers and quality baseline are compared with these. The reference
belongs to one identity; when the control's identity no longer matches, it is recorded again.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from objectives import CanaryBaseline, Oracle, QualityBaseline, SelfParity


class Reference(BaseModel):
    """The control's token traces and baselines, with how exactly it repeats itself.

    `self_parity` compares it with a restarted server, also while that answers several requests; it
    is None until the second server has been asked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity_sha: str
    oracle: Oracle
    canaries: dict[str, CanaryBaseline]
    quality: QualityBaseline | None
    self_parity: SelfParity | None = None

    def save(self, path: Path) -> None:
        """Write to `path` in one step: a reader sees the old file or the new one, never half."""
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path, identity_sha: str) -> Reference | None:
        """The reference at `path` if it is whole and belongs to that identity, else None."""
        try:
            reference = cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            return None
        return reference if reference.identity_sha == identity_sha else None
