"""A Ray of our own on this machine: small, without a dashboard, gone when we are."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray

OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""What passes through Ray is small: tasks, messages and results. Engines are not Ray's."""

OWNED = "TUNER_RAY"
"""A variable in the environment of every process of a local Ray, by which its warden finds them."""

_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers run at niceness 15, and what they start inherits it: an engine would be measured
    # as slower than it is served whenever anything else wants the processor.
    "RAY_worker_niceness": "0",
    # Under memory pressure Ray would kill our small actors; it is the engines that are large, and
    # the kernel knows which.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # We set the masks ourselves, per lease and in the engine's environment only.
    "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK": "1",
    "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR": "1",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
    # Ray names its processes, which overwrites their environment in /proc unless this is set.
    "SPT_NOENV": "1",
}


class Connection:
    """Our tie to a Ray: joined at an address, or a local one that is started and stopped by us.

    A local Ray gets a token of its own, so that nobody else on this machine can use it, and a
    warden that ends it when this process dies.

    Raises:
        ConnectionError: no cluster answers at the address.
    """

    def __init__(self, address: str | None = None) -> None:
        self._warden: subprocess.Popen[bytes] | None = None
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        self.is_ours = address is None and not ray.is_initialized()
        if ray.is_initialized():
            return
        settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is not None:
            ray.init(address=address, **settings)
            return
        if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
            # The mode stays unset: Ray read it when it was imported, and turns it on itself here.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ[OWNED] = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._warden = _start_warden(f"{OWNED}={os.environ[OWNED]}")
        try:
            ray.init(
                address="local",
                num_cpus=1,  # Ray starts as many idle workers; our actors ask for none
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **settings,
            )
        finally:
            del os.environ[OWNED]  # what we start besides Ray is not the warden's

    def close(self) -> None:
        """Stops a Ray that is ours; again is no error."""
        if self.is_ours and ray.is_initialized():
            ray.shutdown()
        if self._warden is not None and self._warden.stdin is not None:
            self._warden.stdin.close()
            self._warden = None


def _start_warden(variable: str) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("ray_warden.py")
    warden = subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), variable],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    warden.wait()  # the first fork; what it started is nobody's child
    return warden
