"""The two kinds of Ray actors: one per host that knows its devices, one per trial that runs it."""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from runners.backend import Report, Task
from runners.device import DeviceReading, Lease
from runners.process import Swept, sweep

Inventory = Callable[[str], list[DeviceReading]]


@dataclass(frozen=True)
class Message:
    """What a trial actor sends: a task's message, its result, or the traceback of its error."""

    kind: str
    content: Any


class HostActor:
    """Pinned to one node. Reads its devices and ends what dead attempts left there."""

    def __init__(self, host: str, inventory: Inventory) -> None:
        self._host = host
        self._inventory = inventory

    def read(self) -> list[DeviceReading]:
        """What every device of the host says now."""
        return self._inventory(self._host)

    def sweep(self, marker: str) -> list[Swept]:
        """Ends every process of this host under the marker."""
        return sweep(marker)

    def ping(self) -> int:
        """The heartbeat: its pid."""
        return os.getpid()


class TrialActor:
    """Runs one task on one lease and streams what it says.

    The task runs in a thread, so that its messages can be handed out while it runs. When the actor
    dies, the supervisors of its engines notice and end them.
    """

    def run(self, task: Task, lease: Lease) -> Iterator[Message]:
        """Yields each message of the task as it comes, then its result or its error."""
        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

        def report(payload: dict[str, Any]) -> None:
            messages.put(Message("progress", payload))

        thread = threading.Thread(
            target=_run, args=(task, lease, report, messages.put), daemon=True, name="task"
        )
        thread.start()
        while True:
            message = messages.get()
            yield message
            if message.kind != "progress":
                return


def _run(task: Task, lease: Lease, report: Report, say: Callable[[Message], None]) -> None:
    try:
        result = task(lease, report)
    except Exception:  # noqa: BLE001 - whatever a task raises is reported, never lost
        say(Message("error", traceback.format_exc()))
    else:
        say(Message("result", result))
