"""Tuned tiles as the file vLLM's fused-MoE kernel reads, and as a knob for endpoint trials.

vLLM looks for `E=<experts>,N=<intermediate>,device_name=<device>[,dtype=<selector>].json` in the
folder that VLLM_TUNED_CONFIG_FOLDER names (`get_config_file_name` in fused_moe.py, read in
0.32.0), and picks the entry whose key, a number of tokens, is nearest. The tiles were proven and
timed on our grouped GEMM, not on vLLM's kernel: the endpoint trial decides whether they help.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernels.ops import KernelError
from kernels.tuning import TuneResult

FOLDER_VARIABLE = "VLLM_TUNED_CONFIG_FOLDER"


def file_name(experts: int, intermediate: int, device: str, dtype: str | None = None) -> str:
    """The name vLLM builds.

    It looks W8A8 INT8 up without a dtype selector (0.32.0 passes none); give `dtype` ("fp8_w8a8",
    "int8_w8a16" ...) for kernels where it passes one.
    """
    name = device.replace(" ", "_").replace("/", "_")
    if "H200" in name.split("_"):
        name = "NVIDIA_H200"  # vLLM folds the H200 family into one name
    selector = f",dtype={dtype}" if dtype else ""
    return f"E={experts},N={intermediate},device_name={name}{selector}.json"


def write_fused_moe_config(
    results: Iterable[TuneResult], folder: str | Path, *, dtype: str | None = None
) -> Path:
    """Write the best tile of each result, keyed by its number of tokens; return the file's path.

    The results are of `grouped_gemm_w8a8`, one layer shape and one device. Raises KernelError
    when they are not, or when one has no proven configuration.
    """
    entries: dict[int, dict[str, Any]] = {}
    names = set()
    triton = ""
    for result in results:
        if result.op != "grouped_gemm_w8a8" or result.best is None:
            raise KernelError(f"{result.op} on {result.case.name} has no proven tile for vLLM")
        params = result.case.params
        device = str(result.identity["device"])
        names.add(file_name(params["experts"], params["intermediate"], device, dtype))
        entries[int(params["tokens"])] = fused_moe_entry(result.best.config)
        triton = str(result.identity["triton"])
    if len(names) != 1:
        raise KernelError(f"one file holds one layer shape on one device, not {sorted(names)}")
    path = Path(folder) / names.pop()
    path.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"triton_version": triton} if triton else {}
    content.update({str(tokens): entries[tokens] for tokens in sorted(entries)})
    path.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")
    return path


def fused_moe_entry(config: dict[str, Any]) -> dict[str, int]:
    """Our tile in vLLM's names. vLLM's kernel has no split along k; it has grouping of tiles."""
    return {
        "BLOCK_SIZE_M": int(config["BLOCK_M"]),
        "BLOCK_SIZE_N": int(config["BLOCK_N"]),
        "BLOCK_SIZE_K": int(config["BLOCK_K"]),
        "GROUP_SIZE_M": 1,
        "num_warps": int(config["num_warps"]),
        "num_stages": int(config["num_stages"]),
    }


def endpoint_knob(folder: str | Path) -> dict[str, dict[str, Any]]:
    """A knob for a search space: vLLM's own tiles (unset), or the ones in `folder`."""
    return {
        "moe_tiles": {
            "env": FOLDER_VARIABLE,
            "choices": [None, str(folder)],
            "group": "moe",
        }
    }
