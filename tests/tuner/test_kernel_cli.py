"""`tuner kernel` parses, calls one function, prints, and says by its exit code how it went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("torch", reason="kernels need the extra `kernels` (torch)")

from tuner.kernel_cli import app


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"OMP_NUM_THREADS": "1", "COLUMNS": "200"})


def test_list_shows_every_op_with_its_rule_and_candidates() -> None:
    rows = json.loads(run("list", "--json").stdout)
    assert {"moe_layerlet", "greedy_top1", "silu_mul_quant_int8"} <= {row["name"] for row in rows}
    assert all(row["exactness"] and row["candidates"] for row in rows)
    assert "bit-exact" in run("list").stdout


def test_check_exits_0_when_all_that_ran_was_exact() -> None:
    result = run("check", "expert_offsets", "--case", "tiny_sparse", "--repeats", "3",
                 "--device", "cpu")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "exact" in result.stdout
    assert "unavailable" in result.stdout


def test_check_exits_1_and_names_the_first_difference_of_an_inexact_candidate(
    tmp_path: Path,
) -> None:
    file = tmp_path / "off_by_one.py"
    file.write_text(
        "from kernels import REGISTRY\n"
        "@REGISTRY['expert_offsets'].candidate()\n"
        "def off_by_one(inputs, outputs, config):\n"
        "    outputs['offsets'].zero_()\n"
        "    outputs['offsets'][1:] = inputs['rows_per_expert'].cumsum(0) + 1\n"
    )
    result = run("check", "expert_offsets", "--candidate", "off_by_one", "--case", "tiny_sparse",
                 "--repeats", "2", "--device", "cpu", "--op-file", str(file), "--json")  # fmt: skip
    assert result.exit_code == 1
    (row,) = json.loads(result.stdout)["rows"]
    assert row["status"] == "inexact"
    assert row["modes"][0]["differences"][0]["first_index"] == [1]


def test_routes_of_a_capture_replace_the_cases(tmp_path: Path) -> None:
    capture = tmp_path / "routes.jsonl"
    capture.write_text('{"topk_ids": [[1, 5]]}\n{"topk_ids": [[0, 255]]}\n')
    result = run("check", "expert_offsets", "--candidate", "torch_cumsum", "--routes", str(capture),
                 "--repeats", "2", "--device", "cpu")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "captured_t1" in result.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "no_such_op"], "no op 'no_such_op'"),
        (["check", "rms_norm", "--case", "none"], "no case 'none'"),
        (["check", "rms_norm", "--config", "{"], "not JSON"),
        (["check", "--torch-op", "a::b"], "name exactly one OP"),
        (["bench", "rms_norm", "--routes", "/no/such/file"], "cannot read"),
        (["tune", "rms_norm", "--case", "r3_h576", "--candidate", "none"], "no candidate 'none'"),
    ],
)
def test_what_does_not_exist_is_one_sentence_and_exit_code_2(words: list[str], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


def test_tune_writes_its_table(tmp_path: Path) -> None:
    result = run("tune", "rms_norm", "--case", "r5_h131", "--candidate", "torch_functional",
                 "--repeats", "3", "--device", "cpu", "--out", str(tmp_path))  # fmt: skip
    assert result.exit_code == 0, result.output
    header = (tmp_path / "rms_norm-r5_h131-torch_functional.jsonl").read_text().splitlines()[0]
    assert json.loads(header)["command"].startswith("tuner kernel tune rms_norm")
