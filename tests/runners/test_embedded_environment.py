"""An environment is made once, whole or not at all, and what stops it is one sentence."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runners.embedded.environment import (
    TORCH_SETTING,
    Environment,
    Recipe,
    SetupError,
    missing_library,
    run_step,
)

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "runners" / "embedded" / "environment.py"


def write_wheel(folder: Path, name: str, code: str = "", requires: str = "") -> Path:
    """Write a wheel of one module, as pip accepts it."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip sees no index and no folder of wheels, whatever this machine has set up."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv(TORCH_SETTING, raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheels"), "nutshell", "KERNEL = 'nut'\n")


def recipe(*installs: Path | str, **more: object) -> Recipe:
    """Describe a small environment."""
    small = Recipe("a small environment", "seconds", (tuple(map(str, installs)),))
    return replace(small, **more)  # type: ignore[arg-type]  # whatever a test needs to change


def test_it_is_made_once_and_then_left_alone(tmp_path: Path, wheel: Path) -> None:
    said: list[str] = []
    environment = Environment(tmp_path / "env", recipe(wheel, imports=("nutshell",)), said.append)

    assert environment.make() is True
    assert "made in" in said[-1]
    run = subprocess.run([environment.python, "-c", "import nutshell"], cwd=tmp_path)
    assert run.returncode == 0

    said.clear()
    started = time.monotonic()
    assert environment.make() is False
    assert time.monotonic() - started < 0.2
    assert said == []


def test_a_changed_recipe_is_brought_in_without_starting_over(tmp_path: Path, wheel: Path) -> None:
    first = Environment(tmp_path / "env", recipe(wheel), lambda _: None)
    first.make()
    kept = first.folder / "kept"
    kept.touch()
    said: list[str] = []
    more = write_wheel(tmp_path, "walnut")

    second = Environment(first.folder, recipe(wheel, more, imports=("walnut",)), said.append)

    assert not second.is_made()
    assert second.make() is True
    assert any("has changed" in line for line in said)
    assert kept.exists()


def test_a_half_made_one_is_found_and_finished(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("half a download")
    said: list[str] = []

    environment = Environment(folder, recipe(wheel, imports=("nutshell",)), said.append)

    assert environment.make() is True
    assert "found half made" in said[0]


def test_one_that_was_moved_is_made_again_where_it_is(tmp_path: Path, wheel: Path) -> None:
    Environment(tmp_path / "before", recipe(wheel), lambda _: None).make()
    (tmp_path / "before").rename(tmp_path / "after")
    said: list[str] = []

    moved = Environment(tmp_path / "after", recipe(wheel), said.append)

    assert moved.make() is True
    assert "in another folder" in said[0]
    assert str(moved.folder) in (moved.folder / "bin" / "pip").read_text()


def test_after_a_failure_it_does_not_count_as_made(tmp_path: Path, wheel: Path) -> None:
    broken = write_wheel(tmp_path, "cracked", "raise ValueError('the shell is cracked')\n")
    environment = Environment(
        tmp_path / "env", recipe(wheel, broken, imports=("cracked",)), lambda _: None
    )

    with pytest.raises(SetupError, match=r"importing cracked failed: .*the shell is cracked"):
        environment.make()

    assert not environment.is_made()
    assert "Successfully installed" in environment.log.read_text()


@pytest.mark.parametrize("directly", [True, False])
def test_a_cpu_build_of_torch_that_pip_cannot_find_names_the_setting(
    tmp_path: Path, directly: bool
) -> None:
    torch = "torch==2.13.0+cpu"
    wanted = torch if directly else write_wheel(tmp_path, "engine", requires=torch)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch==2.13.0\n")
    environment = Environment(
        tmp_path / "env", recipe(wanted, constraints=constraints), lambda _: None
    )

    with pytest.raises(
        SetupError, match=r"no CPU build of torch 2\.13\.0 .* TORCH_CPU_INDEX=\.\.\."
    ):
        environment.make()


def test_the_torch_setting_may_be_a_folder_of_wheels(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TORCH_SETTING, str(wheel.parent))

    environment = Environment(
        tmp_path / "env", recipe("nutshell", imports=("nutshell",)), lambda _: None
    )

    assert environment.make() is True


def test_a_missing_system_library_names_the_package(tmp_path: Path) -> None:
    text = "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory"

    assert "apt-get install libnuma1" in str(missing_library(text))
    assert missing_library("ImportError: No module named numa") is None


def test_too_little_disk_stops_it_before_anything_is_written(tmp_path: Path) -> None:
    environment = Environment(
        tmp_path / "env", recipe("nutshell", needs_bytes=10**18), lambda _: None
    )

    with pytest.raises(SetupError, match=r"needs 1000000000\.0 GB of disk"):
        environment.make()

    assert not environment.folder.exists()


def test_a_second_set_up_waits_for_the_first_and_says_so(tmp_path: Path, wheel: Path) -> None:
    said: list[str] = []
    environment = Environment(tmp_path / "env", recipe(wheel), said.append)
    with (tmp_path / "env.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=environment.make)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        assert "another set-up is making it" in said[0]
        assert not environment.folder.exists()
    waiting.join(60)
    assert environment.is_made()


def test_a_step_says_that_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.embedded.environment.HEARTBEAT_S", 0.1)
    said: list[str] = []
    with (tmp_path / "lock").open("w") as lock:
        run_step(
            "a nap",
            [sys.executable, "-c", "import time; time.sleep(0.5)"],
            log=tmp_path / "log",
            lock=lock.fileno(),
            say=said.append,
        )

    assert said[0].startswith("a nap: ")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_pip_and_says_how_to_go_on(
    tmp_path: Path, stop: signal.Signals
) -> None:
    sleepy = tmp_path / "sleepy"
    sleepy.mkdir()
    (sleepy / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    (sleepy / "backend.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, SCRIPT, "env", "--title", "T", "--expected", "E"]
    setup = subprocess.Popen(
        [*command, "--install", "./sleepy"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    backend = psutil.Process(int((tmp_path / "pid").read_text()))

    setup.send_signal(stop)
    _, complaint = setup.communicate(timeout=30)

    assert setup.returncode == 130
    assert "run the same command again" in complaint
    assert not backend.is_running() or backend.status() == psutil.STATUS_ZOMBIE
