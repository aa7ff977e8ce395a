"""Threads as a backend: the same promises as on a cluster, on one host."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from runners import (
    Demand,
    Device,
    DeviceReading,
    Event,
    Finished,
    Health,
    Infeasible,
    InProcessBackend,
    Lease,
    Lost,
    Progress,
    Report,
)

ONE = Demand(kind="xpu", count=1)


def two_cards() -> InProcessBackend:
    cards = [Device("xpu", index, "B70", "here") for index in range(2)]
    return InProcessBackend([DeviceReading(card, Health.HEALTHY) for card in cards])


def drain(backend: InProcessBackend, until: int) -> list[Event]:
    """Events until this many tasks have ended."""
    events: list[Event] = []
    while sum(not isinstance(event, Progress) for event in events) < until:
        event = backend.next_event(10)
        assert event is not None
        events.append(event)
    return events


def test_a_task_is_told_its_lease_and_reports_as_it_goes() -> None:
    def task(lease: Lease, report: Report) -> str:
        report({"step": 1})
        return lease.devices[0].id

    with two_cards() as backend:
        ticket = backend.submit(task, devices=ONE)
        events = drain(backend, 1)
    assert [event.ticket for event in events] == [ticket] * 3
    payloads = [event.payload for event in events if isinstance(event, Progress)]
    assert payloads[0]["phase"] == "leased"
    assert payloads[1] == {"step": 1}
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.result == "here/xpu0"


def test_more_tasks_than_devices_wait_for_their_turn() -> None:
    running = 0
    most = 0
    lock = threading.Lock()

    def task(lease: Lease, report: Report) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return lease.id

    with two_cards() as backend:
        for _ in range(6):
            backend.submit(task, devices=ONE)
        assert backend.capacity(ONE).free == 0
        ended = [event for event in drain(backend, 6) if isinstance(event, Finished)]
    assert len({event.ticket for event in ended}) == 6
    assert most <= 2


def test_an_exception_of_a_task_is_a_result_with_a_traceback() -> None:
    def task(lease: Lease, report: Report) -> None:
        raise ZeroDivisionError("here")

    with two_cards() as backend:
        backend.submit(task, devices=ONE)
        last = drain(backend, 1)[-1]
        assert backend.capacity(ONE).free == 2
    assert isinstance(last, Finished)
    assert "ZeroDivisionError: here" in (last.error or "")


def test_a_cancelled_task_ends_at_its_next_report() -> None:
    gate = threading.Event()

    def task(lease: Lease, report: Report) -> None:
        gate.wait(10)
        while True:
            report({})

    with two_cards() as backend:
        ticket = backend.submit(task, devices=ONE)
        backend.cancel(ticket)
        gate.set()
        last = drain(backend, 1)[-1]
    assert isinstance(last, Lost)
    assert last.cancelled


def test_a_task_that_waits_can_be_cancelled_before_it_starts() -> None:
    gate = threading.Event()

    def task(lease: Lease, report: Report) -> Any:
        gate.wait(10)

    with two_cards() as backend:
        backend.submit(task, devices=ONE)
        backend.submit(task, devices=ONE)
        third = backend.submit(task, devices=ONE)
        backend.cancel(third)
        gate.set()
        events = drain(backend, 3)
    lost = [event for event in events if isinstance(event, Lost)]
    assert [event.ticket for event in lost] == [third]


def test_what_can_never_run_is_refused_at_once() -> None:
    with two_cards() as backend, pytest.raises(Infeasible):
        backend.submit(lambda lease, report: None, devices=Demand(kind="xpu", count=3))


def test_a_device_in_quarantine_is_given_to_nobody() -> None:
    with two_cards() as backend:
        backend.quarantine(backend.devices[0], "lost")
        assert backend.capacity(ONE).total == 1
        backend.submit(lambda lease, report: lease.devices[0].id, devices=ONE)
        last = drain(backend, 1)[-1]
    assert isinstance(last, Finished)
    assert last.result == "here/xpu1"
