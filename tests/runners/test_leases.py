"""Devices are handed out near each other, once, and never when they are sick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners import Demand, Device, DeviceReading, Health, Infeasible
from runners.leases import LeaseBook
from runners.placement import masks, place


def xpu(host: str, index: int, *, numa: int | None = None, pci: str | None = None) -> Device:
    return Device("xpu", index, "B70", host, numa_node=numa, pci_address=pci)


def fleet(*devices: Device, sick: dict[int, Health] | None = None) -> LeaseBook:
    book = LeaseBook()
    book.join(
        DeviceReading(device, (sick or {}).get(device.index, Health.HEALTHY)) for device in devices
    )
    return book


def two() -> Demand:
    return Demand(kind="xpu", count=2)


def one() -> Demand:
    return Demand(kind="xpu", count=1)


def test_devices_of_one_numa_node_are_preferred() -> None:
    devices = [xpu("a", 0, numa=0), xpu("a", 1, numa=1), xpu("a", 2, numa=0)]
    chosen = place(two(), devices)
    assert chosen is not None
    assert {device.index for device in chosen} == {0, 2}


def test_neighbours_on_the_bus_are_preferred() -> None:
    devices = [
        xpu("a", 0, pci="0000:18:00.0"),
        xpu("a", 1, pci="0000:86:00.0"),
        xpu("a", 2, pci="0000:87:00.0"),
    ]
    chosen = place(two(), devices)
    assert chosen is not None
    assert {device.index for device in chosen} == {1, 2}


def test_small_demands_leave_the_emptier_host_for_large_ones() -> None:
    devices = [xpu("big", i) for i in range(4)] + [xpu("small", 0)]
    chosen = place(one(), devices)
    assert chosen is not None
    assert chosen[0].host == "small"


def test_a_trial_never_spans_hosts() -> None:
    book = fleet(xpu("a", 0), xpu("b", 0))
    with pytest.raises(Infeasible, match="the largest of 2 hosts has 1"):
        book.lease(two())


def test_what_no_host_could_ever_serve_is_said_at_once() -> None:
    with pytest.raises(Infeasible, match="has any"):
        fleet(xpu("a", 0)).lease(Demand(kind="cuda", count=1))


def test_a_busy_fleet_gives_nothing_until_a_lease_comes_back() -> None:
    book = fleet(xpu("a", 0), xpu("a", 1))
    lease = book.lease(two())
    assert lease is not None
    assert book.lease(one()) is None
    assert book.capacity(one()).free == 0
    book.release(lease)
    assert book.lease(one()) is not None


def test_dirty_and_lost_devices_are_put_aside_with_their_reason() -> None:
    book = fleet(xpu("a", 0), xpu("a", 1), sick={0: Health.DIRTY})
    assert book.aside == {"a/xpu0": "dirty"}
    assert book.capacity(one()).total == 1
    book.take_back("a/xpu0")
    assert book.capacity(one()).total == 2


def test_a_host_that_leaves_takes_its_leases_with_it() -> None:
    book = fleet(xpu("a", 0), xpu("b", 0))
    leases = [book.lease(one()), book.lease(one())]
    lost = book.leave("a")
    assert [lease.host for lease in lost] == ["a"]
    assert book.hosts == ("b",)
    for lease in leases:
        assert lease is not None
        book.release(lease)
    assert book.capacity(one()).total == 1


def test_hosts_to_avoid_are_used_only_when_there_is_no_other() -> None:
    book = fleet(xpu("a", 0), xpu("b", 0))
    first = book.lease(one(), frozenset({"a"}))
    assert first is not None
    assert first.host == "b"
    assert book.lease(one(), frozenset({"a"})) is None
    book.leave("b")
    again = book.lease(one(), frozenset({"a"}))
    assert again is not None
    assert again.host == "a"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), unique=True, min_size=1),
    st.integers(1, 3),
)
def test_no_device_is_ever_leased_twice(places: list[tuple[str, int]], count: int) -> None:
    book = fleet(*(xpu(host, index) for host, index in places))
    demand = Demand(kind="xpu", count=count)
    taken: list[str] = []
    try:
        while lease := book.lease(demand):
            taken += [device.id for device in lease.devices]
    except Infeasible:
        return
    assert len(taken) == len(set(taken))
    assert book.capacity(demand).free == 0


def test_masks_hide_every_other_device() -> None:
    assert masks([xpu("a", 2), xpu("a", 3)]) == {
        "ZE_AFFINITY_MASK": "2,3",
        "ONEAPI_DEVICE_SELECTOR": "level_zero:gpu",
    }
    assert masks([Device("cuda", 1, "H200", "a")])["CUDA_VISIBLE_DEVICES"] == "1"
    assert masks([Device("cpu", 0, "CPU", "a")]) == {}
