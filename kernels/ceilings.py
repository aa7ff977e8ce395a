"""The device's own limits, measured: memory bandwidth, matrix rates, the cost of one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kernels.median import summarise
from kernels.replay import record, synchronize
from kernels.timing import time_calls

CHAIN = 200
"""Launches of an almost empty kernel in one graph, to share out the graph's own launch."""


@dataclass(frozen=True)
class Ceilings:
    """Medians. Bandwidths count every byte read and every byte written.

    `launch_us` is the time from one almost empty kernel to the next inside a graph (a CPU: of one
    small call), the least that any launch adds.
    """

    copy_bytes_per_s: float
    read_bytes_per_s: float
    bf16_operations_per_s: float
    int8_operations_per_s: float
    launch_us: float

    @property
    def bytes_per_s(self) -> float:
        """The larger of the two bandwidths: a floor must not be too high."""
        return max(self.copy_bytes_per_s, self.read_bytes_per_s)

    def to_json(self) -> dict[str, float]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Ceilings:
        """The inverse of `to_json`."""
        return Ceilings(**data)


def measure_ceilings(device: str, *, samples: int = 15) -> Ceilings:
    """Large copies and products on random data; sizes suit a GPU, and shrink on a CPU."""
    import torch

    device_type = device.split(":")[0]
    on_cpu = device_type == "cpu"
    elements = (1 << 24) if on_cpu else (1 << 30)
    side = 512 if on_cpu else 8192

    def median_s(call: Callable[[], Any]) -> float:
        for _ in range(3):
            call()
        synchronize(device_type)
        return summarise(time_calls(call, device_type, samples, 1)).median_us * 1e-6

    source = torch.randn(elements, device=device)
    target = torch.empty_like(source)
    copy_s = median_s(lambda: target.copy_(source))
    read_s = median_s(lambda: torch.sum(source))
    a = torch.randn((side, side), device=device).to(torch.bfloat16)
    bf16_s = median_s(lambda: a @ a)
    b = torch.randint(-127, 128, (side, side), device=device, dtype=torch.int8)
    int8_s = median_s(lambda: torch._int_mm(b, b.t()))
    one = torch.zeros(1, device=device)

    def chain() -> None:
        for _ in range(CHAIN):
            one.add_(1.0)

    recording = record(chain, device_type)
    launch = summarise(time_calls(recording.replay, device_type, samples, CHAIN))
    return Ceilings(
        copy_bytes_per_s=2 * 4 * elements / copy_s,
        read_bytes_per_s=4 * elements / read_s,
        bf16_operations_per_s=2 * side**3 / bf16_s,
        int8_operations_per_s=2 * side**3 / int8_s,
        launch_us=launch.median_us,
    )
