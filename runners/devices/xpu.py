"""Intel XPU devices, as `xpu-smi` and sysfs describe them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from runners.device import Device, DeviceReading, Health
from runners.devices.pci import numa_node
from runners.devices.tool import Tool, number, run_tool

SYSFS = Path("/sys")
INTEL = "0x8086"
MIB = 1024 * 1024
IDLE_BYTES = 256 * MIB
"""A card without work holds 26 to 44 MiB (four B70, seen by the lab); more is somebody's."""

DISCOVERY = ("xpu-smi", "discovery", "--dump", "1,2,8,11,16")
NOW = ("xpu-smi", "dump", "-d", "-1", "-m", "0,1,3,18,35", "-n", "1")
PROCESSES = ("xpu-smi", "ps", "-j")
HEALTH = ("xpu-smi", "health", "-l", "-j")

_RESET = "Reset the card (`xpu-smi config -d {index} --reset`) or reboot the host."


def read_xpus(host: str, *, run: Tool = run_tool, sysfs: Path = SYSFS) -> list[DeviceReading]:
    """Every Intel GPU of this host.

    Without `xpu-smi` only what sysfs says is known, and the health is unknown. Integrated GPUs
    that xpu-smi does not manage are left out.
    """
    listing = run(DISCOVERY)
    if listing is None:
        return _from_sysfs(host, sysfs)
    now = {row["DeviceId"]: row for row in _csv(run(NOW) or "")}
    processes = _processes(run(PROCESSES))
    health = _health(run(HEALTH))
    return [
        _reading(host, row, now.get(row["Device ID"]), processes, health, sysfs)
        for row in _csv(listing)
        if row.get("Device ID", "").isdigit()
    ]


def _reading(
    host: str,
    row: dict[str, str],
    now: dict[str, str] | None,
    processes: dict[int, list[int]] | None,
    health: dict[int, str],
    sysfs: Path,
) -> DeviceReading:
    index = int(row["Device ID"])
    address = row.get("PCI BDF Address") or None
    device = Device(
        kind="xpu",
        index=index,
        name=row.get("Device Name", "Intel GPU"),
        host=host,
        memory_bytes=int((number(row.get("Memory Physical Size")) or 0) * MIB),
        numa_node=numa_node(sysfs, address),
        pci_address=address,
    )
    values = now or {}
    used = number(values.get("GPU Memory Used (MiB)"))
    used_bytes = None if used is None else int(used * MIB)
    pids = tuple((processes or {}).get(index, ()))
    reason = values.get("Throttle reason", "").strip()
    throttled = None if not reason else reason.lower() not in ("not throttled", "none", "0")
    utilization = number(values.get("GPU Utilization (%)"))
    state, problem, fix = _judge(
        index, now is not None, used_bytes, pids, throttled, reason, health
    )
    return DeviceReading(
        device=device,
        health=state,
        memory_used_bytes=used_bytes,
        utilization=None if utilization is None else utilization / 100,
        temperature_c=number(values.get("GPU Core Temperature (Celsius Degree)")),
        power_w=number(values.get("GPU Power (W)")),
        throttled=throttled,
        processes=pids,
        driver=row.get("Driver Version") or None,
        problem=problem,
        fix=fix,
    )


def _judge(
    index: int,
    answers: bool,
    used_bytes: int | None,
    pids: tuple[int, ...],
    throttled: bool | None,
    reason: str,
    health: dict[int, str],
) -> tuple[Health, str, str]:
    """Health, what is wrong and what to do; the worst first."""
    if not answers:
        problem = f"Card {index} is listed but gives no telemetry, as a lost card does."
        return Health.LOST, problem, _RESET.format(index=index)
    if index in health:
        return Health.LOST, f"Card {index}: {health[index]}", _RESET.format(index=index)
    if pids or (used_bytes is not None and used_bytes > IDLE_BYTES):
        held = f"{(used_bytes or 0) / MIB:.0f} MiB"
        who = (
            f" by process {', '.join(map(str, pids))}" if pids else " although no process is listed"
        )
        fix = f"End it (`kill {pids[0]}`), or wait for it." if pids else _RESET.format(index=index)
        return Health.DIRTY, f"Card {index}: {held} are held{who}.", fix
    if throttled:
        problem = f"Card {index} is throttled ({reason}): speeds measured now are not comparable."
        return Health.THROTTLED, problem, "Check cooling and power limit (`xpu-smi config -d N`)."
    return Health.HEALTHY, "", ""


def _csv(text: str) -> list[dict[str, str]]:
    """Rows of xpu-smi's CSV, whose fields are padded with spaces, by their headings."""
    lines = [line for line in text.splitlines() if "," in line]
    rows = csv.reader(lines, skipinitialspace=True)
    heading = [name.strip() for name in next(rows, [])]
    return [dict(zip(heading, (field.strip() for field in row), strict=False)) for row in rows]


def _processes(text: str | None) -> dict[int, list[int]] | None:
    """Pids by card. xpu-smi lists itself on every card, which is nobody's work.

    The list had another name in earlier versions of the tool.
    """
    data = _json(text)
    if data is None:
        return None
    found: dict[int, list[int]] = {}
    for row in data.get("device_util_by_proc_list") or data.get("process_list") or []:
        if not str(row.get("process_name", "")).endswith("xpu-smi"):
            found.setdefault(int(row["device_id"]), []).append(int(row["process_id"]))
    return found


def _health(text: str | None) -> dict[int, str]:
    """What is critical, by card. Warnings show in temperature and throttling too."""
    data = _json(text)
    found: dict[int, str] = {}
    for row in (data or {}).get("device_list", []):
        for component, state in row.items():
            status = str(state.get("status", "")) if isinstance(state, dict) else ""
            if status.lower() in ("critical", "error", "failed"):
                found[int(row["device_id"])] = (
                    f"{component.replace('_', ' ')} is {status.lower()}: "
                    f"{state.get('description', 'no description')}"
                )
    return found


def _json(text: str | None) -> dict[str, Any] | None:
    try:
        data = json.loads(text or "")
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _from_sysfs(host: str, sysfs: Path) -> list[DeviceReading]:
    """Intel render devices without the tool: enough to say what is missing."""
    readings: list[DeviceReading] = []
    for card in sorted((sysfs / "class/drm").glob("renderD*")):
        folder = card / "device"
        try:
            if (folder / "vendor").read_text().strip() != INTEL:
                continue
            code = (folder / "device").read_text().strip()
        except OSError:
            continue
        address = folder.resolve().name
        device = Device(
            kind="xpu",
            index=len(readings),
            name=f"Intel GPU {code}",
            host=host,
            numa_node=numa_node(sysfs, address),
            pci_address=address if ":" in address else None,
        )
        readings.append(
            DeviceReading(
                device=device,
                health=Health.UNKNOWN,
                problem="An Intel GPU is here, but `xpu-smi` is not, so nothing is known of it.",
                fix="Install Intel XPU Manager's xpu-smi, and join the `render` group.",
            )
        )
    return readings
