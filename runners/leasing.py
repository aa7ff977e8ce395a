"""What every backend that leases devices shares: a book of them, and tasks that wait for some."""

from __future__ import annotations

from abc import abstractmethod

from runners.backend import Backend, Task, Ticket
from runners.device import Demand, Device
from runners.dispatch import Dispatch
from runners.leases import Capacity, LeaseBook


class LeasingBackend(Backend):
    """Keeps the book and the queue; a subclass starts what has been given devices."""

    def __init__(self) -> None:
        self._book = LeaseBook()
        self._dispatch = Dispatch(self._book)

    @property
    def devices(self) -> tuple[Device, ...]:
        """See `Backend`."""
        return self._book.devices

    def capacity(self, devices: Demand) -> Capacity:
        """See `Backend`."""
        return self._book.capacity(devices)

    def submit(
        self,
        task: Task,
        *,
        devices: Demand,
        marker: str = "",
        avoid_hosts: frozenset[str] = frozenset(),
    ) -> Ticket:
        """See `Backend`."""
        ticket = self._dispatch.add(task, devices, marker, avoid_hosts)
        self._start_what_can_start()
        return ticket

    @abstractmethod
    def _start_what_can_start(self) -> None:
        """Start every waiting task for which there are free devices now."""
