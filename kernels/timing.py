"""How long a candidate takes: eager, replayed on warm data, replayed on cold data.

Device graphs hold several calls each, so that the clock's grain and the launch of the graph are
shared out. Cold means: consecutive calls rotate over input sets that together exceed the device's
cache several times over, so each call finds its data in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.device import identify
from kernels.exactness import fresh_inputs
from kernels.median import Microseconds, summarise
from kernels.ops import Candidate, Case, Cost, Op, Tensors, describe_error
from kernels.replay import device_module, record, synchronize
from kernels.space import Config

CALLS_PER_GRAPH = 20
CACHE_MULTIPLE = 3
"""Rotating sets touch at least this many times the cache, so that none survives a rotation."""
MOST_SETS = 128


@dataclass(frozen=True)
class Timing:
    """Microseconds per call. `warm` and `cold` are replayed from a graph where there is one.

    `launch_overhead_us` is what an eager call costs above a replayed one. `cold` is None when the
    device's cache is not known or memory does not hold the rotating sets.
    """

    op: str
    case: str
    candidate: str
    config: dict[str, Any]
    kind: str
    eager: Microseconds
    warm: Microseconds | None
    cold: Microseconds | None
    cost: Cost
    note: str = ""

    @property
    def best(self) -> Microseconds:
        """What a candidate is ranked by: cold where measured, else warm, else eager."""
        return self.cold or self.warm or self.eager

    @property
    def launch_overhead_us(self) -> float | None:
        """What an eager call costs above a replayed one."""
        return None if self.warm is None else self.eager.median_us - self.warm.median_us

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON, with the achieved bandwidth and rate."""
        seconds = self.best.median_us * 1e-6
        return {
            "op": self.op,
            "case": self.case,
            "candidate": self.candidate,
            "config": self.config,
            "kind": self.kind,
            "eager": self.eager.to_json(),
            "warm": self.warm.to_json() if self.warm else None,
            "cold": self.cold.to_json() if self.cold else None,
            "launch_overhead_us": self.launch_overhead_us,
            "bytes": self.cost.bytes,
            "operations": self.cost.operations,
            "bytes_per_s": self.cost.bytes / seconds,
            "operations_per_s": self.cost.operations / seconds,
            "note": self.note,
        }


class InputSets:
    """Independent inputs of a case, kept so that many configurations share them."""

    def __init__(
        self, op: Op, case: Case, device: str, seed: int, *, sets: int | None = None
    ) -> None:
        """As many sets as cold timing needs and memory holds, or exactly `sets`."""
        self.op, self.case, self.device, self.seed = op, case, device, seed
        first = fresh_inputs(op, case, device, seed)
        self.cost = op.cost(case, first)
        self.sets: list[Tensors] = [first]
        self.outputs: list[Tensors] = [op.make_outputs(case, first)]
        wanted = self.sets_for_cold() if sets is None else sets
        self.cold = wanted > 1
        for number in range(1, wanted):
            made = fresh_inputs(op, case, device, seed + number)
            self.sets.append(made)
            self.outputs.append(op.make_outputs(case, made))

    def sets_for_cold(self) -> int:
        """How many sets outgrow the cache; 1 when it is unknown or they would be too many."""
        device = identify(self.device)
        whole = sum(tensor.numel() * tensor.element_size() for tensor in self.sets[0].values())
        wanted = max(2, -(-CACHE_MULTIPLE * device.cache_bytes // max(self.cost.bytes, 1)))
        held = device.memory_bytes // 2 // max(whole, 1)
        return wanted if device.cache_bytes and wanted <= min(MOST_SETS, held) else 1


def time_candidate(
    inputs: InputSets, candidate: Candidate, config: Config, *, samples: int = 30
) -> Timing:
    """Time one configuration. Raises what the candidate raises."""
    device_type = inputs.device.split(":")[0]
    first, out = inputs.sets[0], inputs.outputs[0]

    def call() -> None:
        candidate.run(first, out, config)

    call()
    synchronize(device_type)
    eager = summarise(time_calls(call, device_type, samples, 1))
    warm = cold = None
    note = ""
    kind = "eager"
    if candidate.graph_safe and device_type != "cpu":
        try:
            warm, kind = replayed([call] * CALLS_PER_GRAPH, device_type, samples)
            if inputs.cold:
                cold, kind = replayed(rotation(inputs, candidate, config), device_type, samples)
        except Exception as error:  # noqa: BLE001 -- a candidate may raise anything
            note = f"cannot be captured: {describe_error(error)}"
            synchronize(device_type)
    return Timing(
        op=inputs.op.name,
        case=inputs.case.name,
        candidate=candidate.name,
        config=dict(config),
        kind=kind,
        eager=eager,
        warm=warm,
        cold=cold,
        cost=inputs.cost,
        note=note,
    )


def rotation(inputs: InputSets, candidate: Candidate, config: Config) -> list[Callable[[], None]]:
    """One call per input set, in order."""

    def bound(number: int) -> Callable[[], None]:
        return lambda: candidate.run(inputs.sets[number], inputs.outputs[number], config)

    return [bound(number) for number in range(len(inputs.sets))]


def replayed(
    calls: list[Callable[[], None]], device_type: str, samples: int
) -> tuple[Microseconds, str]:
    """Time per call of a graph that holds all `calls`, and the kind of graph."""

    def together() -> None:
        for call in calls:
            call()

    recording = record(together, device_type, warm_up_calls=1)
    recording.replay()
    times = time_calls(recording.replay, device_type, samples, len(calls))
    return summarise(times), recording.kind


def time_calls(
    call: Callable[[], None], device_type: str, samples: int, calls_inside: int
) -> list[float]:
    """Microseconds per inner call, `samples` times, by device events (a CPU: the clock)."""
    if device_type == "cpu":
        times = []
        for _ in range(samples):
            started = time.perf_counter()
            call()
            times.append((time.perf_counter() - started) * 1e6 / calls_inside)
        return times
    module = device_module(device_type)
    events = [
        (module.Event(enable_timing=True), module.Event(enable_timing=True)) for _ in range(samples)
    ]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    module.synchronize()
    return [begin.elapsed_time(end) * 1e3 / calls_inside for begin, end in events]
