"""A candidate may die, hang or print: it costs its own request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kernels
from kernels import KernelError, KernelWorker, WorkerSettings
from kernels.bundle import build_worker

OP_FILE = """
import os, signal, subprocess, time
from kernels import REGISTRY

offsets = REGISTRY["expert_offsets"]
sound = offsets.candidates["torch_cumsum"].run

@offsets.candidate()
def crashes(inputs, outputs, config):
    os.kill(os.getpid(), signal.SIGSEGV)

@offsets.candidate()
def exits(inputs, outputs, config):
    os._exit(0)

@offsets.candidate()
def hangs_with_a_child_of_its_own_session(inputs, outputs, config):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open(os.environ["CHILD_PID_FILE"], "w") as file:
        file.write(str(child.pid))
    time.sleep(600)

@offsets.candidate()
def raises(inputs, outputs, config):
    raise ValueError("no such tile")

@offsets.candidate()
def prints(inputs, outputs, config):
    print('{"id": 1, "ok": false}')
    sound(inputs, outputs, config)

@offsets.candidate()
def breaks_torch(inputs, outputs, config):
    import torch
    torch.arange = lambda *a, **k: (_ for _ in ()).throw(RuntimeError("device lost"))
    raise RuntimeError("illegal memory access")
"""


@pytest.fixture
def op_file(tmp_path: Path) -> Path:
    path = tmp_path / "unruly.py"
    path.write_text(OP_FILE)
    return path


def test_a_crash_a_hang_and_a_lost_context_each_cost_their_own_row(
    op_file: Path, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    table = kernels.check(
        ["expert_offsets"],
        candidates=[
            "crashes",
            "torch_cumsum",
            "hangs_with_a_child_of_its_own_session",
            "prints",
            "exits",
            "breaks_torch",
            "raises",
        ],
        cases=["tiny_sparse"],
        repeats=3,
        timeout_s=6,
        settings=WorkerSettings(op_files=(str(op_file),), env={"CHILD_PID_FILE": str(pid_file)}),
    )
    assert [(row.candidate, row.status) for row in table.rows] == [
        ("crashes", "crashed"),
        ("torch_cumsum", "exact"),
        ("hangs_with_a_child_of_its_own_session", "hung"),
        ("prints", "exact"),
        ("exits", "crashed"),
        ("breaks_torch", "context_lost"),
        ("raises", "failed"),
    ]
    assert "SIGSEGV" in table.rows[0].reason
    assert "no such tile" in table.rows[-1].reason
    assert not alive(int(pid_file.read_text()))


def alive(pid: int) -> bool:
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def test_the_worker_is_one_file_that_needs_torch_alone(tmp_path: Path) -> None:
    worker = build_worker(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [worker.name]
    requests = [
        {"device": "cpu"},
        {"id": 7, "verb": "check", "op": "rms_norm", "case": "r3_h576",
         "candidate": "torch_steps", "repeats": 2, "seed": 0},
        {"id": 8, "verb": "fly"},
    ]  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-I", str(worker)],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        timeout=120,
        check=True,
    )
    opened, checked, refused = (json.loads(line) for line in answer.stdout.splitlines())
    assert opened["ok"]
    assert (checked["id"], checked["result"]["passed"]) == (7, True)
    assert not refused["ok"]
    assert "'fly'" in refused["error"]


def test_equal_sources_make_equal_worker_files(tmp_path: Path) -> None:
    first = build_worker(tmp_path / "a")
    second = build_worker(tmp_path / "b")
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())


def test_a_python_without_torch_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"did not start|cannot start"):
        kernels.check(["rms_norm"], settings=WorkerSettings(python=str(tmp_path / "none")))


def test_a_faulty_op_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "faulty.py"
    path.write_text("import a_module_that_is_not_there\n")
    with pytest.raises(KernelError, match="a_module_that_is_not_there"):
        kernels.list_ops([str(path)])


def test_what_a_user_s_file_registers_stays_in_the_worker(op_file: Path) -> None:
    (listed,) = [op for op in kernels.list_ops([str(op_file)]) if op.name == "expert_offsets"]
    assert "crashes" in [candidate.name for candidate in listed.candidates]
    kernels.check(
        ["expert_offsets"],
        candidates=["prints"],
        cases=["tiny_sparse"],
        repeats=1,
        settings=WorkerSettings(op_files=(str(op_file),)),
    )
    assert "crashes" not in kernels.REGISTRY["expert_offsets"].candidates


def test_closing_a_worker_leaves_no_process() -> None:
    with KernelWorker(WorkerSettings()) as worker:
        assert worker.ask("describe", timeout_s=60).ok
        process = worker._process
        assert process is not None
        pid = process.pid
    assert not alive(pid)
