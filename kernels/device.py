"""What the worker sees: device, driver, versions and limits. Part of every result's identity."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernels.space import UNLIMITED, DeviceLimits


@dataclass(frozen=True)
class DeviceIdentity:
    """Names and versions that decide a kernel's speed. Empty text where there is no such thing."""

    device: str
    device_type: str
    driver: str
    python: str
    torch: str
    triton: str
    runtime: str
    memory_bytes: int
    cache_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> DeviceIdentity:
        """The inverse of `to_json`."""
        return DeviceIdentity(**data)


def default_device() -> str:
    """The first CUDA device, else the first XPU, else the CPU."""
    import torch

    if torch.cuda.is_available():
        return "cuda:0"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu:0"
    return "cpu"


def identify(device: str) -> DeviceIdentity:
    """Name and versions of a device such as `cuda:0`."""
    import torch

    device_type = device.split(":")[0]
    name, memory, cache, driver, runtime = platform.processor() or platform.machine(), 0, 0, "", ""
    if device_type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory = properties.name, properties.total_memory
        cache = getattr(properties, "L2_cache_size", 0)
        driver, runtime = nvidia_driver(), f"CUDA {torch.version.cuda}"
    elif device_type == "xpu":
        xpu = torch.xpu.get_device_properties(device)
        name, memory = xpu.name, xpu.total_memory
        driver = str(getattr(xpu, "driver_version", ""))
        runtime = str(getattr(torch.version, "xpu", ""))
    else:
        name = cpu_name()
    return DeviceIdentity(
        device=name,
        device_type=device_type,
        driver=driver,
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton_version(),
        runtime=runtime,
        memory_bytes=int(memory),
        cache_bytes=int(cache),
    )


def limits(device: str) -> DeviceLimits:
    """What one compute unit of the device holds; unlimited on a CPU."""
    import torch

    if not device.startswith("cuda"):
        return UNLIMITED
    properties = torch.cuda.get_device_properties(device)
    return DeviceLimits(
        shared_memory_bytes=int(
            getattr(properties, "shared_memory_per_block_optin", HOPPER_SHARED_MEMORY_BYTES)
        ),
        registers=int(getattr(properties, "regs_per_multiprocessor", 65536)),
        max_threads=int(properties.max_threads_per_multi_processor),
        units=int(properties.multi_processor_count),
        warp_size=int(properties.warp_size),
    )


HOPPER_SHARED_MEMORY_BYTES = 227 * 1024
"""What one block may ask for on compute capability 9.0, for a torch that does not say."""


def triton_version() -> str:
    """Triton's version, empty where it is not installed."""
    if importlib.util.find_spec("triton") is None:
        return ""
    import triton

    return str(triton.__version__)


def nvidia_driver() -> str:
    """The driver's version as nvidia-smi says it, empty when it does not."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else ""


def cpu_name() -> str:
    """The processor's model name."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
