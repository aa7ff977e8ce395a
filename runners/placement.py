"""Which devices of which host a trial gets: near each other, and none that is taken or sick."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from runners.device import Demand, Device

EXHAUSTIVE = 5000
"""Sets of devices that are compared one by one; beyond that only neighbours are looked at."""


def place(demand: Demand, free: Iterable[Device]) -> tuple[Device, ...] | None:
    """The best set of free devices of one host for this demand, or None when no host has enough.

    Devices on one NUMA node come before those on several, neighbours on the PCI bus before distant
    ones, and the host with the fewest free devices that suffice before an emptier one, so that a
    large demand still finds a host. Deterministic.
    """
    hosts: dict[str, list[Device]] = {}
    for device in free:
        if device.kind == demand.kind:
            hosts.setdefault(device.host, []).append(device)
    fitting = [
        (len(devices), host) for host, devices in hosts.items() if len(devices) >= demand.count
    ]
    if not fitting:
        return None
    _, host = min(fitting)
    return min(_candidates(demand.count, hosts[host]), key=_distance)


def _candidates(count: int, devices: Sequence[Device]) -> Iterable[tuple[Device, ...]]:
    ordered = sorted(devices, key=lambda d: (d.numa_node or 0, d.pci_address or "", d.index))
    total = 1
    for step in range(count):
        total = total * (len(ordered) - step) // (step + 1)
    if total <= EXHAUSTIVE:
        return itertools.combinations(ordered, count)
    return (tuple(ordered[at : at + count]) for at in range(len(ordered) - count + 1))


def _distance(devices: tuple[Device, ...]) -> tuple[int, int, tuple[int, ...]]:
    """Smaller is nearer: NUMA nodes spanned, then spread of their places on the bus."""
    nodes = {device.numa_node for device in devices}
    places = [_bus(device) for device in devices]
    return len(nodes), max(places) - min(places), tuple(device.index for device in devices)


def _bus(device: Device) -> int:
    """The PCI address `domain:bus:device.function` as one number; else the device's index."""
    if device.pci_address is None:
        return device.index
    return int(device.pci_address.replace(":", "").replace(".", ""), 16)


def masks(devices: Sequence[Device]) -> dict[str, str]:
    """The environment that hides every other device of the host from an engine.

    ZE_AFFINITY_MASK renumbers what it leaves visible from 0, so ONEAPI_DEVICE_SELECTOR must not
    name the devices again by their old numbers: it only keeps other backends out.
    """
    indices = ",".join(str(device.index) for device in devices)
    match devices[0].kind:
        case "xpu":
            return {"ZE_AFFINITY_MASK": indices, "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"}
        case "cuda":
            return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": indices}
        case _:
            return {}
