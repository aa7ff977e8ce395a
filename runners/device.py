"""Devices and leases: what a trial runs on, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DeviceKind = Literal["cpu", "xpu", "cuda"]


class Demand(BaseModel):
    """How many devices of which kind one trial needs, all of them on one host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: DeviceKind = Field("cpu", description="Kind of device: cpu, xpu (Intel) or cuda.")
    count: int = Field(1, ge=1, description="Devices per trial: tensor x pipeline parallel size.")


@dataclass(frozen=True)
class Device:
    """One thing that an engine can be given.

    `index` is what the mask variable of its kind counts. A CPU device is one NUMA node; `cores`
    are then the node's logical CPUs that this process may use.
    """

    kind: DeviceKind
    index: int
    name: str
    host: str
    memory_bytes: int = 0
    numa_node: int | None = None
    pci_address: str | None = None
    cores: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Unique in a study, such as `gpu-box-1/xpu3`."""
        return f"{self.host}/{self.kind}{self.index}"


class Health(StrEnum):
    """Whether a device may be given to a trial."""

    HEALTHY = "healthy"
    DIRTY = "dirty"
    LOST = "lost"
    THROTTLED = "throttled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class DeviceReading:
    """What a device's tool said at one moment. A figure that the tool did not give is None.

    `processes` are the pids that hold the device. `problem` says what is wrong and `fix` what a
    person can do about it; both are empty for a healthy device.
    """

    device: Device
    health: Health
    memory_used_bytes: int | None = None
    utilization: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: bool | None = None
    processes: tuple[int, ...] = ()
    driver: str | None = None
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Lease:
    """The right of one trial to use some devices of one host, until it is given back.

    `env` holds the mask variables that hide every other device from the engine.
    """

    devices: tuple[Device, ...]
    host: str
    env: dict[str, str] = field(default_factory=dict)
    id: str = ""

    @property
    def kind(self) -> DeviceKind:
        """The kind of its devices; a lease never mixes kinds."""
        return self.devices[0].kind
