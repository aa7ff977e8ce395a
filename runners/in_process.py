"""A backend of threads in this process: for one host, for tests, for measuring the loop itself."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Iterable
from typing import Any

from runners.backend import Cancelled, Event, Finished, Lost, Progress, Ticket
from runners.device import Demand, Device, DeviceReading, Lease
from runners.devices import inventory
from runners.dispatch import Waiting
from runners.leasing import LeasingBackend


class InProcessBackend(LeasingBackend):
    """Runs each task in a thread of its own, on this host's devices.

    Threads cannot be killed: a cancelled task ends at its next `report`. An engine that it started
    still ends with this process.
    """

    def __init__(self, readings: Iterable[DeviceReading] | None = None) -> None:
        super().__init__()
        self._book.join(inventory() if readings is None else readings)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._running: dict[Ticket, threading.Thread] = {}
        self._leases: dict[Ticket, Lease] = {}
        self._cancelled: set[Ticket] = set()

    def next_event(self, timeout_s: float) -> Event | None:
        """See `Backend`."""
        self._start_what_can_start()
        try:
            event = (
                self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get(False)
            )
        except queue.Empty:
            return None
        if not isinstance(event, Progress):
            self._running.pop(event.ticket, None)
            self._cancelled.discard(event.ticket)
            lease = self._leases.pop(event.ticket, None)
            if lease is not None:
                self._book.release(lease)
            self._start_what_can_start()
        return event

    def cancel(self, ticket: Ticket) -> None:
        """See `Backend`."""
        if self._dispatch.withdraw(ticket):
            self._events.put(Lost(ticket, "cancelled before it started", None, cancelled=True))
        elif ticket in self._running:
            self._cancelled.add(ticket)

    def close(self) -> None:
        """Cancels every task and waits until their threads have ended."""
        for ticket in list(self._running):
            self.cancel(ticket)
        for thread in list(self._running.values()):
            thread.join()

    def quarantine(self, device: Device, reason: str) -> None:
        """See `Backend`."""
        self._book.put_aside(device.id, reason)

    def stranded(self, devices: Demand) -> str | None:
        """See `Backend`. Nobody checks a device's health again here."""
        if self._running or self._book.capacity(devices).total:
            return None
        return self._book.why_none()

    def _start_what_can_start(self) -> None:
        for waiting, lease in self._dispatch.assign():
            self._leases[waiting.ticket] = lease
            thread = threading.Thread(
                target=self._run, args=(waiting, lease), name=waiting.ticket.id, daemon=True
            )
            self._running[waiting.ticket] = thread
            thread.start()

    def _run(self, waiting: Waiting, lease: Lease) -> None:
        ticket = waiting.ticket

        def report(payload: dict[str, Any]) -> None:
            if ticket in self._cancelled:
                raise Cancelled
            self._events.put(Progress(ticket, payload))

        self._events.put(Progress(ticket, leased(lease)))
        try:
            result = waiting.task(lease, report)
        except Cancelled:
            self._events.put(Lost(ticket, "cancelled", lease.host, cancelled=True))
        except Exception:  # noqa: BLE001 - whatever a task raises is reported, never lost
            self._events.put(Finished(ticket, None, lease, traceback.format_exc()))
        else:
            self._events.put(Finished(ticket, result, lease))


def leased(lease: Lease) -> dict[str, Any]:
    """The first message of every attempt: where it runs."""
    return {
        "phase": "leased",
        "host": lease.host,
        "devices": [device.id for device in lease.devices],
        "lease": lease.id,
    }
