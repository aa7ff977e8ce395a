"""A time stands beside the separate steps, the floor and the device's own ceilings."""

from __future__ import annotations

import pytest

import kernels
from kernels.median import summarise


def test_a_bench_row_carries_its_floor_share_and_speedup() -> None:
    table = kernels.bench(
        ["silu_mul_quant_int8"], candidates=["torch_steps"], cases=["r8_i128_normal"], samples=20
    )
    (row,) = table.rows
    assert row.status == "exact"
    assert row.best_us is not None
    assert row.floor_us is not None
    assert row.share == pytest.approx(row.floor_us / row.best_us)
    assert row.speedup == 1.0
    assert row.timing is not None
    assert row.timing["bytes_per_s"] == pytest.approx(row.timing["bytes"] / row.best_us * 1e6)
    assert table.ceilings.bytes_per_s >= table.ceilings.copy_bytes_per_s > 0


def test_the_interval_of_the_median_is_the_binomial_one() -> None:
    # For 10 samples the 2nd and 9th smallest cover the median with 97.9 %, the 3rd and 8th with
    # 89.1 % (tables of the sign test).
    spread = summarise([float(number) for number in range(1, 11)])
    assert (spread.median_us, spread.low_us, spread.high_us) == (5.5, 2.0, 9.0)


def test_too_few_samples_for_an_interval_give_the_whole_range() -> None:
    assert summarise([3.0, 1.0]).low_us == 1.0
    assert summarise([3.0, 1.0]).high_us == 3.0
