"""CPU devices: one per NUMA node, from sysfs and /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

from runners.device import Device, DeviceReading, Health

SYSFS = Path("/sys")
PROC = Path("/proc")


def read_cpus(
    host: str,
    *,
    sysfs: Path = SYSFS,
    proc: Path = PROC,
    allowed: frozenset[int] | None = None,
) -> list[DeviceReading]:
    """One device per NUMA node that has a CPU which this process may use.

    `allowed` are the logical CPUs that may be used; by default the affinity of this process, which
    a container or a batch system may have narrowed.
    """
    allowed = frozenset(os.sched_getaffinity(0)) if allowed is None else allowed
    name = _model_name(proc)
    throttled = _is_throttled(sysfs, allowed)
    readings = []
    for node, cores, total_bytes, free_bytes in _nodes(sysfs, proc):
        usable = tuple(core for core in cores if core in allowed)
        if not usable:
            continue
        device = Device(
            kind="cpu",
            index=node,
            name=name,
            host=host,
            memory_bytes=total_bytes,
            numa_node=node,
            cores=usable,
        )
        readings.append(
            DeviceReading(
                device=device,
                health=Health.THROTTLED if throttled else Health.HEALTHY,
                memory_used_bytes=total_bytes - free_bytes,
                throttled=throttled,
                temperature_c=_temperature_c(sysfs),
                problem="The CPU is being throttled for its temperature." if throttled else "",
                fix="Check the machine's cooling; speeds measured now are not comparable."
                if throttled
                else "",
            )
        )
    return readings


def parse_core_list(text: str) -> tuple[int, ...]:
    """The kernel's list format: `0-3,8` is (0, 1, 2, 3, 8)."""
    cores: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first:
            cores += range(int(first), int(last if dash else first) + 1)
    return tuple(cores)


def _nodes(sysfs: Path, proc: Path) -> list[tuple[int, tuple[int, ...], int, int]]:
    """`(node, cores, total bytes, available bytes)`. A machine without NUMA is one node."""
    nodes = []
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        cores = parse_core_list((folder / "cpulist").read_text())
        facts = _kilobytes((folder / "meminfo").read_text())
        # What a file cache holds is given back when it is asked for.
        free = facts.get("MemFree", 0) + facts.get("FilePages", 0) + facts.get("SReclaimable", 0)
        nodes.append((int(folder.name[4:]), cores, facts.get("MemTotal", 0), free))
    if nodes:
        return nodes
    facts = _kilobytes((proc / "meminfo").read_text())
    cores = tuple(range(os.cpu_count() or 1))
    return [(0, cores, facts.get("MemTotal", 0), facts.get("MemAvailable", 0))]


def _kilobytes(text: str) -> dict[str, int]:
    """`Node 0 MemTotal: 100 kB` and `MemTotal: 100 kB` as `{"MemTotal": 102400}`, in bytes."""
    rows = re.findall(r"^(?:Node \d+ )?(\w+):\s+(\d+) kB", text, re.MULTILINE)
    return {name: int(value) * 1024 for name, value in rows}


def _model_name(proc: Path) -> str:
    try:
        text = (proc / "cpuinfo").read_text()
    except OSError:
        return "CPU"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else "CPU"


def _is_throttled(sysfs: Path, cores: frozenset[int]) -> bool | None:
    """Whether a core runs under half of its allowed frequency limit; None where sysfs is silent.

    Counters of past throttling say nothing about now, so the present limit is read.
    """
    seen = False
    for core in cores:
        folder = sysfs / f"devices/system/cpu/cpu{core}/cpufreq"
        try:
            limit = int((folder / "scaling_max_freq").read_text())
            best = int((folder / "cpuinfo_max_freq").read_text())
        except (OSError, ValueError):
            continue
        seen = True
        if limit < best / 2:
            return True
    return False if seen else None


def _temperature_c(sysfs: Path) -> float | None:
    """The hottest package, in degrees Celsius."""
    values = []
    for zone in (sysfs / "class/thermal").glob("thermal_zone*"):
        try:
            if "pkg_temp" in (zone / "type").read_text():
                values.append(int((zone / "temp").read_text()) / 1000)
        except (OSError, ValueError):
            continue
    return max(values, default=None)
