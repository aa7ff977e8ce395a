"""Four fake hosts with four fake devices each, on Ray's in-process cluster."""

from __future__ import annotations

from typing import Any

from ray.cluster_utils import Cluster

from runners import Device, DeviceReading, Health, RayBackend

HOSTS = ("alpha", "beta", "gamma", "delta")
DEVICES = 4


class FakeHosts:
    """The inventory of a fake host: four XPUs, of which some may be said to be sick.

    The sick ones are named by files in a folder, so that every process sees the same.
    """

    def __init__(self, sick_folder: str) -> None:
        self.sick_folder = sick_folder

    def __call__(self, host: str) -> list[DeviceReading]:
        from pathlib import Path

        if host not in HOSTS:
            return []
        readings = []
        for index in range(DEVICES):
            device = Device("xpu", index, "fake", host, memory_bytes=1 << 30, numa_node=index // 2)
            is_sick = (Path(self.sick_folder) / f"{host}-{index}").exists()
            readings.append(
                DeviceReading(
                    device,
                    Health.DIRTY if is_sick else Health.HEALTHY,
                    problem="memory of the dead" if is_sick else "",
                )
            )
        return readings


def host_of(node: dict[str, Any]) -> str:
    """A fake host's name is a resource of its node; the cluster's head is no host of ours."""
    return next((name for name in HOSTS if name in node["Resources"]), "head")


def add_host(cluster: Cluster, name: str) -> Any:
    return cluster.add_node(num_cpus=1, resources={name: 1}, wait=True)


def join(cluster: Cluster, sick_folder: str) -> RayBackend:
    """A backend on the cluster that this process is already connected to."""
    return RayBackend(inventory=FakeHosts(sick_folder), node_name=host_of)
