"""A runner whose engine is the scripted server, and a lease to run it on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runners import Device, Lease, Runner, Timeouts

SERVER = Path(__file__).parents[1] / "engines" / "scripted_server.py"
CPU = Device(kind="cpu", index=0, name="CPU", host="here")
LEASE = Lease(devices=(CPU,), host="here", id="lease-1")


def scripted_runner(**fields: Any) -> Runner:
    timeouts = fields.pop("timeouts", {})
    return Runner(
        name="scripted",
        engine="command",
        python=sys.executable,
        model="scripted",
        command=("{python}", str(SERVER), "--model", "{model}", "--port", "{port}", "{args}"),
        timeouts=Timeouts(
            **{
                "launch_s": 20,
                "ready_s": 20,
                "first_token_s": 20,
                "request_s": 20,
                "stall_s": 20,
                "teardown_s": 5,
                **timeouts,
            }
        ),
        **fields,
    )


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether the condition comes true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
