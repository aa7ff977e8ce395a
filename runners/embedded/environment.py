"""Make a Python environment once: quick when it is there, whole or not at all.

Standard library only, in one file, because it runs before anything is installed. Makefile and
`.ci/run` run it as a script for the tuner's own environment; `engine.py` imports it for the
engine's. A stamp inside the environment says what it was made from. No stamp means that a set-up
was interrupted: the environment is made again, and pip keeps what it had downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TORCH_SETTING = "TORCH_CPU_INDEX"
STAMP = "made-from.json"
HEARTBEAT_S = 15.0
STOP_GRACE_S = 10.0
OLDEST_PYTHON = (3, 11)

Say = Callable[[str], None]


class SetupError(Exception):
    """What stops a set-up, in one sentence that says what to do."""


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of.

    Attributes:
        title: what a person calls it, such as "the tuner's environment".
        expected: how long it takes and how large it gets, in words.
        installs: pip requirements, one group per pip call, in this order. Paths are taken from
            the working directory.
        removes: distributions to uninstall afterwards.
        constraints: a pip constraints file with exact versions.
        watches: files whose change asks for another pip run, besides the constraints.
        imports: modules that must import for the environment to count as made.
        needs_bytes: free disk space it needs.
    """

    title: str
    expected: str
    installs: tuple[tuple[str, ...], ...]
    removes: tuple[str, ...] = ()
    constraints: Path | None = None
    watches: tuple[Path, ...] = ()
    imports: tuple[str, ...] = ()
    needs_bytes: int = 0

    def key(self) -> str:
        """Give the SHA-256 of everything the environment is made from."""
        files = [*self.watches, *([self.constraints] if self.constraints else [])]
        parts = {
            "installs": self.installs,
            "removes": self.removes,
            "files": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def say(line: str) -> None:
    """Print one line of progress at once, also into a pipe."""
    print(f"[set-up] {line}", flush=True)


@contextlib.contextmanager
def only_one(folder: Path, title: str, say: Say) -> Iterator[int]:
    """Hold the lock beside `folder`; wait, and say so, while another set-up holds it.

    Yields the lock's file descriptor. A child process that inherits it keeps the lock for as long
    as it lives, so that an orphaned pip is waited for rather than raced.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{title}: another set-up is making it; waiting for that one")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def run_step(
    title: str,
    argv: Sequence[str | Path],
    *,
    log: Path,
    lock: int,
    say: Say,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> str:
    """Run a command to its end, its output appended to `log`, with a line every 15 seconds.

    Returns its output. Raises SetupError, naming the last line that reads like an error, when it
    fails. Interrupted, it ends the command before it raises.
    """
    started = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+", encoding="utf-8", errors="replace") as output:
        output.write(f"\n$ {' '.join(map(str, argv))}\n")
        output.flush()
        begin = output.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            pass_fds=(lock,),
            process_group=0,  # so that `_end` reaches what pip itself starts
            text=True,
        )
        try:
            code = _wait(process, stdin, title, started, say)
        except BaseException:
            _end(process)
            raise
        output.seek(begin)
        text = output.read()
    if code != 0:
        raise SetupError(f"{title} failed: {_last_error(text)} (the whole output is in {log})")
    return text


def _wait(process: subprocess.Popen[str], stdin: str, title: str, started: float, say: Say) -> int:
    """Wait for the process, with a sign of life every 15 seconds."""
    if process.stdin:
        process.stdin.write(stdin)
        process.stdin.close()
    while True:
        try:
            return process.wait(HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            say(f"{title}: {time.monotonic() - started:.0f} s so far")


def _end(process: subprocess.Popen[str]) -> None:
    """End a step that is no longer wanted, and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE_S)


def _last_error(text: str) -> str:
    """Pick the line that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error|\w+Error)\b", line)]
    return (errors or lines or ["it said nothing"])[-1]


def torch_index() -> list[str]:
    """Give pip's options for the place of PyTorch's CPU builds, when the setting names one."""
    place = os.environ.get(TORCH_SETTING, "").strip()
    if not place:
        return []
    return ["--find-links" if Path(place).is_dir() else "--extra-index-url", place]


def missing_torch(text: str) -> SetupError | None:
    """Turn pip's complaint about a CPU build of torch into the sentence that helps."""
    said = r"(?:No matching distribution found for|user requested|depends on)"
    found = re.search(said + r" torch==([\w.]+)\+cpu", text)
    if found is None:
        return None
    version = ".".join(map(str, sys.version_info[:2]))
    return SetupError(
        f"pip finds no CPU build of torch {found[1]} for Python {version}: give the address of "
        f"PyTorch's CPU wheel index, or a folder that holds the wheel, as {TORCH_SETTING}=... and "
        "run the same command again"
    )


def missing_library(text: str) -> SetupError | None:
    """Turn the loader's complaint about a system library into the sentence that helps."""
    found = re.search(r"ImportError: (lib\S+): cannot open shared object file", text)
    if found is None:
        return None
    package = re.sub(r"\.so\.?", "", found[1])
    return SetupError(
        f"the system library {found[1]} is missing: install it (on Debian, apt-get install "
        f"{package}) and run the same command again"
    )


