"""A Ray of our own on this machine: small, without a dashboard, gone when we are."""

from __future__ import annotations

import logging
import os
import secrets
from typing import Any

import ray

OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""What passes through Ray is small: tasks, messages and results. Engines are not Ray's."""

_QUIET = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # We set the masks ourselves, per lease and in the engine's environment only.
    "RAY_EXPERIMENTAL_NOSET_ZE_AFFINITY_MASK": "1",
    "RAY_EXPERIMENTAL_NOSET_ONEAPI_DEVICE_SELECTOR": "1",
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
}


def connect(address: str | None = None) -> bool:
    """Joins the cluster at `address`, or starts a local Ray; returns whether it is ours to stop.

    A local Ray gets a token of its own, so that nobody else on this machine can use it. Its
    processes ask the kernel to be ended with this one, and so they end even if this one is killed.

    Raises:
        ConnectionError: no cluster answers at the address.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if ray.is_initialized():
        return False
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is not None:
        ray.init(address=address, **settings)
        return False
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        # The mode stays unset: Ray read it when it was imported, and turns it on itself here.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray.init(
        address="local",
        num_cpus=1,  # Ray starts as many idle workers; our actors ask for none
        num_gpus=0,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        **settings,
    )
    return True
