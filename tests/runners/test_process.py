"""A sweep ends what carries the marker, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from runners.process import is_under, marked, sweep, unwatched
from tests.runners.scripted import eventually

SLEEPER = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def study() -> str:
    return f"sweep-test-{os.getpid()}"


@pytest.fixture
def processes(study: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    started = {
        marker: subprocess.Popen(
            [sys.executable, "-c", SLEEPER],
            env={**os.environ, "TUNER_MARKER": marker},
            stdout=subprocess.PIPE,
        )
        for marker in (f"{study}/1/1", f"{study}/10/1", f"{study}-other/1/1")
    }
    for process in started.values():
        assert process.stdout is not None
        process.stdout.readline()
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def test_only_what_lies_under_the_marker_is_ended(
    study: str, processes: dict[str, subprocess.Popen[bytes]]
) -> None:
    swept = sweep(f"{study}/1", grace_s=1.0)
    assert [(process.marker, process.gone) for process in swept] == [(f"{study}/1/1", True)]
    assert processes[f"{study}/1/1"].wait(5) == -signal.SIGKILL
    assert processes[f"{study}/10/1"].poll() is None
    assert processes[f"{study}-other/1/1"].poll() is None


def test_zombies_are_dead(study: str, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    processes[f"{study}/1/1"].kill()
    assert eventually(lambda: not marked(f"{study}/1"), 5)
    assert sweep(f"{study}/1") == []


def test_an_engine_without_a_supervisor_is_seen(
    study: str, processes: dict[str, subprocess.Popen[bytes]]
) -> None:
    assert processes[f"{study}/1/1"].pid in {process.pid for process in unwatched()}


@pytest.mark.parametrize("marker", ["", "/"])
def test_a_sweep_of_everything_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="needs the marker"):
        sweep(marker)


@pytest.mark.parametrize(
    ("marker", "prefix", "under"),
    [
        ("a/1/2", "a", True),
        ("a/1/2", "a/1", True),
        ("a/1/2", "a/1/2", True),
        ("a/10/2", "a/1", False),
        ("ab/1", "a", False),
        ("a", "a/1", False),
    ],
)
def test_markers_lie_under_each_other_by_whole_parts(marker: str, prefix: str, under: bool) -> None:
    assert is_under(marker, prefix) is under
