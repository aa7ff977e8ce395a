"""The doctor says what a host has, what is wrong with it, and what could run there."""

from __future__ import annotations

from pathlib import Path

from runners import Demand, Runner
from runners.devices.recording import record, recorded
from runners.doctor import examine

DATA = Path(__file__).parent / "data"


def runner(kind: str, count: int = 1) -> Runner:
    return Runner(
        name=f"{kind}-{count}",
        python="/usr/bin/env",
        model="org/model",
        devices=Demand(kind=kind, count=count),  # type: ignore[arg-type]
    )


def test_an_xpu_host_is_examined_from_its_recording() -> None:
    report = examine(
        [runner("xpu"), runner("xpu", 2), runner("xpu", 5), runner("cuda")],
        recording=DATA / "xpu-b70",
    )
    assert report.host == "xpu-b70"
    assert [fit.trials_at_once for fit in report.fits] == [2, 1, 0, 0]
    assert report.fits[2].reason == "this host has 4 xpu devices"
    errors = [problem for problem in report.problems if problem.severity == "error"]
    assert len(errors) == 2
    assert all(problem.fix for problem in report.problems)
    assert report.is_usable


def test_an_nvidia_host_is_examined_from_its_recording() -> None:
    report = examine([runner("cuda")], recording=DATA / "nvidia-h200")
    assert report.fits[0].trials_at_once == 1
    assert report.problems == ()


def test_this_host_can_run_something_on_its_cpu() -> None:
    report = examine([runner("cpu")])
    assert report.is_usable
    assert dict(report.facts)["cores"]


def test_a_missing_engine_is_said_with_what_to_do() -> None:
    missing = runner("cpu").model_copy(update={"python": "/no/such/python"})
    report = examine([missing])
    assert not report.is_usable
    problem = next(p for p in report.problems if "/no/such/python" in p.what)
    assert "make setup" in problem.fix


def test_a_recording_answers_as_the_tools_did(tmp_path: Path) -> None:
    written = record(tmp_path, run=recorded(DATA / "xpu-b70"))
    assert len(written) == 4
    again = examine([runner("xpu")], host="xpu-b70", recording=tmp_path)
    assert again == examine([runner("xpu")], recording=DATA / "xpu-b70")
