"""`tune`: search a candidate's meta-parameters on one case, exact first, then fast.

Who proposes configurations is handed in: `Exhaustive` here, a sampler of the study elsewhere.
A proposer is asked for a configuration and told the finished trial. Crashing and hanging
configurations are trials like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kernels.benching import bench_row, best_us, measured_ceilings
from kernels.ceilings import Ceilings
from kernels.checking import CheckRow, check_row, report_status
from kernels.ground import Ground, ground_on
from kernels.isolation import KernelWorker, Reply, WorkerSettings
from kernels.listing import pick_ops
from kernels.ops import Case
from kernels.space import Config, DeviceLimits, Value

QUICK_REPEATS = 8
DEEP_REPEATS = 200
FINALISTS = 5
TRIAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class KernelTrial:
    """One configuration, tried. Times are microseconds per call and None unless it was exact."""

    number: int
    config: dict[str, Any]
    status: str
    reason: str
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    warm_us: float | None = None
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """It was exact and has a time."""
        return self.status == "exact" and self.us is not None

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.__dict__)


class Proposer(Protocol):
    """Who says what to try next."""

    def ask(self) -> Config | None:
        """The next configuration, or None when there is nothing left to try."""

    def tell(self, trial: KernelTrial) -> None:
        """The finished trial of the configuration that was asked for last."""


class Exhaustive:
    """Every configuration once, in the given order or shuffled by a seed."""

    def __init__(self, configs: Iterable[Config], *, shuffle_seed: int | None = None) -> None:
        self._left = [dict(config) for config in configs]
        if shuffle_seed is not None:
            random.Random(shuffle_seed).shuffle(self._left)  # noqa: S311 -- an order
        self._left.reverse()

    def ask(self) -> Config | None:
        """The next configuration of the list."""
        return self._left.pop() if self._left else None

    def tell(self, trial: KernelTrial) -> None:
        """Nothing to learn: every configuration is tried anyway."""


@dataclass(frozen=True)
class TuneResult:
    """`best` passed `deep` with hundreds of repeats; None when no configuration did.

    `separate_us` is the fastest path of separate steps on the same case and data, `floor_us` the
    memory or arithmetic floor of the case on this device.
    """

    op: str
    case: Case
    candidate: str
    identity: dict[str, Any]
    limits: DeviceLimits
    ceilings: Ceilings
    trials: tuple[KernelTrial, ...]
    best: KernelTrial | None
    deep: CheckRow | None
    separate_us: float | None
    floor_us: float | None

    @property
    def speedup(self) -> float | None:
        """Separate steps' time over the best's."""
        if self.best is None or self.best.us is None or self.separate_us is None:
            return None
        return self.separate_us / self.best.us

    def counts(self) -> dict[str, int]:
        """Trials by status."""
        counted: dict[str, int] = {}
        for trial in self.trials:
            counted[trial.status] = counted.get(trial.status, 0) + 1
        return counted


def legal_configs(
    op_name: str,
    case: str | Case,
    candidate: str,
    limits: DeviceLimits,
    op_files: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Every configuration that the constraints allow on a device with these limits."""
    op = pick_ops([op_name], op_files)[0]
    chosen = op.case(case) if isinstance(case, str) else case
    return list(op.pick(candidate).space.legal(chosen.params, limits))


def tune(
    op_name: str,
    case: str | Case,
    *,
    candidate: str | None = None,
    proposer: Proposer | None = None,
    earlier: Sequence[KernelTrial] = (),
    only: Mapping[str, Sequence[Value]] | None = None,
    on_trial: Callable[[KernelTrial], None] | None = None,
    budget: int | None = None,
    quick_repeats: int = QUICK_REPEATS,
    deep_repeats: int = DEEP_REPEATS,
    samples: int = 30,
    seed: int = 0,
    settings: WorkerSettings | None = None,
    trial_timeout_s: float = TRIAL_TIMEOUT_S,
    compile_processes: int = 0,
) -> TuneResult:
    """Try configurations until the proposer or the budget ends, then prove the fastest deeply.

    `earlier` are trials of an interrupted tune: they stand first in the result, compete for the
    deep check, and count for no budget. `only` narrows the exhaustive search: meta-parameter ->
    the values to try. `compile_processes` workers first compile all legal configurations side by
    side (exhaustive search only). Raises KernelError for names that do not exist, for a candidate
    that cannot run on the device, and when no configuration is legal.
    """
    settings = settings or WorkerSettings()
    with KernelWorker(settings) as worker:
        ground = ground_on(worker, op_name, case, candidate)
        bench = Bench(worker, ground, seed, samples, trial_timeout_s)
        ceilings = measured_ceilings(worker)
        if proposer is None:
            configs = ground.legal(only)
            random.Random(seed).shuffle(configs)  # noqa: S311 -- an order, not a secret
            proposer = Exhaustive(configs)
            if compile_processes > 0:
                compile_all(settings, ground, configs[:budget], compile_processes)
        trials = run_trials(bench, proposer, on_trial, budget, quick_repeats, earlier)
        best, deep = prove_fastest(bench, trials, deep_repeats)
        separate_us, floor_us = bench.steps_and_floor(ceilings)
    return TuneResult(
        ground.op.name,
        ground.case,
        ground.candidate.name,
        ground.identity,
        ground.limits,
        ceilings,
        tuple(trials),
        best,
        deep,
        separate_us,
        floor_us,
    )


