"""A driver that is interrupted or killed leaves no process, and loses no finished trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from runners.process import marked
from tests.tuner.scripted_study import write_study
from tuner.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GONE_S = 15.0


def slow_study(folder: Path) -> Study:
    """A study whose candidates take long enough to be caught in the middle."""
    return write_study(
        folder, enqueue=[{"speed": 0.5}, {"wrong": 1}], trials=3, flags=("--startup-s", "1.5")
    )


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuner.cli", "run", str(folder / "study.yaml")],
        stdout=(folder / "out.log").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def wait_for(folder: Path, text: str) -> None:
    until = time.monotonic() + 120
    while text not in (folder / "out.log").read_text():
        assert time.monotonic() < until, (folder / "out.log").read_text()
        time.sleep(0.05)


def family(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Every process that the driver has started, Ray's and the engine's too."""
    return psutil.Process(driver.pid).children(recursive=True)


def assert_all_gone(study: Study, processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=GONE_S)
    left = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    assert marked(study.marker) == []


def finish(study: Study, folder: Path, kept: list[bytes]) -> None:
    """Run the study again to its end: what was finished is untouched, nothing is there twice."""
    driver = start(folder)
    assert driver.wait(180) == 0, (folder / "out.log").read_text()
    ledger = (study.folder / "ledger.jsonl").read_bytes().splitlines()
    assert ledger[: len(kept)] == kept
    assert sorted(trial.number for trial in study.trials) == [0, 1, 2]
    assert len(study.ledger) == 3


def interrupted(folder: Path, how: signal.Signals, times: int) -> None:
    study = slow_study(folder)
    driver = start(folder)
    wait_for(folder, "trial 0 accepted")
    wait_for(folder, "trial 1: startup")
    processes = family(driver)
    kept = (study.folder / "ledger.jsonl").read_bytes().splitlines()
    assert len(kept) == 1
    for _ in range(times):
        os.kill(driver.pid, how)
        time.sleep(0.2)
    driver.wait(GONE_S)
    assert_all_gone(study, processes)
    finish(study, folder, kept)


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    interrupted(tmp_path, signal.SIGINT, times=1)
    assert "tuner run" in (tmp_path / "out.log").read_text()


def test_ctrl_c_twice_ends_at_once(tmp_path: Path) -> None:
    interrupted(tmp_path, signal.SIGINT, times=2)


def test_sigkill_of_the_driver_leaves_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path, signal.SIGKILL, times=1)
