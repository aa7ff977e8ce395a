"""Record a candidate's call once and replay it: device graphs where torch has them.

On CUDA and XPU the call is captured into a device graph. A CPU has none: there the recorded call
is the same function bound to the same buffers (`bound_call`), so state that a candidate kept from
its first call is found in the same way, by changing the buffers' contents between replays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def device_module(device_type: str) -> Any:
    """torch.cuda, torch.xpu or torch.cpu."""
    import torch

    return getattr(torch, device_type)


def synchronize(device_type: str) -> None:
    """Wait for the device; a CPU has nothing to wait for."""
    if device_type != "cpu":
        device_module(device_type).synchronize()


def graph_kind(device_type: str) -> str:
    """Which kind of replay this device offers: cuda_graph, xpu_graph or bound_call."""
    module = device_module(device_type)
    if device_type == "cuda" and hasattr(module, "CUDAGraph"):
        return "cuda_graph"
    if device_type == "xpu" and hasattr(module, "XPUGraph"):
        return "xpu_graph"
    return "bound_call"


@dataclass
class Recording:
    """A recorded call; `replay()` enqueues it again on the buffers it was recorded with."""

    kind: str
    replay: Callable[[], None]


def record(call: Callable[[], None], device_type: str, *, warm_up_calls: int = 2) -> Recording:
    """Warm `call` up, capture it, and return the recording.

    Raises whatever the capture raises; a candidate that reads the device from the host during
    capture (a size, an index) ends here.
    """
    kind = graph_kind(device_type)
    if kind == "bound_call":
        for _ in range(warm_up_calls):
            call()
        return Recording(kind, call)
    module = device_module(device_type)
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with module.stream(side):
        for _ in range(warm_up_calls):
            call()
    module.current_stream().wait_stream(side)
    module.synchronize()
    graph = module.CUDAGraph() if kind == "cuda_graph" else module.XPUGraph()
    with module.graph(graph):
        call()
    module.synchronize()
    return Recording(kind, graph.replay)


def copy_into(static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
    """Overwrite the recorded input buffers in place with fresh data of the same shapes."""
    for name, tensor in fresh.items():
        static[name].copy_(tensor)
