"""What sysfs says of a PCI device."""

from __future__ import annotations

from pathlib import Path


def numa_node(sysfs: Path, address: str | None) -> int | None:
    """The node that a card's slot belongs to; None where the kernel knows of only one (-1)."""
    try:
        node = int((sysfs / "bus/pci/devices" / str(address) / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
