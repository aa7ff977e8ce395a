"""Replays searches over tables and reports the best feasible rate against unique evaluations.

    python -m benchmarks.search.replay                         # everything, resumable
    python -m benchmarks.search.replay --tables cliff --methods guided,random --seeds 5

Each run is one line of `results/replay.jsonl`; what stands there is not run again. The figure and
the table of the README come from `python -m benchmarks.search.figure`.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna

from benchmarks.search import synthetic
from benchmarks.search.methods import NAMES, make, outcome_of
from benchmarks.search.tables import Table, read

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "replay.jsonl"
BUDGET = 150
"""Unique evaluations. A study on a real server has tens of them; a night has about this many."""
GP_BUDGET = 60
"""Optuna's GP needs seconds per draw beyond this."""


def replay(table: Table, method: str, seed: int, budget: int) -> dict[str, Any]:
    """One run: the best feasible rate after each unique evaluation, and the winner at its end."""
    search = make(method, table, seed)
    best = 0.0
    winner = None
    curve: list[float] = []
    began = time.perf_counter()
    while len(curve) < budget and (assignment := search.ask()) is not None:
        outcome = outcome_of(table, assignment)
        search.tell(outcome)
        if outcome.feasible and (outcome.tok_s or 0.0) > best:
            best, winner = outcome.tok_s or 0.0, assignment
        curve.append(round(best / table.best_tok_s, 4))
    return {
        "table": table.name,
        "method": method,
        "seed": seed,
        "budget": budget,
        "curve": curve,
        "winner": winner,
        "winner_is_feasible": winner is not None and outcome_of(table, winner).feasible,
        "seconds": round(time.perf_counter() - began, 2),
    }


def tables() -> dict[str, Callable[[int], Table]]:
    """Every table by name: the synthetic ones differ by seed, the recorded ones are what they are.

    The search's own constants were chosen on landscapes of other seeds (200 and up).
    """
    found: dict[str, Callable[[int], Table]] = {one.__name__: one for one in synthetic.ALL}
    for path in sorted((HERE / "tables").glob("*.json.gz")):
        recorded = read(path)
        found[recorded.name] = lambda _seed, recorded=recorded: recorded  # type: ignore[misc]  # bound now
    return found


def environment() -> dict[str, str]:
    """The versions that decide the figures."""
    packages = ("optuna", "numpy", "scipy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def main() -> None:
    """Run what is asked for and not yet there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tables", default="", help="comma-separated; all when left out")
    parser.add_argument("--methods", default=",".join(one for one in NAMES if "/" not in one))
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(logging.ERROR)
    options.output.parent.mkdir(exist_ok=True)
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    there = {(row["table"], row["method"], row["seed"]) for row in map(json.loads, lines)}
    wanted = tables()
    if options.tables:
        wanted = {name: wanted[name] for name in options.tables.split(",")}
    with options.output.open("a") as output:
        for seed in range(options.seeds):
            for name, table_of in wanted.items():
                table = table_of(seed)
                for method in options.methods.split(","):
                    if (name, method, seed) in there:
                        continue
                    budget = min(options.budget, GP_BUDGET) if "gp" in method else options.budget
                    row = replay(table, method, seed, budget) | {"environment": environment()}
                    output.write(json.dumps(row) + "\n")
                    output.flush()
                    print(f"{name} {method} {seed}: {row['curve'][-1]:.1%} in {row['seconds']} s")


if __name__ == "__main__":
    main()
