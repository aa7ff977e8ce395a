"""Hosts, devices and actors die while trials run: no trial is lost, none is counted twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from runners import (
    Demand,
    EngineFailure,
    Event,
    Finished,
    Infeasible,
    Lease,
    Lost,
    Progress,
    RayBackend,
    Report,
    Ticket,
    open_engine,
)
from runners.process import marked
from tests.chaos.fleet import DEVICES, HOSTS, add_host, join
from tests.runners.scripted import eventually, scripted_runner

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ONE = Demand(kind="xpu", count=1)
FOUR = Demand(kind="xpu", count=4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Cluster, dict[str, Any]]]:
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a cluster of one test, on loopback
    made = Cluster(
        initialize_head=True,
        connect=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False},
    )
    nodes = {name: add_host(made, name) for name in HOSTS}
    yield made, nodes
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def fleet(cluster: tuple[Cluster, dict[str, Any]], tmp_path: Path) -> Iterator[RayBackend]:
    with join(cluster[0], str(tmp_path)) as backend:
        assert set(HOSTS) <= set(backend.hosts)
        yield backend


def engine_task(lease: Lease, report: Report) -> str:
    """Starts a real process as a trial does and stays until it is told otherwise."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"fleet-{os.getpid()}-{lease.id}"
    server, _ = open_engine(
        scripted_runner(),
        args={"leave-orphan": True},
        env={},
        lease=lease,
        directory=folder,
        marker="fleet/1/1",
    )
    with server:
        report({"pid": os.getpid(), "engine": server.engine_pid})
        time.sleep(120)
    return "slept"


def quick_task(lease: Lease, report: Report) -> str:
    return lease.host


