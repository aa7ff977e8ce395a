"""Matches waiting tasks with free devices; what all backends that lease devices share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from runners.backend import Task, Ticket
from runners.device import Demand, Lease
from runners.leases import Infeasible, LeaseBook


@dataclass(frozen=True)
class Waiting:
    """A submitted task that has no devices yet."""

    ticket: Ticket
    task: Task
    demand: Demand
    marker: str
    avoid_hosts: frozenset[str]


class Dispatch:
    """The waiting tasks, first come first served as far as devices allow."""

    def __init__(self, book: LeaseBook) -> None:
        self.book = book
        self._waiting: list[Waiting] = []
        self._numbers = itertools.count(1)

    def add(self, task: Task, demand: Demand, marker: str, avoid: frozenset[str]) -> Ticket:
        """Takes a task in.

        Raises:
            Infeasible: no host could ever serve it.
        """
        self.book.require_feasible(demand)
        ticket = Ticket(f"ticket-{next(self._numbers)}")
        self._waiting.append(Waiting(ticket, task, demand, marker, avoid))
        return ticket

    def withdraw(self, ticket: Ticket) -> bool:
        """Takes a task out that has not started; false when there is none."""
        before = len(self._waiting)
        self._waiting = [waiting for waiting in self._waiting if waiting.ticket != ticket]
        return len(self._waiting) < before

    def hopeless(self) -> list[tuple[Waiting, str]]:
        """Takes out what has become infeasible because hosts left, with the reason."""
        found = []
        for waiting in self._waiting:
            try:
                self.book.require_feasible(waiting.demand)
            except Infeasible as error:
                found.append((waiting, str(error)))
        self._waiting = [w for w in self._waiting if w not in [pair[0] for pair in found]]
        return found

    def assign(self) -> Iterator[tuple[Waiting, Lease]]:
        """Takes out each task that can start now, with the devices that it gets."""
        for waiting in list(self._waiting):
            try:
                lease = self.book.lease(waiting.demand, waiting.avoid_hosts)
            except Infeasible:
                continue
            if lease is not None:
                self._waiting.remove(waiting)
                yield waiting, lease
