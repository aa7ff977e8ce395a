"""Devices are read from what tools said, here or elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.device import Health
from runners.devices.cpu import parse_core_list, read_cpus
from runners.devices.nvidia import read_nvidia
from runners.devices.recording import recorded
from runners.devices.xpu import read_xpus

DATA = Path(__file__).parent / "data"
NOWHERE = Path("/nonexistent")


def test_an_xpu_host_tells_idle_held_hot_and_lost_cards_apart() -> None:
    cards = read_xpus("box", run=recorded(DATA / "xpu-b70"), sysfs=NOWHERE)
    assert [card.health for card in cards] == [
        Health.HEALTHY,
        Health.DIRTY,
        Health.THROTTLED,
        Health.LOST,
    ]
    assert cards[0].device.id == "box/xpu0"
    assert cards[0].device.memory_bytes == 32656 * 1024**2
    assert cards[0].device.pci_address == "0000:18:00.0"
    assert cards[0].processes == ()  # xpu-smi lists itself
    assert cards[1].processes == (4711,)
    assert "4711" in cards[1].problem
    assert "kill 4711" in cards[1].fix
    assert cards[2].temperature_c == 88
    assert "reset" in cards[3].fix.lower()


def test_a_card_knows_its_numa_node(tmp_path: Path) -> None:
    slot = tmp_path / "bus/pci/devices/0000:86:00.0"
    slot.mkdir(parents=True)
    (slot / "numa_node").write_text("1\n")
    cards = read_xpus("box", run=recorded(DATA / "xpu-b70"), sysfs=tmp_path)
    assert [card.device.numa_node for card in cards] == [None, None, 1, None]


def test_without_the_tool_an_intel_gpu_is_seen_and_of_unknown_health(tmp_path: Path) -> None:
    slot = tmp_path / "devices/0000:18:00.0"
    slot.mkdir(parents=True)
    (slot / "vendor").write_text("0x8086\n")
    (slot / "device").write_text("0xe223\n")
    (slot / "numa_node").write_text("0\n")
    node = tmp_path / "class/drm/renderD128"
    node.mkdir(parents=True)
    (node / "device").symlink_to(slot)
    (card,) = read_xpus("box", run=lambda _: None, sysfs=tmp_path)
    assert card.health is Health.UNKNOWN
    assert "xpu-smi" in card.fix


def test_a_recorded_h200_is_healthy() -> None:
    (card,) = read_nvidia("box", run=recorded(DATA / "nvidia-h200"), sysfs=NOWHERE)
    assert card.device.name == "NVIDIA H200"
    assert card.health is Health.HEALTHY
    assert card.device.memory_bytes == 143771 * 1024**2
    assert card.device.pci_address == "0000:00:06.0"
    assert card.driver == "580.159.04"
    assert card.throttled is False


H200 = (
    "0, NVIDIA H200, GPU-1, 00000000:3B:00.0, 580.159.04, 143771, {used}, 616, 0, 35, 101.06, "
    "{reasons}, {ecc}"
)


@pytest.mark.parametrize(
    ("used", "reasons", "ecc", "apps", "health", "says"),
    [
        (0, "0x1", 0, "", Health.HEALTHY, ""),
        (0, "0x4", 0, "", Health.HEALTHY, ""),
        (90000, "0x1", 0, "GPU-1, 77, 90000", Health.DIRTY, "process 77"),
        (90000, "0x1", 0, "", Health.DIRTY, "no process is listed"),
        (0, "0x40", 0, "", Health.THROTTLED, "hardware thermal slowdown"),
        (0, "0x1", 3, "", Health.LOST, "3 uncorrected"),
        ("[GPU is lost]", "[GPU is lost]", "[GPU is lost]", "", Health.LOST, "GPU is lost"),
        ("[N/A]", "[N/A]", "[N/A]", "", Health.HEALTHY, ""),
    ],
)
def test_an_nvidia_card_is_judged(
    used: object, reasons: str, ecc: object, apps: str, health: Health, says: str
) -> None:
    def run(command: object) -> str:
        return (
            apps
            if "compute-apps" in str(command)
            else H200.format(used=used, reasons=reasons, ecc=ecc)
        )

    (card,) = read_nvidia("box", run=run, sysfs=NOWHERE)
    assert card.health is health
    assert says in card.problem
    assert bool(card.fix) == bool(card.problem)


def test_a_host_without_tools_has_no_cards() -> None:
    assert read_nvidia("box", run=lambda _: None) == []
    assert read_xpus("box", run=lambda _: None, sysfs=NOWHERE) == []


def node(sysfs: Path, number: int, cores: str) -> None:
    folder = sysfs / f"devices/system/node/node{number}"
    folder.mkdir(parents=True)
    (folder / "cpulist").write_text(cores + "\n")
    (folder / "meminfo").write_text(
        f"Node {number} MemTotal:  1000 kB\nNode {number} MemFree:  600 kB\n"
        f"Node {number} FilePages:  100 kB\n"
    )


def test_each_numa_node_is_a_cpu_device_with_the_cores_we_may_use(tmp_path: Path) -> None:
    node(tmp_path, 0, "0-3,8-11")
    node(tmp_path, 1, "4-7")
    node(tmp_path, 2, "")
    readings = read_cpus("box", sysfs=tmp_path, proc=NOWHERE, allowed=frozenset(range(6)))
    assert [reading.device.cores for reading in readings] == [(0, 1, 2, 3), (4, 5)]
    assert readings[0].memory_used_bytes == 300 * 1024


def test_a_throttled_cpu_is_said_to_be(tmp_path: Path) -> None:
    node(tmp_path, 0, "0")
    folder = tmp_path / "devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_max_freq").write_text("800000")
    (folder / "cpuinfo_max_freq").write_text("3500000")
    (reading,) = read_cpus("box", sysfs=tmp_path, proc=NOWHERE, allowed=frozenset({0}))
    assert reading.health is Health.THROTTLED


def test_this_machine_has_a_cpu() -> None:
    assert read_cpus("here")[0].device.cores


@pytest.mark.parametrize(
    ("text", "cores"), [("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("\n", ()), ("0-1\n", (0, 1))]
)
def test_core_lists_are_read(text: str, cores: tuple[int, ...]) -> None:
    assert parse_core_list(text) == cores
