"""A user's own torch op as a candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels
from kernels import KernelError, WorkerSettings

LIBRARY = """
import torch

@torch.library.custom_op("users::offsets_out", mutates_args=("offsets",))
def offsets_out(rows_per_expert: torch.Tensor, offsets: torch.Tensor) -> None:
    offsets[0] = 0
    torch.cumsum(rows_per_expert, 0, dtype=torch.int64, out=offsets[1:])
"""


def test_an_op_named_by_its_torch_name_is_checked_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "users_library.py").write_text(LIBRARY)
    loader = tmp_path / "loader.py"
    loader.write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n")
    request = {
        "op": "expert_offsets", "torch_op": "users::offsets_out", "loads": ["users_library"]
    }  # fmt: skip
    table = kernels.check(
        ["expert_offsets"],
        candidates=["users_offsets_out"],
        cases=["tiny_sparse", "dense_small"],
        repeats=5,
        settings=WorkerSettings(op_files=(str(loader),), torch_ops=(request,)),
    )
    assert [row.status for row in table.rows] == ["exact", "exact"]


def test_a_name_that_torch_does_not_know_is_refused_in_a_sentence() -> None:
    request = {"op": "rms_norm", "torch_op": "nobody::nothing"}
    with pytest.raises(KernelError, match="nobody::nothing"):
        kernels.check(["rms_norm"], settings=WorkerSettings(torch_ops=(request,)))
