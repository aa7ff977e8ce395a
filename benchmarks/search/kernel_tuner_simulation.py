"""Kernel Tuner's strategies on the tables that fit its format, in its own simulation mode.

Kernel Tuner lives in an environment of its own; ours writes the table, its Python reads it:

    python -m benchmarks.search.kernel_tuner_simulation --python PATH_TO_ITS_PYTHON

Its format knows neither conditions nor gates: a configuration has a value, or it is an error. So
only tables without conditions fit, and what says something else is an error like a crash, as its
verification would have it. Values are given as their positions, since several of its strategies
calculate with them. The lines go where `benchmarks.search.replay` writes its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STRATEGIES = (
    "random_sample",
    "genetic_algorithm",
    "simulated_annealing",
    "greedy_ils",
    "bayes_opt",
)
TABLES = ("cliff",)
BUDGET = 150


def cache_of(table: Any) -> dict[str, Any]:
    """The table as Kernel Tuner's cache file."""
    values = {name: knob.values for name, knob in table.space.knobs.items()}
    names = list(values)
    cache = {}
    for assignment in table.space.enumerate():
        places = {
            name: [repr(one) for one in values[name]].index(repr(assignment[name]))
            for name in names
        }
        outcome = table.outcome(assignment)
        entry: dict[str, Any] = dict(places)
        entry["tok_s"] = outcome.tok_s if outcome.feasible else "RuntimeFailedConfig"
        if not outcome.feasible:
            entry["__error__"] = "RuntimeFailedConfig"
        for timing in ("compile_time", "verification_time", "benchmark_time"):
            entry[timing] = 0.0
        entry["times"] = [entry["tok_s"]]
        cache[",".join(str(places[name]) for name in names)] = entry
    return {
        "device_name": "table",
        "kernel_name": table.name,
        "problem_size": [1, 1, 1],
        "tune_params_keys": names,
        "tune_params": {name: list(range(len(values[name]))) for name in names},
        "objective": "tok_s",
        "cache": cache,
    }


def simulate(path: str, strategy: str, seed: int, budget: int) -> list[float]:
    """In Kernel Tuner's Python: values in the order of evaluation, 0 for errors."""
    import random

    import numpy as np
    from kernel_tuner import tune_kernel, util

    random.seed(seed)
    np.random.seed(seed)  # its strategies draw from the global state
    seen: list[float] = []
    shown = util.print_config_output

    def record(_params: Any, config: dict[str, Any], *_rest: Any, **_named: Any) -> None:
        # Called once for each configuration that is evaluated for the first time.
        value = config.get("tok_s")
        failed = "__error__" in config or not isinstance(value, (int, float))
        seen.append(0.0 if failed else float(value or 0.0))

    util.print_config_output = record
    document = json.loads(Path(path).read_text())
    try:
        tune_kernel(
            document["kernel_name"],
            "",
            (1, 1, 1),
            [],
            document["tune_params"],
            lang="C",
            cache=path,
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": budget},
            objective="tok_s",
            objective_higher_is_better=True,
            quiet=True,
        )
    finally:
        util.print_config_output = shown
    return seen[:budget]


def run(python: Path, seeds: int, output: Path) -> None:
    """In our Python: write each table, let theirs search it, append the curves."""
    from benchmarks.search.replay import tables

    lines = output.read_text().splitlines() if output.exists() else []
    there = {(row["table"], row["method"], row["seed"]) for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder, output.open("a") as results:
        for name in TABLES:
            for seed in range(seeds):
                table = tables()[name](seed)
                path = Path(folder) / f"{name}.json"
                path.write_text(json.dumps(cache_of(table)))
                for strategy in STRATEGIES:
                    method = f"kernel_tuner/{strategy}"
                    if (name, method, seed) in there:
                        continue
                    command = [str(python), __file__, "--simulate", str(path), strategy, str(seed)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    if done.returncode:
                        print(f"{method} {seed}: {done.stderr.strip().splitlines()[-1]}")
                        continue
                    values = json.loads(done.stdout.splitlines()[-1])
                    curve, best = [], 0.0
                    for value in values:
                        best = max(best, value)
                        curve.append(round(best / table.best_tok_s, 4))
                    row = {
                        "table": name, "method": method, "seed": seed, "budget": BUDGET,
                        "curve": curve, "winner": None, "winner_is_feasible": best > 0,
                    }  # fmt: skip
                    results.write(json.dumps(row) + "\n")
                    results.flush()
                    print(f"{name} {method} {seed}: {curve[-1]:.1%} after {len(curve)}")


def main() -> None:
    """Dispatch between the two sides."""
    if sys.argv[1:2] == ["--simulate"]:
        path, strategy, seed = sys.argv[2:5]
        print(json.dumps(simulate(path, strategy, int(seed), BUDGET)))
        return
    from benchmarks.search.replay import RESULTS

    parser = argparse.ArgumentParser(description="Kernel Tuner's strategies on our tables")
    parser.add_argument("--python", type=Path, required=True, help="a Python with kernel_tuner")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    run(options.python, options.seeds, options.output)


if __name__ == "__main__":
    main()
