"""NVIDIA devices, as `nvidia-smi` (NVML's own tool) describes them."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from runners.device import Device, DeviceReading, Health
from runners.devices.pci import numa_node
from runners.devices.tool import Tool, number, run_tool

SYSFS = Path("/sys")
MIB = 1024 * 1024
IDLE_BYTES = 1024 * MIB
"""The driver itself holds some hundred MiB of a large card; an engine holds many GiB."""

FIELDS = (
    "index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total", "memory.used",
    "memory.reserved", "utilization.gpu", "temperature.gpu", "power.draw",
    "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
PROCESSES = (
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,used_memory",
    "--format=csv,noheader,nounits",
)

SLOWDOWN = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
"""Bits of NVML's nvmlClocksEventReasons that mean a slower card; idle and settings are not."""

HARMFUL = 0x08 | 0x20 | 0x40 | 0x80
"""A power cap under full load is how these cards work; the others make speeds incomparable."""

_LOST = "Look for Xid lines in `dmesg`; reset with `nvidia-smi --gpu-reset -i {index}`, or reboot."


def read_nvidia(host: str, *, run: Tool = run_tool, sysfs: Path = SYSFS) -> list[DeviceReading]:
    """Every NVIDIA GPU of this host; none where `nvidia-smi` is missing or fails."""
    text = run(QUERY)
    if text is None:
        return []
    pids: dict[str, list[int]] = {}
    for row in csv.reader((run(PROCESSES) or "").splitlines(), skipinitialspace=True):
        if len(row) >= 2 and row[1].strip().isdigit():
            pids.setdefault(row[0].strip(), []).append(int(row[1]))
    rows = [
        dict(zip(FIELDS, (field.strip() for field in row), strict=False))
        for row in csv.reader(text.splitlines(), skipinitialspace=True)
        if len(row) == len(FIELDS)
    ]
    return [_reading(host, row, tuple(pids.get(row["uuid"], ())), sysfs) for row in rows]


def _reading(host: str, row: dict[str, str], pids: tuple[int, ...], sysfs: Path) -> DeviceReading:
    index = int(row["index"])
    address = _pci_address(row["pci.bus_id"])
    total = number(row["memory.total"])
    device = Device(
        kind="cuda",
        index=index,
        name=row["name"],
        host=host,
        memory_bytes=int((total or 0) * MIB),
        numa_node=numa_node(sysfs, address),
        pci_address=address,
    )
    used = number(row["memory.used"])
    used_bytes = None if used is None else int(used * MIB)
    reasons = _reasons(row["clocks_throttle_reasons.active"])
    utilization = number(row["utilization.gpu"])
    health, problem, fix = _judge(row, used_bytes, pids, reasons)
    return DeviceReading(
        device=device,
        health=health,
        memory_used_bytes=used_bytes,
        utilization=None if utilization is None else utilization / 100,
        temperature_c=number(row["temperature.gpu"]),
        power_w=number(row["power.draw"]),
        throttled=None if reasons is None else bool(reasons & HARMFUL),
        processes=pids,
        driver=row["driver_version"] or None,
        problem=problem,
        fix=fix,
    )


def _judge(
    row: dict[str, str], used_bytes: int | None, pids: tuple[int, ...], reasons: int | None
) -> tuple[Health, str, str]:
    """Health, what is wrong and what to do; the worst first."""
    index = row["index"]
    lost = next(
        (value for value in row.values() if re.search(r"lost|Unknown Error|ERR!", value)), ""
    )
    if lost:
        return Health.LOST, f"GPU {index} does not answer ({lost}).", _LOST.format(index=index)
    errors = number(row["ecc.errors.uncorrected.volatile.total"])
    if errors:
        problem = f"GPU {index} has {errors:.0f} uncorrected memory errors since its last reset."
        return Health.LOST, problem, _LOST.format(index=index)
    if pids or (used_bytes is not None and used_bytes > IDLE_BYTES):
        held = f"{(used_bytes or 0) / MIB:.0f} MiB"
        who = (
            f" by process {', '.join(map(str, pids))}" if pids else " although no process is listed"
        )
        fix = f"End it (`kill {pids[0]}`), or wait for it." if pids else _LOST.format(index=index)
        return Health.DIRTY, f"GPU {index}: {held} are held{who}.", fix
    if reasons is not None and reasons & HARMFUL:
        names = ", ".join(name for bit, name in SLOWDOWN.items() if reasons & bit)
        problem = f"GPU {index} is slowed down ({names}): speeds measured now are not comparable."
        return Health.THROTTLED, problem, "Check cooling and power supply."
    return Health.HEALTHY, "", ""


def _reasons(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _pci_address(text: str) -> str | None:
    """`00000000:3B:00.0` as sysfs spells it: `0000:3b:00.0`."""
    match = re.fullmatch(r"[0-9A-Fa-f]*?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", text)
    return match[1].lower() if match else None
