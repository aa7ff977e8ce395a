"""The search against tables whose best is known: few evaluations, and never a wrong winner."""

from __future__ import annotations

import pytest

from benchmarks.search.methods import make, outcome_of
from benchmarks.search.replay import replay
from benchmarks.search.synthetic import conditional
from benchmarks.search.tables import Table

pytestmark = pytest.mark.slow

SEEDS = (300, 301, 302)


@pytest.fixture(scope="module", params=SEEDS)
def table(request: pytest.FixtureRequest) -> Table:
    return conditional(request.param)


def test_a_table_has_traps_and_a_best_that_avoids_them(table: Table) -> None:
    rows = table.rows.values()
    assert len(rows) == 7_560
    assert table.outcome(table.space.control().assignment).feasible
    assert max(row.tok_s or 0.0 for row in rows) > table.best_tok_s
    assert table.shares["crash"] > 0.1


@pytest.mark.parametrize("method", ["guided", "tpe", "tpe-zero", "random"])
def test_a_replay_counts_unique_evaluations_and_names_a_feasible_winner(
    table: Table, method: str
) -> None:
    row = replay(table, method, seed=1, budget=15)
    assert len(row["curve"]) == 15
    assert row["curve"] == sorted(row["curve"])
    assert row["winner_is_feasible"]


def test_guided_is_ahead_of_random_after_forty_evaluations(table: Table) -> None:
    ours = replay(table, "guided", seed=1, budget=40)
    theirs = replay(table, "random", seed=1, budget=40)
    assert ours["curve"][-1] > theirs["curve"][-1]


def test_nobody_is_asked_twice(table: Table) -> None:
    for name in ("guided", "tpe-zero"):
        method = make(name, table, seed=2)
        asked = []
        for _ in range(15):
            assignment = method.ask()
            assert assignment is not None
            asked.append(str(assignment))
            method.tell(outcome_of(table, assignment))
        assert len(set(asked)) == 15
