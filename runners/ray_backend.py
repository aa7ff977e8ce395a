"""Trials on a Ray cluster, of one machine or of two hundred."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from runners.backend import Event, Finished, Lost, Progress, Ticket
from runners.device import Demand, Device, DeviceReading, Health, Lease
from runners.devices import inventory
from runners.dispatch import Waiting
from runners.in_process import leased
from runners.leasing import LeasingBackend
from runners.quarantine import Quarantined, after_check, is_due, quarantine
from runners.ray_actors import HostActor, Inventory, Message, TrialActor
from runners.ray_local import Connection

LOOK_S = 2.0
"""Between two looks at which nodes the cluster has."""
JOIN_S = 120.0
SWEEP_S = 30.0

NodeName = Callable[[dict[str, Any]], str]


@dataclass
class _Host:
    name: str
    node_id: str
    actor: Any
    reading: Any | None
    asked_at: float


@dataclass
class _Attempt:
    waiting: Waiting
    lease: Lease
    actor: Any
    stream: Any


class RayBackend(LeasingBackend):
    """One host actor per node, pinned to it; one trial actor per lease, on the lease's node.

    `address` None starts a local Ray and `close` stops it. Nodes may join and leave at any time.
    Hosts are named by the node's host name, made unique where two nodes share one.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        inventory: Inventory = inventory,
        node_name: NodeName | None = None,
        ready_s: float = JOIN_S,
    ) -> None:
        self._connection = Connection(address)
        self._inventory = inventory
        self._node_name = node_name or _host_name
        super().__init__()
        self._hosts: dict[str, _Host] = {}  # by node id
        self._attempts: dict[Ticket, _Attempt] = {}
        self._cancelled: set[Ticket] = set()
        self._events: collections.deque[Event] = collections.deque()
        self._quarantined: dict[str, Quarantined] = {}
        self._checks: dict[str, Any] = {}
        self._settling: dict[Any, Lease] = {}
        self._idle: dict[str, list[Any]] = {}  # trial actors by node id, ready for the next task
        self._looked = 0.0
        self._wait_for_hosts(ready_s)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that are part of the fleet now."""
        return self._book.hosts

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Every device that is given to nobody, with the reason."""
        return tuple(self._quarantined.values())

    def next_event(self, timeout_s: float) -> Event | None:
        """See `Backend`."""
        until = time.monotonic() + timeout_s
        while True:
            self._look_at_nodes()
            self._look_at_quarantine()
            self._look_at_settling()
            self._start_what_can_start()
            if self._events:
                return self._events.popleft()
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            self._collect(min(left_s, LOOK_S))

    def cancel(self, ticket: Ticket) -> None:
        """See `Backend`. The trial's actor is killed, and its engines end with it."""
        if self._dispatch.withdraw(ticket):
            self._events.append(Lost(ticket, "cancelled before it started", None, cancelled=True))
        elif ticket in self._attempts:
            self._cancelled.add(ticket)
            ray.kill(self._attempts[ticket].actor)

    def sweep(self, marker: str) -> list[tuple[str, Any]]:
        """Ends what dead attempts under this marker left on any host: `(host, Swept)` each."""
        asked = {host.actor.sweep.remote(marker): host.name for host in self._hosts.values()}
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=SWEEP_S)
        found = []
        for ref in done:
            with contextlib.suppress(ray.exceptions.RayError):
                found += [(asked[ref], process) for process in ray.get(ref)]
        return found

    def read_devices(self, timeout_s: float = 30.0) -> dict[str, list[DeviceReading]]:
        """What every device of every host says now; a host that does not answer is left out."""
        asked = {host.actor.read.remote(): host.name for host in self._hosts.values()}
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s)
        readings = {}
        for ref in done:
            with contextlib.suppress(ray.exceptions.RayError):
                readings[asked[ref]] = ray.get(ref)
        return readings

    def quarantine(self, device: Device, reason: str) -> None:
        """See `Backend`."""
        self._book.put_aside(device.id, reason)
        self._quarantined[device.id] = quarantine(device.id, reason, time.monotonic())

    def stranded(self, devices: Demand) -> str | None:
        """See `Backend`. A device in quarantine may come back until its checks are given up."""
        if self._attempts or self._book.capacity(devices).total:
            return None
        if any(not record.given_up for record in self._quarantined.values()):
            return None
        return self._book.why_none()

    def close(self) -> None:
        """Kills every trial, waits until its engines are gone, and stops a Ray that is ours."""
        if not ray.is_initialized():
            return
        for attempt in self._attempts.values():
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(attempt.actor)
        for attempt in list(self._attempts.values()):
            self._prove_gone(attempt)
        self._attempts.clear()
        hosts = [host.actor for host in self._hosts.values()]
        for actor in [*hosts, *(actor for idle in self._idle.values() for actor in idle)]:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor)
        self._hosts.clear()
        self._idle.clear()
        self._connection.close()

    # --- hosts ---

    def _wait_for_hosts(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._looked = 0.0
            self._look_at_nodes()
            if self._hosts and all(host.reading is None for host in self._hosts.values()):
                return
            time.sleep(0.05)

    def _look_at_nodes(self) -> None:
        """Takes in nodes that joined, their first readings, and nodes that left."""
        self._hear_from_hosts()
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        alive = {node["NodeID"]: node for node in _nodes() if node["Alive"]}
        for node_id in alive.keys() - self._hosts.keys():
            self._invite(node_id, alive[node_id])
        for node_id in self._hosts.keys() - alive.keys():
            self._drop(node_id, "its node left the cluster")

    def _invite(self, node_id: str, node: dict[str, Any]) -> None:
        name = self._node_name(node)
        if name in {host.name for host in self._hosts.values()}:
            name = f"{name}-{node_id[:6]}"
        actor = (
            ray.remote(HostActor)
            .options(
                num_cpus=0, max_restarts=-1, max_task_retries=0, scheduling_strategy=_on(node_id)
            )
            .remote(name, self._inventory)
        )
        reading = _call(actor).read.remote()
        self._hosts[node_id] = _Host(name, node_id, actor, reading, time.monotonic())

    def _hear_from_hosts(self) -> None:
        for host in list(self._hosts.values()):
            if host.reading is None:
                continue
            done, _ = ray.wait([host.reading], timeout=0)
            if done:
                try:
                    self._take_in(ray.get(host.reading))
                except ray.exceptions.RayError as error:
                    self._drop(host.node_id, f"its devices cannot be read: {error}")
                else:
                    host.reading = None
            elif time.monotonic() - host.asked_at > JOIN_S:
                self._drop(host.node_id, f"it did not answer within {JOIN_S:g} s")

    def _take_in(self, readings: list[DeviceReading]) -> None:
        self._book.join(readings)
        for reading in readings:
            if reading.device.id in self._book.aside:
                self.quarantine(reading.device, reading.problem)

    def _drop(self, node_id: str, reason: str) -> None:
        host = self._hosts.pop(node_id)
        self._idle.pop(node_id, None)
        self._book.leave(host.name)
        for ticket, attempt in list(self._attempts.items()):
            if attempt.lease.host == host.name:
                self._lose(ticket, f"host {host.name} is gone: {reason}")
        for waiting, why in self._dispatch.hopeless():
            self._events.append(Lost(waiting.ticket, why, None))
        for device_id in [d for d in self._quarantined if d.startswith(host.name + "/")]:
            del self._quarantined[device_id]

    # --- trials ---

    def _start_what_can_start(self) -> None:
        for waiting, lease in self._dispatch.assign():
            host = self._host_named(lease.host)
            if host is None:
                self._book.release(lease)
                continue
            actor = self._trial_actor(host.node_id)
            stream = _call(actor).run.options(num_returns="streaming").remote(waiting.task, lease)
            self._attempts[waiting.ticket] = _Attempt(waiting, lease, actor, stream)
            self._events.append(Progress(waiting.ticket, leased(lease)))

    def _trial_actor(self, node_id: str) -> Any:
        """One that is idle on the node, else a new one, which first has to import for seconds."""
        idle = self._idle.get(node_id)
        if idle:
            return idle.pop()
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": _on(node_id)}
        return ray.remote(TrialActor).options(**options).remote()

    def _collect(self, timeout_s: float) -> None:
        """Waits for a message from any trial and turns what has come into events."""
        by_stream = {attempt.stream: ticket for ticket, attempt in self._attempts.items()}
        waiting_for = [*by_stream, *self._checks.values(), *self._settling]
        waiting_for += [host.reading for host in self._hosts.values() if host.reading is not None]
        if not waiting_for:
            time.sleep(min(timeout_s, 0.05))
            return
        ready, _ = ray.wait(waiting_for, num_returns=1, timeout=timeout_s)
        for stream in ready:
            if stream in by_stream:
                self._hear(by_stream[stream])

    def _hear(self, ticket: Ticket) -> None:
        attempt = self._attempts[ticket]
        try:
            message: Message = ray.get(next(attempt.stream))
        except StopIteration:
            self._lose(ticket, "its actor ended without a result")
            return
        except ray.exceptions.RayError as error:
            self._lose(ticket, _why(error))
            return
        if message.kind == "progress":
            self._events.append(Progress(ticket, message.content))
            return
        del self._attempts[ticket]
        is_error = message.kind == "error"
        host = self._host_named(attempt.lease.host)
        if is_error or host is None:
            ray.kill(attempt.actor)  # what it has left behind in its process is unknown
        else:
            self._idle.setdefault(host.node_id, []).append(attempt.actor)
        self._give_back(attempt.lease)
        self._events.append(
            Finished(
                ticket,
                None if is_error else message.content,
                attempt.lease,
                message.content if is_error else None,
            )
        )

    def _lose(self, ticket: Ticket, reason: str) -> None:
        attempt = self._attempts.pop(ticket)
        was_cancelled = ticket in self._cancelled
        self._cancelled.discard(ticket)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(attempt.actor)
        self._prove_gone(attempt)
        self._give_back(attempt.lease)
        why = "cancelled" if was_cancelled else reason
        self._events.append(Lost(ticket, why, attempt.lease.host, cancelled=was_cancelled))

    def _prove_gone(self, attempt: _Attempt) -> None:
        """Has the host end what is left of the attempt, before its devices are given to another."""
        host = self._host_named(attempt.lease.host)
        if host is None or not attempt.waiting.marker:
            return
        try:
            left = ray.get(host.actor.sweep.remote(attempt.waiting.marker), timeout=SWEEP_S)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            return
        if any(not process.gone for process in left):
            for device in attempt.lease.devices:
                self.quarantine(device, "processes of a dead attempt cannot be ended")

    def _give_back(self, lease: Lease) -> None:
        """Frees devices once their host has seen that they are clean; a CPU always is."""
        host = self._host_named(lease.host)
        if lease.kind == "cpu" or host is None:
            self._book.release(lease)
        else:
            self._settling[host.actor.read.remote()] = lease

    def _look_at_settling(self) -> None:
        if not self._settling:
            return
        done, _ = ray.wait(list(self._settling), num_returns=len(self._settling), timeout=0)
        for ref in done:
            lease = self._settling.pop(ref)
            ours = {device.id for device in lease.devices}
            with contextlib.suppress(ray.exceptions.RayError):
                for reading in ray.get(ref):
                    if reading.device.id in ours and reading.health in (Health.LOST, Health.DIRTY):
                        self.quarantine(reading.device, reading.problem)
            self._book.release(lease)

    def _host_named(self, name: str) -> _Host | None:
        return next((host for host in self._hosts.values() if host.name == name), None)

    # --- quarantine ---

    def _look_at_quarantine(self) -> None:
        now = time.monotonic()
        for device_id, record in list(self._quarantined.items()):
            host = self._host_named(device_id.rpartition("/")[0])
            if host is None:
                continue
            if device_id not in self._checks:
                if is_due(record, now):
                    self._checks[device_id] = host.actor.read.remote()
                continue
            done, _ = ray.wait([self._checks[device_id]], timeout=0)
            if done:
                self._after_check(record, self._checks.pop(device_id), now)

    def _after_check(self, record: Quarantined, answer: Any, now: float) -> None:
        healthy, problem = False, "its host does not answer"
        with contextlib.suppress(ray.exceptions.RayError):
            for reading in ray.get(answer):
                if reading.device.id == record.device_id:
                    healthy, problem = reading.health is Health.HEALTHY, reading.problem
        following = after_check(record, healthy, problem, now)
        if following is None:
            del self._quarantined[record.device_id]
            self._book.take_back(record.device_id)
        else:
            self._quarantined[record.device_id] = following


def _nodes() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's is untyped
    return nodes


def _call(actor: Any) -> Any:
    """The actor's handle; Ray's own types show the methods as they are inside the actor."""
    return actor


def _on(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _host_name(node: dict[str, Any]) -> str:
    name = str(node.get("NodeManagerHostname") or node["NodeID"][:12])
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _why(error: Exception) -> str:
    """The line of Ray's message that says it: the last one of a traceback, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if isinstance(error, ray.exceptions.RayTaskError) else lines[0]