@dataclass
class Bench:
    """One op, case and candidate on a worker."""

    worker: KernelWorker
    ground: Ground
    seed: int
    samples: int
    timeout_s: float

    def ask(self, verb: str, candidate: str, config: Config, **fields: Any) -> Reply:
        """Send a request about this op and case."""
        return self.worker.ask(
            verb,
            timeout_s=self.timeout_s,
            op=self.ground.op.name,
            case=self.ground.case.to_json(),
            candidate=candidate,
            config=dict(config),
            seed=self.seed,
            **fields,
        )

    def trial(self, number: int, config: Config, repeats: int, samples: int) -> KernelTrial:
        """Run one configuration; an illegal one is refused without being started."""
        refusal = self.ground.refusal(config)
        if refusal:
            return KernelTrial(number, dict(config), "illegal", refusal)
        reply = self.ask(
            "trial", self.ground.candidate.name, config, repeats=repeats, samples=samples
        )
        return trial_of(number, dict(config), reply)

    def steps_and_floor(self, ceilings: Ceilings) -> tuple[float | None, float | None]:
        """Time of the fastest separate-steps candidate, and the floor; None where nothing ran."""
        fastest = floor = None
        op, case = self.ground.op, self.ground.case
        for candidate in op.candidates.values():
            if not candidate.separate:
                continue
            reply = self.ask("trial", candidate.name, {}, repeats=2, samples=self.samples)
            if not reply.ok or reply.result["timing"] is None:
                continue
            timing = reply.result["timing"]
            row = bench_row(op, case, candidate.name, "exact", "", timing, ceilings)
            floor = row.floor_us
            fastest = min(best_us(timing), fastest or best_us(timing))
        return fastest, floor


def run_trials(
    bench: Bench,
    proposer: Proposer,
    on_trial: Callable[[KernelTrial], None] | None,
    budget: int | None,
    repeats: int,
    earlier: Sequence[KernelTrial] = (),
) -> list[KernelTrial]:
    """Ask, try, tell, until the proposer or the budget ends; `earlier` trials come first."""
    trials = [replace(trial, number=number) for number, trial in enumerate(earlier)]
    while budget is None or len(trials) - len(earlier) < budget:
        config = proposer.ask()
        if config is None:
            break
        trial = bench.trial(len(trials), config, repeats, bench.samples)
        trials.append(trial)
        proposer.tell(trial)
        if on_trial is not None:
            on_trial(trial)
    return trials


def prove_fastest(
    bench: Bench, trials: list[KernelTrial], deep_repeats: int
) -> tuple[KernelTrial | None, CheckRow | None]:
    """Time the fastest few again with more samples; of those, the fastest that proves exact.

    Timing again matters: the smallest of a thousand noisy medians is partly luck. A finalist that
    fails its deep check is recorded as inexact in `trials`.
    """
    ranked = sorted((t for t in trials if t.exact), key=lambda trial: trial.us or 0.0)
    finalists = []
    for trial in ranked[:FINALISTS]:
        again = bench.trial(trial.number, trial.config, 1, 4 * bench.samples)
        if again.exact:
            finalists.append(again)
        else:
            trials[trial.number] = replace(again, reason=f"timed again: {again.reason}")
    finalists.sort(key=lambda trial: trial.us or 0.0)
    for trial in finalists + ranked[FINALISTS:]:
        config = trial.config
        op, case, name = bench.ground.op.name, bench.ground.case.name, bench.ground.candidate.name
        reply = bench.ask("check", name, config, repeats=deep_repeats)
        row = check_row(op, case, name, config, reply)
        if row.status == "exact":
            return trial, row
        trials[trial.number] = replace(
            trials[trial.number], status=row.status, reason=f"deep check: {row.reason}", us=None
        )
    return None, None


def trial_of(number: int, config: dict[str, Any], reply: Reply) -> KernelTrial:
    """What a worker's reply says about a configuration."""
    if not reply.ok:
        status: str = "failed" if reply.outcome == "raised" else reply.outcome
        return KernelTrial(number, config, status, reply.message, seconds=reply.seconds)
    checked, timing = reply.result["check"], reply.result["timing"]
    status = report_status(checked)
    if timing is None:
        return KernelTrial(number, config, status, checked["reason"], seconds=reply.seconds)
    chosen = timing["cold"] or timing["warm"] or timing["eager"]
    return KernelTrial(
        number,
        config,
        status,
        checked["reason"],
        us=chosen["median_us"],
        low_us=chosen["low_us"],
        high_us=chosen["high_us"],
        warm_us=timing["warm"]["median_us"] if timing["warm"] else None,
        seconds=reply.seconds,
    )


def compile_all(
    settings: WorkerSettings,
    ground: Ground,
    configs: Sequence[Config],
    processes: int,
) -> None:
    """Run each configuration once in one of several workers, so that its binary is on disk."""

    def share(number: int) -> None:
        with KernelWorker(settings) as worker:
            for config in configs[number::processes]:
                worker.ask(
                    "warm",
                    timeout_s=TRIAL_TIMEOUT_S,
                    op=ground.op.name,
                    case=ground.case.to_json(),
                    candidate=ground.candidate.name,
                    config=dict(config),
                )

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(share, range(processes)))
