"""Known causes of failure, as data: `catalog/signatures.yaml` read and checked."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from ruamel.yaml import YAML

from runners.failure import Blame, Phase
from runners.runner import CATALOG


class Signature(BaseModel):
    """One cause, or one symptom, and how it shows in a line of a log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    pattern: str
    kind: Literal["root", "symptom", "silent", "ignored"] = "root"
    code: str
    phase: Phase | None = None
    blame: Blame
    retry: bool
    reason: str
    fix: str = ""
    during: str | None = Field(None, description="What an earlier line must show too.")
    near: str | None = Field(None, description="Gives more named groups, from lines around.")

    @field_validator("pattern", "during", "near")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            re.compile(pattern)
        return pattern

    def search(self, line: str) -> re.Match[str] | None:
        """Where the pattern stands in the line."""
        return re.search(self.pattern, line)  # `re` keeps compiled patterns

    def sentence(self, match: re.Match[str], around: Sequence[str] = ()) -> str:
        """The reason with the named groups filled in, those of `near` from the first fitting line.

        `around` are lines near the match, the closest first.
        """
        groups = dict.fromkeys(re.compile(self.near).groupindex if self.near else (), "(unnamed)")
        groups |= {name: (text or "").strip() for name, text in match.groupdict().items()}
        for line in around if self.near else ():
            close = re.search(self.near or "", line)
            if close:
                groups |= close.groupdict()
                break
        return self.reason.format_map(groups).strip()


@functools.cache
def load_signatures(path: Path = CATALOG / "signatures.yaml") -> tuple[Signature, ...]:
    """All signatures, in the file's order.

    Raises:
        ValueError: two entries have the same id, or one is not well-formed.
    """
    rows: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    signatures = tuple(Signature.model_validate(row) for row in rows)
    ids = [signature.id for signature in signatures]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise ValueError(f"{path.name}: the id {sorted(twice)[0]!r} is used twice")
    return signatures