def until(backend: RayBackend, kind: type[Event], seconds: float = 60.0) -> Any:
    """The next event of this kind."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        event = backend.next_event(1.0)
        if isinstance(event, kind) and not (
            isinstance(event, Progress) and event.payload.get("phase") == "leased"
        ):
            return event
    raise AssertionError(f"no {kind} within {seconds} s")


def test_every_device_of_every_host_is_offered(fleet: RayBackend) -> None:
    assert fleet.capacity(ONE).total == len(HOSTS) * DEVICES
    assert fleet.capacity(FOUR).total == len(HOSTS)


def test_what_no_host_can_serve_is_refused_instead_of_waiting_for_ever(fleet: RayBackend) -> None:
    with pytest.raises(Infeasible, match="has 4"):
        fleet.submit(quick_task, devices=Demand(kind="xpu", count=5))


def test_a_task_runs_on_the_host_of_its_lease(fleet: RayBackend) -> None:
    for _ in range(4):
        fleet.submit(quick_task, devices=FOUR)
    finished = [until(fleet, Finished) for _ in range(4)]
    assert sorted(event.result for event in finished) == sorted(HOSTS)
    assert all(event.result == event.lease.host for event in finished)
    assert eventually(lambda: _turn(fleet) or fleet.capacity(FOUR).free == 4)


def test_an_error_of_a_task_is_told_with_its_traceback(fleet: RayBackend) -> None:
    def broken(lease: Lease, report: Report) -> None:
        raise ZeroDivisionError("in the task")

    fleet.submit(broken, devices=ONE)
    event = until(fleet, Finished)
    assert "ZeroDivisionError: in the task" in event.error


def test_a_killed_trial_actor_is_lost_and_its_engine_ends(fleet: RayBackend) -> None:
    ticket = fleet.submit(engine_task, devices=ONE, marker="fleet/1/1")
    running = until(fleet, Progress)
    os.kill(running.payload["pid"], signal.SIGKILL)
    lost = until(fleet, Lost)
    assert lost.ticket == ticket
    assert not lost.cancelled
    assert eventually(lambda: not marked("fleet"), 15)
    assert eventually(lambda: _turn(fleet) or fleet.capacity(ONE).free == len(HOSTS) * DEVICES)


def test_a_cancelled_trial_says_so_and_its_engine_ends(fleet: RayBackend) -> None:
    ticket = fleet.submit(engine_task, devices=ONE, marker="fleet/1/1")
    until(fleet, Progress)
    fleet.cancel(ticket)
    lost = until(fleet, Lost)
    assert lost.cancelled
    assert eventually(lambda: not marked("fleet"), 15)


def test_a_killed_host_actor_comes_back_and_loses_nothing(fleet: RayBackend) -> None:
    ticket = fleet.submit(engine_task, devices=ONE, marker="fleet/1/1")
    until(fleet, Progress)
    for host in fleet._hosts.values():
        os.kill(ray.get(host.actor.ping.remote()), signal.SIGKILL)
    assert fleet.submit(quick_task, devices=ONE)
    assert until(fleet, Finished).result in HOSTS
    fleet.cancel(ticket)
    assert until(fleet, Lost).cancelled
    assert eventually(lambda: not marked("fleet"), 15)
    assert eventually(lambda: set(HOSTS) <= set(fleet.read_devices()), 30)


def test_a_device_left_dirty_is_put_aside_and_taken_back_when_it_is_clean(
    fleet: RayBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.quarantine.FIRST_CHECK_S", 1.0)

    def spoil(lease: Lease, report: Report) -> None:
        device = lease.devices[0]
        (tmp_path / f"{device.host}-{device.index}").touch()

    fleet.submit(spoil, devices=ONE)
    spoiled = until(fleet, Finished).lease.devices[0]
    assert eventually(lambda: _turn(fleet) or bool(fleet.quarantined), 10)
    (record,) = fleet.quarantined
    assert (record.device_id, record.reason) == (spoiled.id, "memory of the dead")
    assert fleet.capacity(ONE).total == len(HOSTS) * DEVICES - 1
    (tmp_path / f"{spoiled.host}-{spoiled.index}").unlink()
    assert eventually(lambda: _turn(fleet) or not fleet.quarantined, 20)
    assert fleet.capacity(ONE).total == len(HOSTS) * DEVICES


def _turn(backend: RayBackend) -> bool:
    backend.next_event(0.2)
    return False


def test_trials_with_random_faults_are_each_accounted_once(fleet: RayBackend) -> None:
    accounted = run_with_faults(fleet, trials=40, seed=1)
    assert accounted == Counter(range(40))


def test_a_host_that_leaves_loses_its_trials_and_one_that_joins_is_used(
    cluster: tuple[Cluster, dict[str, Any]], fleet: RayBackend
) -> None:
    made, nodes = cluster
    tickets = {fleet.submit(engine_task, devices=FOUR, marker="fleet/1/1"): None for _ in range(4)}
    hosts: dict[Ticket, str] = {}
    ready = 0
    while ready < 4:
        event = fleet.next_event(30)
        assert isinstance(event, Progress)
        if event.payload.get("phase") == "leased":
            hosts[event.ticket] = event.payload["host"]
        else:
            ready += 1
    made.remove_node(nodes.pop("delta"), allow_graceful=False)
    lost = until(fleet, Lost, 60)
    assert hosts[lost.ticket] == "delta"
    assert not lost.cancelled
    assert eventually(lambda: _turn(fleet) or fleet.capacity(FOUR).total == 3, 30)
    nodes["delta"] = add_host(made, "delta")
    assert eventually(lambda: _turn(fleet) or fleet.capacity(FOUR).total == 4, 60)
    for ticket in tickets.keys() - {lost.ticket}:
        fleet.cancel(ticket)
        assert until(fleet, Lost).cancelled
    assert eventually(lambda: not marked("fleet"), 15)


def faulty_task(number: int, fault: str) -> Any:
    def task(lease: Lease, report: Report) -> int:
        report({"number": number})
        if fault == "worker killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "error":
            raise RuntimeError("fault")
        if fault == "engine dies":
            try:
                open_engine(
                    scripted_runner(),
                    args={"die-at": "startup"},
                    env={},
                    lease=lease,
                    directory=Path("/tmp") / f"soak-{os.getpid()}",
                    marker="fleet/soak/1",
                )
            except EngineFailure:
                return number
        return number

    return task


FAULTS = ("none", "none", "none", "worker killed", "error", "engine dies")


def run_with_faults(backend: RayBackend, *, trials: int, seed: int) -> Counter[int]:
    """Runs trials until each has given its result; a lost or failed attempt is begun again."""
    draw = random.Random(seed)
    waiting = list(range(trials))
    running: dict[Ticket, int] = {}
    accounted: Counter[int] = Counter()
    while waiting or running:
        while waiting and backend.capacity(ONE).free:
            number = waiting.pop(0)
            ticket = backend.submit(
                faulty_task(number, draw.choice(FAULTS)), devices=ONE, marker="fleet/soak"
            )
            running[ticket] = number
        event = backend.next_event(5)
        if isinstance(event, Finished):
            number = running.pop(event.ticket)
            if event.error is None:
                accounted[event.result] += 1
            else:
                waiting.append(number)
        elif isinstance(event, Lost):
            waiting.append(running.pop(event.ticket))
    return accounted
