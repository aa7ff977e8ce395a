"""Recorded tables of kernels can be searched like any other table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search.kernel_tables import exhaustive_tables, read_kernel_table
from benchmarks.search.replay import replay
from benchmarks.search.tables import Table
from kernels import read_table

TABLES = Path(__file__).resolve().parents[2] / "benchmarks" / "search" / "tables"
GROUPED = TABLES / "h200-grouped-gemm-w8a8-decode-tp4-t1-gemm1-triton-grouped.jsonl"
RACE = TABLES / "h200-grouped-gemm-w8a8-decode-tp4-t1-gemm1-with-race.jsonl"


@pytest.fixture(scope="module")
def table() -> Table:
    return read_kernel_table(GROUPED)


def test_every_recorded_row_is_a_configuration_of_the_space(table: Table) -> None:
    recorded = read_table(GROUPED).rows
    assert len(list(table.space.enumerate())) == len(recorded) == 1176
    assert table.best_tok_s == pytest.approx(1e6 / min(row.us for row in recorded if row.us))


def test_the_control_is_recorded_and_exact(table: Table) -> None:
    control = table.space.control()
    assert not table.space.refusals(control)
    assert table.outcome(control.assignment).feasible


def test_what_a_constraint_refused_is_refused_and_fails_who_starts_it(table: Table) -> None:
    refused = [row for row in table.rows.values() if row.constraints["startup"] > 0]
    assert len(refused) == len(table.rows) - 1176 > 0


@pytest.mark.parametrize("method", ["guided", "tpe", "tpe-zero", "random"])
def test_every_method_replays_to_an_exact_winner(table: Table, method: str) -> None:
    row = replay(table, method, seed=1, budget=12)
    assert len(row["curve"]) == 12
    assert row["winner_is_feasible"]


def test_a_race_is_a_failed_parity_and_no_crash() -> None:
    table = read_kernel_table(RACE)
    inexact = [row for row in table.rows.values() if row.constraints["parity"] == 0.5]
    assert len(inexact) == 6
    assert all(row.constraints["startup"] == 0.0 and not row.feasible for row in inexact)


def test_only_tables_that_no_budget_cut_short_count_as_exhaustive() -> None:
    names = exhaustive_tables()
    assert {GROUPED.stem, RACE.stem} <= names.keys()
    assert not any("t64" in name for name in names)
