"""Readers of what a host's devices say about themselves, one file per kind."""

from runners.devices.cpu import read_cpus
from runners.devices.inventory import host_name, inventory

__all__ = ["host_name", "inventory", "read_cpus"]
