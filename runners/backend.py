"""Where trials run: one interface for a Ray cluster, for threads, for recorded results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from runners.device import Demand, Device, Lease
from runners.leases import Capacity, Infeasible

Report = Callable[[dict[str, Any]], None]
"""Sends a small JSON-like message from a running task to the driver.

Raises:
    Cancelled: the ticket was cancelled; the task should clean up and return.
"""


class Task(Protocol):
    """What runs on a lease. It must be picklable, and so must its result."""

    def __call__(self, lease: Lease, report: Report) -> Any:
        """Runs on the leased devices, in another process or thread, and returns the result."""


class Cancelled(Exception):  # noqa: N818 - an order, not an error
    """Raised in a task by `report` when its ticket was cancelled."""


@dataclass(frozen=True)
class Ticket:
    """The name of a submitted task."""

    id: str


@dataclass(frozen=True)
class Progress:
    """A message from a running task. The first of each attempt is `{"phase": "leased", ...}`."""

    ticket: Ticket
    payload: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """A task that returned, or raised: `error` is then the traceback, and `result` None."""

    ticket: Ticket
    result: Any
    lease: Lease
    error: str | None = None


@dataclass(frozen=True)
class Lost:
    """A task that will never return: its process, its host or its devices are gone.

    Nothing follows for what it was trying; submit it again. `cancelled` when that was asked for.
    """

    ticket: Ticket
    reason: str
    host: str | None
    cancelled: bool = False


Event = Progress | Finished | Lost


class Backend(ABC):
    """Runs tasks on leased devices and tells what becomes of them.

    One thread drives it: `submit` as long as `capacity().free` allows, then `next_event`. A
    submitted task that finds no free devices waits inside for some.
    """

    @property
    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices of the fleet, taken or free, put aside or not."""

    @abstractmethod
    def capacity(self, devices: Demand) -> Capacity:
        """How many trials of this demand fit in all, and how many could start now."""

    @abstractmethod
    def submit(
        self,
        task: Task,
        *,
        devices: Demand,
        marker: str = "",
        avoid_hosts: frozenset[str] = frozenset(),
    ) -> Ticket:
        """Hands over a task. `marker` is that of its engines, to find them if the task is lost.

        `avoid_hosts` are used only when no other host could ever serve the demand.

        Raises:
            Infeasible: no host could ever serve this demand.
        """

    @abstractmethod
    def next_event(self, timeout_s: float) -> Event | None:
        """The next thing that happened, or None when nothing did within the time."""

    @abstractmethod
    def cancel(self, ticket: Ticket) -> None:
        """Ends a task; `Lost(cancelled=True)` follows. One that has ended already is no error."""

    @abstractmethod
    def close(self) -> None:
        """Ends every task and gives everything back; again is no error."""

    @abstractmethod
    def quarantine(self, device: Device, reason: str) -> None:
        """Gives this device to nobody until its health check passes."""

    @abstractmethod
    def stranded(self, devices: Demand) -> str | None:
        """Why no trial of this demand can run any more without a person; None while one may."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


__all__ = [
    "Backend",
    "Cancelled",
    "Capacity",
    "Event",
    "Finished",
    "Infeasible",
    "Lost",
    "Progress",
    "Report",
    "Task",
    "Ticket",
]