class Environment:
    """A virtual environment in a folder, made from a recipe."""

    def __init__(self, folder: Path, recipe: Recipe, say: Say = say) -> None:
        self.folder = folder
        self.recipe = recipe
        self.python = folder / "bin" / "python"
        self.log = folder.with_name(folder.name + ".log")
        self._stamp = folder / STAMP
        self._say = say

    def is_made(self) -> bool:
        """Say whether the environment is there, whole, and made from this recipe."""
        return self.python.exists() and self._stamped() == self._mark()

    def make(self) -> bool:
        """Make the environment unless it is made already; say whether anything was done."""
        if self.is_made():
            return False
        with only_one(self.folder, self.recipe.title, self._say) as lock:
            if self.is_made():
                return False
            started = time.monotonic()
            self.log.unlink(missing_ok=True)
            self._prepare(lock)
            for requirements in self.recipe.installs:
                self._install(requirements, lock)
            self._finish(lock)
            self._say(f"{self.recipe.title}: made in {time.monotonic() - started:.0f} s")
        return True

    def _mark(self) -> dict[str, str]:
        """Give what the stamp of this environment, whole, would say."""
        # A virtual environment names its own folder in its scripts, so it cannot be moved.
        folder = str(self.folder.resolve())
        return {"recipe": self.recipe.key(), "python": sys.version, "folder": folder}

    def _stamped(self) -> dict[str, str] | None:
        """Read what the environment was made from; None when it is not whole."""
        try:
            stamp = json.loads(self._stamp.read_text())
        except (OSError, ValueError):
            return None
        return stamp if isinstance(stamp, dict) else None

    def _prepare(self, lock: int) -> None:
        """Leave an environment that pip can install into."""
        title = self.recipe.title
        stamp = self._stamped()
        if stamp is not None and stamp == {**self._mark(), "recipe": stamp.get("recipe")}:
            self._say(f"{title}: what it is made from has changed; bringing it up to date")
            self._stamp.unlink()
            return
        if stamp is not None:
            self._say(f"{title}: made by another Python or in another folder; making it again")
        elif self.folder.exists():
            self._say(f"{title}: found half made; making it again with what is downloaded")
        else:
            self._say(f"{title}: making it in {self.folder} ({self.recipe.expected})")
        free = shutil.disk_usage(self.folder.parent).free
        if free < self.recipe.needs_bytes:
            raise SetupError(
                f"{title} needs {self.recipe.needs_bytes / 1e9:.1f} GB of disk and "
                f"{self.folder.parent} has {free / 1e9:.1f} GB left: make room and run again"
            )
        command: list[str | Path] = [sys.executable, "-m", "venv", "--clear", self.folder]
        try:
            run_step(f"{title}: venv", command, log=self.log, lock=lock, say=self._say)
        except SetupError as error:
            if "ensurepip" in self.log.read_text():
                raise SetupError(
                    f"{sys.executable} cannot make virtual environments: install its venv module "
                    "(on Debian, apt-get install python3-venv) and run the same command again"
                ) from error
            raise

    def _pip(self, what: str, arguments: Sequence[str], lock: int) -> None:
        """Run the environment's own pip."""
        run_step(
            f"{self.recipe.title}: {what}",
            [self.python, "-m", "pip", "--disable-pip-version-check", *arguments],
            log=self.log,
            lock=lock,
            say=self._say,
        )

    def _install(self, requirements: Sequence[str], lock: int) -> None:
        """Install one group of requirements; explain a torch that cannot be found."""
        constraints = self.recipe.constraints
        options = [*torch_index(), *(["--constraint", str(constraints)] if constraints else [])]
        self._say(f"{self.recipe.title}: installing {' '.join(requirements)}")
        try:
            self._pip("pip install", ["install", *options, *requirements], lock)
        except SetupError as error:
            raise (missing_torch(self.log.read_text()) or error) from error

    def _finish(self, lock: int) -> None:
        """Remove what does not belong, check that what does imports, and set the stamp."""
        if self.recipe.removes:
            self._pip("pip uninstall", ["uninstall", "--yes", *self.recipe.removes], lock)
        if self.recipe.imports:
            self._check_imports(lock)
        unfinished = self._stamp.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._mark()))
        unfinished.replace(self._stamp)

    def _check_imports(self, lock: int) -> None:
        """Import what the environment is for; explain a system library that is missing."""
        names = ", ".join(self.recipe.imports)
        command: list[str | Path] = [self.python, "-c", f"import {names}"]
        title = f"{self.recipe.title}: importing {names}"
        try:
            run_step(title, command, log=self.log, lock=lock, say=self._say)
        except SetupError as error:
            raise (missing_library(self.log.read_text()) or error) from error


def complain(action: Callable[[], object]) -> int:
    """Run `action`; turn what stops it into one sentence and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        action()
    except SetupError as error:
        print(f"set-up stopped: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("set-up interrupted: run the same command again to finish it", file=sys.stderr)
        return 130
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment that the command line describes."""
    parser = argparse.ArgumentParser(description="Make a Python environment, once.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--title", required=True)
    parser.add_argument("--expected", required=True, help="how long it takes, in words")
    parser.add_argument("--install", action="append", nargs="+", required=True)
    parser.add_argument("--editable", help="a project to install last, as it stands")
    parser.add_argument("--constraints", type=Path)
    parser.add_argument("--watch", action="append", type=Path, default=[])
    parser.add_argument("--imports", nargs="+", default=[])
    parser.add_argument("--needs-gb", type=float, default=0)
    given = parser.parse_args(arguments)
    if sys.version_info < OLDEST_PYTHON:
        print("set-up stopped: Python 3.11 or newer is needed", file=sys.stderr)
        return 2
    editable = [("--editable", given.editable)] if given.editable else []
    recipe = Recipe(
        title=given.title,
        expected=given.expected,
        installs=(*(tuple(group) for group in given.install), *editable),
        constraints=given.constraints,
        watches=tuple(given.watch),
        imports=tuple(given.imports),
        needs_bytes=int(given.needs_gb * 1e9),
    )
    return complain(Environment(given.folder, recipe).make)


if __name__ == "__main__":
    sys.exit(main())
