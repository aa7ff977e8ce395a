"""Where it runs: engines, processes, devices and hosts."""

from runners.backend import (
    Backend,
    Cancelled,
    Event,
    Finished,
    Lost,
    Progress,
    Report,
    Task,
    Ticket,
)
from runners.device import Demand, Device, DeviceKind, DeviceReading, Health, Lease
from runners.diagnosis import Ending, diagnose
from runners.engine_identity import engine_identity
from runners.failure import Blame, EngineFailure, Failure, Phase
from runners.in_process import InProcessBackend
from runners.launch import Launch, LaunchRefused, plan_launch
from runners.leases import Capacity, Infeasible
from runners.port import PortHold, is_free
from runners.process import Swept, sweep
from runners.quarantine import FailedAttempt, Resolution, resolve
from runners.ray_backend import RayBackend
from runners.read_back import ReadBack
from runners.readiness import Readiness
from runners.redaction import is_secret, plain, redact_env, redact_text
from runners.rendering import render_args
from runners.runner import CATALOG, Runner, Timeouts
from runners.server import EngineServer, Teardown, open_engine

__all__ = [
    "CATALOG",
    "Backend",
    "Blame",
    "Cancelled",
    "Capacity",
    "Demand",
    "Device",
    "DeviceKind",
    "DeviceReading",
    "Ending",
    "EngineFailure",
    "EngineServer",
    "Event",
    "FailedAttempt",
    "Failure",
    "Finished",
    "Health",
    "InProcessBackend",
    "Infeasible",
    "Launch",
    "LaunchRefused",
    "Lease",
    "Lost",
    "Phase",
    "PortHold",
    "Progress",
    "RayBackend",
    "ReadBack",
    "Readiness",
    "Report",
    "Resolution",
    "Runner",
    "Swept",
    "Task",
    "Teardown",
    "Ticket",
    "Timeouts",
    "diagnose",
    "engine_identity",
    "is_free",
    "is_secret",
    "open_engine",
    "plain",
    "plan_launch",
    "redact_env",
    "redact_text",
    "render_args",
    "resolve",
    "sweep",
]
