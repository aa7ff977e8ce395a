"""Every device of this host, of all kinds."""

from __future__ import annotations

import socket
from collections.abc import Callable

from runners.device import DeviceKind, DeviceReading
from runners.devices.cpu import read_cpus
from runners.devices.nvidia import read_nvidia
from runners.devices.xpu import read_xpus


def host_name() -> str:
    """This host's name, made safe to be a part of a path."""
    name = socket.gethostname() or "localhost"
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "localhost"


def inventory(host: str | None = None, kind: DeviceKind | None = None) -> list[DeviceReading]:
    """What each device of this host says now; only those of one kind where one is given."""
    host = host or host_name()
    readers: dict[DeviceKind, Callable[[str], list[DeviceReading]]] = {
        "cpu": read_cpus,
        "xpu": read_xpus,
        "cuda": read_nvidia,
    }
    return [
        reading for name, read in readers.items() if kind in (None, name) for reading in read(host)
    ]
