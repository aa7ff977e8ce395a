"""Measuring the ground: engine, model and devices as they are now, before anything is drawn."""

from __future__ import annotations

from typing import Any

from runners import Device, Runner, engine_identity
from tuner.candidate import Ground


def measure_ground(runner: Runner, devices: tuple[Device, ...]) -> Ground:
    """What every identity of a study shares, read from the engine, the model's files and devices.

    Raises EngineFailure, blamed on the user, when the engine's Python or the model is missing.
    """
    facts = engine_identity(runner)
    topology: dict[str, Any] = {
        "kind": runner.devices.kind,
        "count": runner.devices.count,
        "devices": sorted({device.name for device in devices}),
    }
    return Ground(engine=facts["engine"], model=facts["model"], topology=topology)
