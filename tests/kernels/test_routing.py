"""Routes: patterns, and captures read from JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import kernels
from kernels import KernelError, MoeShape, captured_cases
from kernels.routing import draw_routes, moe_case, offsets_of

SHAPE = MoeShape(experts=8, hidden=64, intermediate=32, top_k=2)


def generator(seed: int = 1) -> torch.Generator:
    made = torch.Generator()
    made.manual_seed(seed)
    return made


def test_patterns_route_as_their_names_say() -> None:
    uniform = draw_routes(moe_case("u", SHAPE, 16, "uniform"), generator(), "cpu")
    assert uniform.shape == (16, 2)
    assert uniform.max() < 8
    assert all(len(set(row)) == 2 for row in uniform.tolist())
    hot = draw_routes(moe_case("h", SHAPE, 16, "one_hot"), generator(), "cpu")
    assert len(set(hot.flatten().tolist())) == 1
    dense = draw_routes(moe_case("d", SHAPE, 16, "dense"), generator(), "cpu")
    assert set(dense.flatten().tolist()) == set(range(8))
    sparse = draw_routes(moe_case("s", SHAPE, 16, "sparse"), generator(), "cpu")
    assert len(set(sparse.flatten().tolist())) < len(set(uniform.flatten().tolist()))


def test_offsets_end_with_the_number_of_rows() -> None:
    routes = torch.tensor([[1, 3], [3, 1]], dtype=torch.int32)
    assert offsets_of(routes, 4).tolist() == [0, 0, 2, 2, 4]


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_capture_becomes_cases_that_check_for_real(tmp_path: Path) -> None:
    path = write(
        tmp_path / "routes.jsonl",
        {"layer": "model.layers.0", "topk_ids": [[1, 5]]},
        {"layer": "model.layers.0", "topk_ids": [[0, 7]]},
        {"layer": "model.layers.1", "topk_ids": [[2, 3], [3, 4]]},
    )
    cases = captured_cases(path, SHAPE)
    assert [(case.name, len(case["routes"])) for case in cases] == [
        ("captured_t1", 2),
        ("captured_t2", 1),
    ]
    assert len(captured_cases(path, SHAPE, layer="layers.1")) == 1
    table = kernels.check(["moe_layerlet"], candidates=["torch_steps"], cases=cases, repeats=3)
    assert [row.status for row in table.rows] == ["exact", "exact"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1"),
        ('{"layer": "x"}', "topk_ids"),
        ('{"topk_ids": [[1, 2], [3]]}', "equally many"),
        ('{"topk_ids": [[1, 8]]}', "does not fit"),
    ],
)
def test_a_line_that_is_no_route_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "routes.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(KernelError, match=says):
        captured_cases(path, SHAPE)


def test_an_empty_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="no routes"):
        captured_cases(write(tmp_path / "empty.jsonl"), SHAPE)
