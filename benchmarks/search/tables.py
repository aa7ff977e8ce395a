"""Tables of outcomes: what every configuration of a space did, so that searches can be replayed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from search_spaces import SearchSpace, Value

GATES = ("startup", "parity")


@dataclass(frozen=True)
class Outcome:
    """What one configuration did: its rate (None: it crashed) and whether its tokens were right."""

    tok_s: float | None
    same_tokens: bool

    @property
    def feasible(self) -> bool:
        """It served, and said what the control says."""
        return self.tok_s is not None and self.same_tokens

    @property
    def constraints(self) -> dict[str, float]:
        """One number per gate; a gate that did not run counts a little, as in a study."""
        if self.tok_s is None:
            return {"startup": 1.0, "parity": 1e-3}
        return {"startup": 0.0, "parity": 0.0 if self.same_tokens else 0.5}


@dataclass(frozen=True)
class Table:
    """A space with the outcome of each of its configurations, and where they come from."""

    name: str
    space: SearchSpace
    outcome: Callable[[Mapping[str, Value]], Outcome]
    identity: Mapping[str, Any]

    @cached_property
    def rows(self) -> dict[str, Outcome]:
        """Every configuration's outcome, by its key."""
        return {key(values): self.outcome(values) for values in self.space.enumerate()}

    @cached_property
    def best_tok_s(self) -> float:
        """The rate of the best feasible configuration."""
        return max(row.tok_s or 0.0 for row in self.rows.values() if row.feasible)

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of the configurations that crash, that say something else, and that are good."""
        rows = list(self.rows.values())
        near = 0.95 * self.best_tok_s
        return {
            "crash": sum(row.tok_s is None for row in rows) / len(rows),
            "corrupt": sum(row.tok_s is not None and not row.same_tokens for row in rows)
            / len(rows),
            "within_5_percent": sum(row.feasible and (row.tok_s or 0) >= near for row in rows)
            / len(rows),
        }


def key(assignment: Mapping[str, Value]) -> str:
    """One text per assignment."""
    return json.dumps(dict(assignment), sort_keys=True, separators=(",", ":"))


def read(path: Path) -> Table:
    """A recorded table: `{"identity": ..., "space": ..., "rows": [{assignment, tok_s, ...}]}`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        document = json.load(file)
    rows = {
        key(row["assignment"]): Outcome(row["tok_s"], row["same_tokens"])
        for row in document["rows"]
    }
    space = SearchSpace.model_validate(document["space"])
    return Table(
        path.name.split(".")[0], space, lambda values: rows[key(values)], document["identity"]
    )
