"""Draws `figure.svg` and prints the README's table from `results/replay.jsonl`.

python -m benchmarks.search.figure
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.search.methods import NAMES
from benchmarks.search.replay import HERE, RESULTS

mpl.use("Agg")
from matplotlib import pyplot as plt

GOAL = 0.95
_COLOURS = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]  # a listed map has them


def evaluations_to_goal(curve: list[float], goal: float = GOAL) -> int | None:
    """Unique evaluations until `goal` of the best feasible rate; None when it was not reached."""
    return next((at + 1 for at, share in enumerate(curve) if share >= goal), None)


def grouped() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Runs by table and method."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for line in RESULTS.read_text().splitlines():
        row = json.loads(line)
        found[row["table"]][row["method"]].append(row)
    return found


def median_evaluations(rows: list[dict[str, Any]]) -> float | None:
    """The median over seeds; None when fewer than half the runs reached the goal."""
    counts = [evaluations_to_goal(row["curve"]) for row in rows]
    ordered = sorted(count if count is not None else float("inf") for count in counts)
    middle = statistics.median(ordered)
    return None if middle == float("inf") else middle


def interval(rows: list[dict[str, Any]], repeats: int = 2000) -> tuple[str, str]:
    """95 % bootstrap interval of that median, as texts."""
    counts = np.array([evaluations_to_goal(row["curve"]) or np.inf for row in rows], dtype=float)
    chance = np.random.default_rng(0)
    medians = np.sort([np.median(chance.choice(counts, len(counts))) for _ in range(repeats)])
    ends = medians[int(0.025 * repeats)], medians[int(0.975 * repeats) - 1]
    return tuple("never" if np.isinf(end) else f"{end:.0f}" for end in ends)  # type: ignore[return-value]  # always two


def main() -> None:
    """Write the figure, print the table."""
    found = grouped()
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 3.8), sharey=True)
    for axis, (table, methods) in zip(np.atleast_1d(axes), found.items(), strict=True):
        for colour, name in zip(_COLOURS, NAMES, strict=False):
            rows = methods.get(name)
            if not rows:
                continue
            longest = max(len(row["curve"]) for row in rows)
            curves = np.array(
                [row["curve"] + [row["curve"][-1]] * (longest - len(row["curve"])) for row in rows]
            )
            steps = np.arange(1, longest + 1)
            axis.plot(steps, np.median(curves, axis=0), color=colour, label=NAMES[name])
            low, high = np.percentile(curves, [25, 75], axis=0)
            axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.axhline(GOAL, color="black", linewidth=0.6, linestyle=":")
        axis.set(title=table, xlabel="unique evaluations", ylim=(0.4, 1.01))
    np.atleast_1d(axes)[0].set_ylabel("best feasible rate / best in the table")
    lines = {
        str(line.get_label()): line for axis in np.atleast_1d(axes) for line in axis.lines[:-1]
    }
    figure.legend(lines.values(), lines.keys(), fontsize=7, loc="lower center", ncols=5)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(HERE / "figure.svg", metadata={"Date": None})
    print(
        "| table | method | runs | evaluations to 95 % | 95 % interval | at the end"
        " | infeasible winners |"
    )
    print("| --- | --- | ---: | ---: | --- | ---: | ---: |")
    for table, methods in found.items():
        for name in NAMES:
            rows = methods.get(name)
            if not rows:
                continue
            median = median_evaluations(rows)
            shown = (
                f"over {max(len(r['curve']) for r in rows)}" if median is None else f"{median:.0f}"
            )
            low, high = interval(rows)
            final = statistics.median(row["curve"][-1] for row in rows)
            wrong = sum(row["winner"] is not None and not row["winner_is_feasible"] for row in rows)
            print(
                f"| {table} | {NAMES[name]} | {len(rows)} | {shown} | {low} to {high} |"
                f" {final:.1%} | {wrong} |"
            )


if __name__ == "__main__":
    main()
