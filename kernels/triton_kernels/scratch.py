"""Device memory that kernels keep between calls: zeroed once, left as found by every launch.

Launches that meet at counters need them to exist before a graph is captured; the warm-up calls
before a capture make them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_KEPT: dict[tuple[str, str, int], torch.Tensor] = {}


def kept_zeros(purpose: str, elements: int, device: torch.device) -> torch.Tensor:
    """int32 zeros [elements], the same tensor for every call with the same purpose and size."""
    import torch

    key = (purpose, str(device), elements)
    if key not in _KEPT:
        _KEPT[key] = torch.zeros(elements, dtype=torch.int32, device=device)
    return _KEPT[key]
