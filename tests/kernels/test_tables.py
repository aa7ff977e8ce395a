"""The recorded tables are data with an identity, and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import DeviceLimits, legal_configs, read_table

TABLES = Path(__file__).resolve().parents[2] / "benchmarks" / "search" / "tables"
EXHAUSTIVE = TABLES / "h200-grouped-gemm-w8a8-decode-tp4-t1-gemm1-triton-grouped.jsonl"


@pytest.mark.parametrize("path", sorted(TABLES.glob("h200-*.jsonl")), ids=lambda p: p.stem)
def test_a_table_says_where_and_how_it_was_measured(path: Path) -> None:
    header = read_table(path).header
    assert header["identity"]["device"] == "NVIDIA H200"
    assert all(header["identity"][name] for name in ("driver", "torch", "triton", "python"))
    assert header["date"]
    assert "measure.py tune" in header["command"]


def test_the_exhaustive_table_holds_every_legal_configuration_with_rate_and_exactness() -> None:
    table = read_table(EXHAUSTIVE)
    limits = DeviceLimits.from_json(table.header["limits"])
    legal = legal_configs("grouped_gemm_w8a8", "decode_tp4_t1_gemm1", "triton_grouped", limits)
    assert len(legal) >= 1000
    recorded = {tuple(sorted(row.config.items())) for row in table.rows}
    assert recorded == {tuple(sorted(config.items())) for config in legal}
    assert all(row.us is not None for row in table.rows if row.status == "exact")
