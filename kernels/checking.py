"""`check`: prove candidates exact, or show where they are not, each in a worker of its own fate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kernels.faults import FaultOutcome
from kernels.isolation import KernelWorker, Reply, WorkerSettings
from kernels.listing import pick_ops
from kernels.ops import Candidate, Case, KernelError, Op
from kernels.space import Config

REPEATS = 200
CHECK_TIMEOUT_S = 300.0

Status = str
"""exact, inexact, failed, crashed, hung, context_lost, refused or unavailable."""


@dataclass(frozen=True)
class CheckRow:
    """One candidate on one case. `modes` holds each mode's report with its table of differences."""

    op: str
    case: str
    candidate: str
    config: dict[str, Any]
    status: Status
    reason: str
    modes: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**self.__dict__, "modes": list(self.modes)}


@dataclass(frozen=True)
class CheckTable:
    """All rows of one `check`, with the device's identity."""

    identity: dict[str, Any]
    rows: tuple[CheckRow, ...]

    @property
    def exact(self) -> bool:
        """Every candidate that could run here was exact."""
        ran = [row for row in self.rows if row.status != "unavailable"]
        return bool(ran) and all(row.status == "exact" for row in ran)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"identity": self.identity, "rows": [row.to_json() for row in self.rows]}


def check(
    ops: Iterable[str] | None = None,
    *,
    candidates: Iterable[str] | None = None,
    cases: Iterable[str | Case] | None = None,
    config: Config | None = None,
    repeats: int = REPEATS,
    seed: int = 0,
    settings: WorkerSettings | None = None,
    timeout_s: float = CHECK_TIMEOUT_S,
) -> CheckTable:
    """Check every combination of the named ops, candidates and cases (all by default).

    `repeats` fresh inputs are drawn per mode. A candidate that crashes or hangs costs its own row.
    Raises KernelError for names that do not exist and when no worker can be started.
    """
    settings = settings or WorkerSettings()
    chosen = pick_ops(ops, settings.op_files)
    rows = []
    with KernelWorker(settings) as worker:
        seen = described(worker)
        for op, case, candidate in combinations(chosen, candidates, cases, seen):
            missing = seen["candidates"][op.name][candidate]
            if missing:
                rows.append(CheckRow(op.name, case.name, candidate, {}, "unavailable", missing))
                continue
            reply = worker.ask(
                "check",
                timeout_s=timeout_s,
                op=op.name,
                case=case.to_json(),
                candidate=candidate,
                config=dict(config or {}),
                repeats=repeats,
                seed=seed,
            )
            rows.append(check_row(op.name, case.name, candidate, dict(config or {}), reply))
    return CheckTable(seen["identity"], tuple(rows))


def self_test(
    *,
    repeats: int = 40,
    seed: int = 0,
    settings: WorkerSettings | None = None,
    timeout_s: float = CHECK_TIMEOUT_S,
) -> list[FaultOutcome]:
    """Run the checker on planted faults and on sound candidates, on the settings' device.

    Raises KernelError when the worker cannot answer at all.
    """
    with KernelWorker(settings or WorkerSettings()) as worker:
        reply = worker.ask("self_test", timeout_s=timeout_s, repeats=repeats, seed=seed)
    if not reply.ok:
        raise KernelError(f"the checker's self-test did not finish: {reply.message}")
    return [FaultOutcome(**outcome) for outcome in reply.result["outcomes"]]


def described(worker: KernelWorker) -> dict[str, Any]:
    """Identity, limits, and per candidate why it cannot run there; raises when there is none."""
    reply = worker.ask("describe", timeout_s=120.0)
    if not reply.ok:
        raise KernelError(reply.message)
    return reply.result


def combinations(
    ops: Iterable[Op],
    candidates: Iterable[str] | None,
    cases: Iterable[str | Case] | None,
    seen: dict[str, Any],
) -> Iterator[tuple[Op, Case, str]]:
    """(op, case, candidate name); names that exist only in the worker (torch.ops) count too."""
    wanted = None if candidates is None else list(candidates)
    given = None if cases is None else list(cases)
    for op in ops:
        known = list(seen["candidates"][op.name])
        for name in wanted or known:
            if name not in known:
                raise KernelError(
                    f"op {op.name!r} has no candidate {name!r}; it has {', '.join(known)}"
                )
            for case in op.cases if given is None else given:
                yield op, op.case(case) if isinstance(case, str) else case, name


def check_row(op: str, case: str, candidate: str, config: dict[str, Any], reply: Reply) -> CheckRow:
    """One row from a worker's reply, whatever became of it."""
    if not reply.ok:
        status: Status = "failed" if reply.outcome == "raised" else reply.outcome
        if reply.outcome == "refused" and not config:
            status = "unavailable"  # nobody asked for this configuration; there is just none
        return CheckRow(op, case, candidate, config, status, reply.message, (), reply.seconds)
    report = reply.result
    status = report_status(report)
    return CheckRow(
        op,
        case,
        candidate,
        report["config"],
        status,
        report["reason"],
        tuple(report["modes"]),
        report["seconds"],
    )


def report_status(report: dict[str, Any]) -> Status:
    """A mode that failed without differences raised something; with differences it is inexact."""
    if report["passed"]:
        return "exact"
    failed = next(mode for mode in report["modes"] if not mode["passed"])
    return "inexact" if failed["differences"] else "failed"


def candidate_or_default(op: Op, name: str | None) -> Candidate:
    """The named candidate, or the one with the largest space."""
    if name is not None:
        return op.pick(name)
    return max(op.candidates.values(), key=lambda candidate: candidate.space.size())
