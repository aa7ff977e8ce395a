"""The book of hosts, devices and leases: who has what, what is free, what is put aside."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from runners.device import Demand, Device, DeviceReading, Health, Lease
from runners.placement import masks, place


class Infeasible(ValueError):  # noqa: N818 - the word for it
    """No host, were it empty, could serve this demand: asking would wait for ever."""


@dataclass(frozen=True)
class Capacity:
    """How many trials of one demand fit: into all healthy devices, and into those free now."""

    total: int
    free: int


class LeaseBook:
    """Hands out devices. One owner, no clock, no network: the backends keep it up to date."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._leases: dict[str, Lease] = {}
        self._aside: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def join(self, readings: Iterable[DeviceReading]) -> None:
        """A host with its devices; those that are not healthy are put aside with their problem."""
        for reading in readings:
            self._devices[reading.device.id] = reading.device
            if reading.health in (Health.LOST, Health.DIRTY):
                self._aside[reading.device.id] = reading.problem or reading.health.value

    def leave(self, host: str) -> list[Lease]:
        """A host is gone with its devices; returns the leases that are lost with it."""
        lost = [lease for lease in self._leases.values() if lease.host == host]
        for lease in lost:
            del self._leases[lease.id]
        for device in [d for d in self._devices.values() if d.host == host]:
            del self._devices[device.id]
            self._aside.pop(device.id, None)
        return lost

    def lease(self, demand: Demand, avoid: frozenset[str] = frozenset()) -> Lease | None:
        """Devices for one trial, or None when none are free now.

        Hosts to avoid are used only when no other host could ever serve the demand.

        Raises:
            Infeasible: not even an empty fleet could serve it.
        """
        self.require_feasible(demand)
        others = [d for d in self._devices.values() if d.host not in avoid]
        if not _fits(demand, others):
            avoid = frozenset()
        devices = place(demand, (d for d in self._free() if d.host not in avoid))
        if devices is None:
            return None
        lease = Lease(
            devices=devices,
            host=devices[0].host,
            env=masks(devices),
            id=f"lease-{next(self._numbers)}",
        )
        self._leases[lease.id] = lease
        return lease

    def release(self, lease: Lease) -> None:
        """Gives devices back; a lease that was lost with its host is no error."""
        self._leases.pop(lease.id, None)

    def put_aside(self, device_id: str, reason: str) -> None:
        """Gives this device to nobody until it is taken back. A lease on it goes on."""
        if device_id in self._devices:
            self._aside[device_id] = reason

    def take_back(self, device_id: str) -> None:
        """The device may be given out again."""
        self._aside.pop(device_id, None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that are part of the fleet now."""
        return tuple(sorted({device.host for device in self._devices.values()}))

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the fleet, taken, put aside or free."""
        return tuple(self._devices.values())

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Every lease that is held now."""
        return tuple(self._leases.values())

    @property
    def aside(self) -> dict[str, str]:
        """Devices that are given to nobody, with the reason."""
        return dict(self._aside)

    def why_none(self) -> str:
        """Why no device can be given out: each that is put aside, with its reason."""
        told = [f"{device} ({reason})" for device, reason in sorted(self._aside.items())]
        return f"no healthy device is left: {'; '.join(told) or 'all hosts are gone'}"

    def capacity(self, demand: Demand) -> Capacity:
        """How many trials of this demand run at most, and how many could start now."""
        healthy = [d for d in self._devices.values() if d.id not in self._aside]
        return Capacity(total=_fits(demand, healthy), free=_fits(demand, self._free()))

    def require_feasible(self, demand: Demand) -> None:
        """Checks that some host has enough devices of the kind, healthy or not, taken or not.

        Raises:
            Infeasible: none has; the message says what there is.
        """
        counts: dict[str, int] = {}
        for device in self._devices.values():
            if device.kind == demand.kind:
                counts[device.host] = counts.get(device.host, 0) + 1
        best = max(counts.values(), default=0)
        if best < demand.count:
            there = (
                f"the largest of {len(counts)} hosts has {best}"
                if counts
                else f"no host of {len(self.hosts)} has any"
            )
            raise Infeasible(
                f"a trial needs {demand.count} {demand.kind} device(s) on one host, and {there}; "
                "run `tuner doctor` to see what each host offers"
            )

    def _free(self) -> list[Device]:
        taken = {device.id for lease in self._leases.values() for device in lease.devices}
        return [d for d in self._devices.values() if d.id not in taken and d.id not in self._aside]


def _fits(demand: Demand, devices: Iterable[Device]) -> int:
    counts: dict[str, int] = {}
    for device in devices:
        if device.kind == demand.kind:
            counts[device.host] = counts.get(device.host, 0) + 1
    return sum(count // demand.count for count in counts.values())
