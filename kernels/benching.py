"""`bench`: microseconds of each candidate beside the separate steps and the memory-bound floor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernels.ceilings import Ceilings
from kernels.checking import combinations, described
from kernels.isolation import KernelWorker, WorkerSettings
from kernels.listing import pick_ops
from kernels.ops import Case, Cost, KernelError, Op
from kernels.space import Config

BENCH_TIMEOUT_S = 300.0
SAMPLES = 50


@dataclass(frozen=True)
class BenchRow:
    """`floor_us` is what the case must cost on this device; `share` is floor over measured.

    `speedup` is the fastest separate-steps candidate's time over this one's, on the same data
    (cold beside cold), None when none of them ran.
    """

    op: str
    case: str
    candidate: str
    status: str
    reason: str
    timing: dict[str, Any] | None
    floor_us: float | None
    share: float | None
    speedup: float | None = None
    separate: bool = False

    @property
    def best_us(self) -> float | None:
        """Cold where measured, else warm, else eager; None when it did not run."""
        return None if self.timing is None else best_us(self.timing)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class BenchTable:
    """All rows of one `bench`, with the device's identity and measured ceilings."""

    identity: dict[str, Any]
    ceilings: Ceilings
    rows: tuple[BenchRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "identity": self.identity,
            "ceilings": self.ceilings.to_json(),
            "rows": [row.to_json() for row in self.rows],
        }


def bench(
    ops: Iterable[str] | None = None,
    *,
    candidates: Iterable[str] | None = None,
    cases: Iterable[str | Case] | None = None,
    config: Config | None = None,
    seed: int = 0,
    samples: int = SAMPLES,
    check_repeats: int = 3,
    settings: WorkerSettings | None = None,
    timeout_s: float = BENCH_TIMEOUT_S,
) -> BenchTable:
    """Time every combination, after a short exactness check: what is wrong has no speed.

    Each device's ceilings are measured first. Raises KernelError as `check` does.
    """
    settings = settings or WorkerSettings()
    chosen = pick_ops(ops, settings.op_files)
    rows: list[BenchRow] = []
    with KernelWorker(settings) as worker:
        seen = described(worker)
        ceilings = measured_ceilings(worker)
        for op, case, candidate in combinations(chosen, candidates, cases, seen):
            missing = seen["candidates"][op.name][candidate]
            if missing:
                rows.append(
                    BenchRow(
                        op.name, case.name, candidate, "unavailable", missing, None, None, None
                    )
                )
                continue
            reply = worker.ask(
                "trial",
                timeout_s=timeout_s,
                op=op.name,
                case=case.to_json(),
                candidate=candidate,
                config=dict(config or {}),
                repeats=check_repeats,
                samples=samples,
                seed=seed,
            )
            status: str = reply.outcome
            reason, timing = reply.message, None
            if reply.ok:
                checked = reply.result["check"]
                status = "exact" if checked["passed"] else "inexact"
                reason = checked["reason"]
                timing = reply.result["timing"]
            rows.append(bench_row(op, case, candidate, status, reason, timing, ceilings))
    return BenchTable(seen["identity"], ceilings, tuple(with_speedups(rows)))


def measured_ceilings(worker: KernelWorker) -> Ceilings:
    """Have the worker measure its device's ceilings."""
    reply = worker.ask("ceilings", timeout_s=300.0)
    if not reply.ok:
        raise KernelError(f"the device's ceilings could not be measured: {reply.message}")
    return Ceilings.from_json(reply.result)


def bench_row(
    op: Op,
    case: Case,
    candidate: str,
    status: str,
    reason: str,
    timing: dict[str, Any] | None,
    ceilings: Ceilings,
) -> BenchRow:
    """One row from a worker's timing, its floor and share filled in."""
    floor = share = None
    if timing is not None:
        cost = Cost(timing["bytes"], timing["operations"])
        floor = cost.floor_us(ceilings.bytes_per_s, ceilings.int8_operations_per_s)
        share = floor / best_us(timing)
    known = op.candidates.get(candidate)
    separate = known is not None and known.separate
    return BenchRow(
        op.name, case.name, candidate, status, reason, timing, floor, share, None, separate
    )


def best_us(timing: dict[str, Any]) -> float:
    """Cold where measured, else warm, else eager: what candidates are ranked by."""
    chosen = timing["cold"] or timing["warm"] or timing["eager"]
    return float(chosen["median_us"])


def with_speedups(rows: list[BenchRow]) -> list[BenchRow]:
    """Fill `speedup` from the fastest separate-steps row of the same op and case."""
    steps: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.separate and row.best_us is not None:
            key = (row.op, row.case)
            steps[key] = min(row.best_us, steps.get(key, row.best_us))
    done = []
    for row in rows:
        base = steps.get((row.op, row.case))
        speedup = base / row.best_us if base is not None and row.best_us is not None else None
        done.append(BenchRow(**{**row.__dict__, "speedup": speedup}))
    return done
