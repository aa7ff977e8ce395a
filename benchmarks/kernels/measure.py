"""Measure the kernels on this machine's device: self-test, exactness, speed, tuning, tables.

    python benchmarks/kernels/measure.py self-test
    python benchmarks/kernels/measure.py check --repeats 200
    python benchmarks/kernels/measure.py bench moe_layerlet --case decode_tp4_t1
    python benchmarks/kernels/measure.py tune moe_layerlet --case decode_tp4_t1 \
        --candidate triton_one_launch --out results

Needs a Python with torch, and Triton for the Triton candidates; runs from a checkout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import kernels
from kernels import KernelTrial, TuneResult, WorkerSettings


def self_test(arguments: argparse.Namespace) -> bool:
    """Planted faults must be caught and sound candidates pass; True when all are."""
    outcomes = kernels.self_test(repeats=arguments.repeats, settings=settings(arguments))
    for outcome in outcomes:
        mark = "ok  " if outcome.as_expected else "FAIL"
        print(f"{mark} {outcome.name:24} {outcome.expected:7} {outcome.op}: {outcome.reason[:110]}")
    wrong = [outcome for outcome in outcomes if not outcome.as_expected]
    print(f"self-test: {len(outcomes)} outcomes, {len(wrong)} not as expected")
    save(arguments, "self-test", [outcome.to_json() for outcome in outcomes])
    return not wrong


def check(arguments: argparse.Namespace) -> bool:
    """Prove candidates; True when all that could run are exact."""
    table = kernels.check(
        arguments.ops or None,
        candidates=arguments.candidate,
        cases=arguments.case,
        repeats=arguments.repeats,
        config=json.loads(arguments.config) if arguments.config else None,
        settings=settings(arguments),
    )
    for row in table.rows:
        if row.status not in ("exact", "unavailable"):
            print(f"{row.status:10} {row.op} {row.candidate} {row.case}: {row.reason[:200]}")
    for (op, candidate), count in by_status(table.rows).items():
        print(f"{op:22} {candidate:22} {dict(count)}")
    save(arguments, "check", table.to_json())
    return all(row.status in ("exact", "unavailable") for row in table.rows)


def by_status(rows: tuple[kernels.CheckRow, ...]) -> dict[tuple[str, str], Counter[str]]:
    """Count rows by op, candidate and status."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counted.setdefault((row.op, row.candidate), Counter())[row.status] += 1
    return counted


def bench(arguments: argparse.Namespace) -> bool:
    """Time candidates and print them beside the floor."""
    table = kernels.bench(
        arguments.ops or None,
        candidates=arguments.candidate,
        cases=arguments.case,
        config=json.loads(arguments.config) if arguments.config else None,
        settings=settings(arguments),
    )
    print(json.dumps(table.identity))
    print(json.dumps(table.ceilings.to_json()))
    for row in table.rows:
        if row.timing is None:
            print(f"{row.op:20} {row.case:20} {row.candidate:20} {row.status}: {row.reason[:90]}")
            continue
        parts = {
            name: f"{row.timing[name]['median_us']:.2f}" if row.timing[name] else "-"
            for name in ("eager", "warm", "cold")
        }
        print(
            f"{row.op:20} {row.case:20} {row.candidate:20} eager {parts['eager']:>8} "
            f"warm {parts['warm']:>8} cold {parts['cold']:>8} floor {row.floor_us:.3f} "
            f"speedup {row.speedup or 0:.2f} {row.timing['note'][:60]}"
        )
    save(arguments, "bench", table.to_json())
    return True


def tune(arguments: argparse.Namespace) -> bool:
    """Tune every combination that was named."""
    case_names = arguments.case
    for op in arguments.ops:
        for case in case_names:
            for candidate in arguments.candidate:
                tune_one(arguments, op, case, candidate)
    return True


def tune_one(arguments: argparse.Namespace, op: str, case: str, candidate: str) -> None:
    """Tune one candidate on one case, print and write its table."""
    started = time.monotonic()

    def progress(trial: KernelTrial) -> None:
        if trial.number % 200 == 199:
            print(f"  {trial.number + 1} trials, {time.monotonic() - started:.0f} s", flush=True)

    result = kernels.tune(
        op,
        case,
        candidate=candidate,
        budget=arguments.budget,
        only=json.loads(arguments.only) if arguments.only else None,
        quick_repeats=arguments.quick,
        deep_repeats=arguments.repeats,
        samples=arguments.samples,
        on_trial=progress,
        settings=settings(arguments),
        compile_processes=arguments.processes,
    )
    report(result, time.monotonic() - started)
    if arguments.out:
        command = "python benchmarks/kernels/measure.py " + " ".join(
            ["tune", op, "--case", case, "--candidate", candidate, *narrowing(arguments)]
        )
        name = f"{arguments.prefix}{op}-{case}-{candidate}.jsonl".replace("_", "-")
        kernels.write_table(result, Path(arguments.out) / name, command=command)


def narrowing(arguments: argparse.Namespace) -> list[str]:
    """The words of the command that narrowed the search."""
    words = [] if arguments.budget is None else ["--budget", str(arguments.budget)]
    return words + (["--only", f"'{arguments.only}'"] if arguments.only else [])


def report(result: TuneResult, seconds: float) -> None:
    """Print what a tuning run found."""
    best = result.best
    print(f"{result.op} {result.case.name} {result.candidate}: {result.counts()} {seconds:.0f} s")
    if best is not None and result.deep is not None:
        print(
            f"  best {best.us:.3f} us [{best.low_us:.3f}, {best.high_us:.3f}] warm {best.warm_us}"
        )
        print(f"  {json.dumps(best.config)}; {result.deep.reason}")
        print(
            f"  separate {result.separate_us} us, speedup {result.speedup}, floor {result.floor_us}"
        )
    wrong = Counter(f"{t.status}: {t.reason[:100]}" for t in result.trials if not t.exact)
    for reason, count in wrong.most_common(4):
        print(f"  {count} x {reason}", flush=True)


def settings(arguments: argparse.Namespace) -> WorkerSettings:
    """Workers run in the Python that runs this."""
    return WorkerSettings(python=sys.executable, op_files=tuple(arguments.op_file))


def save(arguments: argparse.Namespace, name: str, data: object) -> None:
    """Write `data` as JSON into the output folder, if there is one."""
    if arguments.out:
        path = Path(arguments.out) / f"{arguments.prefix}{name}.json"
        path.write_text(json.dumps(data) + "\n", encoding="utf-8")


def main() -> int:
    """Parse, run one verb, and exit 1 when it found something wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["self-test", "check", "bench", "tune"])
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--case", nargs="*")
    parser.add_argument("--candidate", nargs="*")
    parser.add_argument("--config", help="JSON of meta-parameters")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--quick", type=int, default=8)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--only", help="JSON: meta-parameter -> list of values to try")
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--op-file", nargs="*", default=[])
    parser.add_argument("--prefix", default="")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    verbs = {"self-test": self_test, "check": check, "bench": bench, "tune": tune}
    return 0 if verbs[arguments.verb](arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
