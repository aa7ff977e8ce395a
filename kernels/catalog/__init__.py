"""The ops we ship. Importing a module of this folder registers its op; `load()` does so for all."""

from __future__ import annotations

import importlib

MODULES = (
    "per_token_quant_int8",
    "silu_mul_quant_int8",
    "expert_offsets",
    "grouped_gemm_w8a8",
    "moe_prologue",
    "moe_layerlet",
    "greedy_top1",
    "rms_norm",
    "shared_expert_add",
)


def load() -> None:
    """Register every shipped op. Needs torch only when an op is used, not to list it."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
