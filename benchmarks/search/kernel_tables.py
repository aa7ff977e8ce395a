"""Recorded tables of kernels as tables that every search can be replayed on.

    python -m benchmarks.search.kernel_tables                 # all of them, five seeds
    python -m benchmarks.search.kernel_tables --seeds 25 --methods guided,tpe,random

A kernel has a time and no token rate: what is maximised is calls per second. What a constraint of
the kernel refuses stands in no table; a search that knows the rules never asks for it, and one
that does not (plain samplers) is told that it failed. Only tables without a budget are exhaustive.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import optuna
from pydantic import PrivateAttr

import kernels
from benchmarks.search.replay import HERE, replay
from benchmarks.search.tables import Outcome, Table, key
from kernels import KernelTrial, TrialTable
from search_spaces import Configuration, Knob, Refusal, SearchSpace, Value

GOAL = 0.95


@dataclass(frozen=True)
class KernelOutcome(Outcome):
    """An outcome that tells an inexact kernel, which has no time, from one that did not run."""

    ran: bool

    @property
    def constraints(self) -> dict[str, float]:
        """One number per gate, as for servers."""
        if not self.ran:
            return super().constraints
        return {"startup": 0.0, "parity": 0.0 if self.same_tokens else 0.5}


REFUSED = KernelOutcome(tok_s=None, same_tokens=False, ran=False)
"""What becomes of a configuration that a constraint refuses, if it is started all the same."""


class RecordedSpace(SearchSpace):
    """The values that a table holds; what it does not hold is refused, as it was when recorded."""

    _recorded: frozenset[str] = PrivateAttr()

    @classmethod
    def of(cls, name: str, table: TrialTable) -> RecordedSpace:
        """The space of a table, its control the candidate's default or else its first row."""
        control = default_of(table)
        space = cls(
            name=name,
            engine="kernels",
            knobs={
                parameter: Knob(
                    choices=tuple(sorted({row.config[parameter] for row in table.rows})),
                    default=control[parameter],
                )
                for parameter in table.header["parameters"]
            },
        )
        space._recorded = frozenset(key(row.config) for row in table.rows)
        return space

    def refusals(
        self,
        configuration: Configuration,
        facts: Mapping[str, Value] = {},  # noqa: ARG002 - nothing reopens a limit of the device
    ) -> list[Refusal]:
        """One refusal for what was not recorded."""
        if key(configuration.assignment) in self._recorded:
            return []
        reason = "A constraint of the kernel refused it when the table was recorded."
        return [Refusal(code="constraint", reason=reason, rule=self.name, source_code=None)]

    def enumerate(self) -> Iterator[dict[str, Value]]:
        """What was recorded, the control's values first."""
        for assignment in super().enumerate():
            if key(assignment) in self._recorded:
                yield assignment


class KernelTable(Table):
    """A table that also answers for what was refused."""

    @cached_property
    def rows(self) -> dict[str, Outcome]:
        """The outcome of every combination of values, refused ones included, by its key."""
        domains = {name: knob.values or () for name, knob in self.space.knobs.items()}
        combinations = (
            dict(zip(domains, values, strict=True)) for values in product(*domains.values())
        )
        return {key(values): self.outcome(values) for values in combinations}


def read_kernel_table(path: Path) -> KernelTable:
    """A table that `tuner kernel tune --out` wrote. Raises KernelError for any other file."""
    table = kernels.read_table(path)
    known = {key(row.config): outcome_of_trial(row) for row in table.rows}
    name = path.stem
    return KernelTable(
        name,
        RecordedSpace.of(name, table),
        lambda values: known.get(key(values), REFUSED),
        table.header["identity"],
    )


def outcome_of_trial(trial: KernelTrial) -> KernelOutcome:
    """Calls per second where it was exact; ran and wrong; or not run to an answer."""
    return KernelOutcome(
        tok_s=None if trial.us is None else 1e6 / trial.us,
        same_tokens=trial.exact,
        ran=trial.status in ("exact", "inexact"),
    )


def default_of(table: TrialTable) -> dict[str, Value]:
    """The candidate's default configuration where the table has it, else its first row."""
    kernels.list_ops()
    op = kernels.REGISTRY.get(table.header["op"])
    candidate = op.candidates.get(table.header["candidate"]) if op else None
    default = dict(candidate.space.default) if candidate else {}
    rows = [dict(row.config) for row in table.rows]
    return default if default in rows else rows[0]


def exhaustive_tables() -> dict[str, Path]:
    """The recorded tables that no budget cut short, by name."""
    return {
        path.stem: path
        for path in sorted((HERE / "tables").glob("*.jsonl"))
        if "--budget" not in kernels.read_table(path).header["command"]
    }


def evaluations(curve: list[float]) -> float:
    """Unique evaluations until 95 % of the best exact rate; infinite if that was not reached."""
    return next((at + 1 for at, share in enumerate(curve) if share >= GOAL), float("inf"))


def main() -> None:
    """Replay and print, for each table and method, the median number of evaluations needed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default="guided,tpe,tpe-zero,random")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(logging.ERROR)
    print("table | configurations | within 5 % | " + " | ".join(options.methods.split(",")))
    for name, path in exhaustive_tables().items():
        table = read_kernel_table(path)
        exact = [row.tok_s or 0.0 for row in table.rows.values() if row.feasible]
        near = sum(rate >= GOAL * table.best_tok_s for rate in exact)
        cells = [
            statistics.median(
                evaluations(replay(table, method, seed, options.budget)["curve"])
                for seed in range(options.seeds)
            )
            for method in options.methods.split(",")
        ]
        print(f"{name} | {len(exact)} | {near} | " + " | ".join(f"{cell:g}" for cell in cells))


if __name__ == "__main__":
    main()
