"""Asks an engine's Python what the engine offers, once per version of the engine's files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from search_spaces.engine_knobs import EngineKnobs

_PROBE = Path(__file__).with_name("engine_probe.py")
_FINGERPRINT_TIMEOUT_S = 60
_PROBE_TIMEOUT_S = 300
"""Importing vLLM takes seconds on an idle machine, a minute or more on a busy one."""


class IntrospectionError(ValueError):
    """The engine's Python could not be asked, in one sentence."""


def introspect(python: str | Path, *, cache: Path | None = None) -> EngineKnobs:
    """The knobs of the engine that `python` imports.

    What was found is kept in `cache` (by default in the user's cache folder), named by a hash of
    the engine's version, the files that define its knobs, and the probe itself; asking again takes
    a fraction of a second.

    Raises IntrospectionError when there is no such Python, or it cannot import the engine.
    """
    fingerprint = _ask(python, "fingerprint", _FINGERPRINT_TIMEOUT_S)
    kept = (cache or _cache_folder()) / f"{_key(fingerprint)}.json"
    if kept.is_file():
        return EngineKnobs.model_validate_json(kept.read_text(encoding="utf-8"))
    found = EngineKnobs.model_validate(_ask(python, "knobs", _PROBE_TIMEOUT_S))
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Others may look for the same file at the same time: it appears whole or not at all.
    with tempfile.NamedTemporaryFile(
        "w", dir=kept.parent, suffix=".tmp", delete=False, encoding="utf-8"
    ) as half:
        half.write(found.model_dump_json())
    Path(half.name).replace(kept)
    return found


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tuner" / "engine-knobs"


def _key(fingerprint: dict[str, Any]) -> str:
    probe = hashlib.sha256(_PROBE.read_bytes()).hexdigest()
    text = json.dumps([fingerprint, probe], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _ask(python: str | Path, question: str, timeout_s: float) -> dict[str, Any]:
    # The defaults are those of a clean environment, and nothing of ours is importable there.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "PYTHON")) and name != "VIRTUAL_ENV"
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [str(Path(python).absolute()), str(_PROBE), question],
                env=kept,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise IntrospectionError(
                f"cannot start {python} ({error.strerror}); name the engine's Python in the runner"
            ) from None
        except subprocess.TimeoutExpired:
            raise IntrospectionError(
                f"{python} did not answer within {timeout_s:g} s; is the machine overloaded?"
            ) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise IntrospectionError(
            f"{python} cannot import the engine ({lines[-1]}); name the Python of the environment"
            " that vLLM is installed in"
        )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise IntrospectionError(
            f"{python} answered {done.stdout[:80]!r}, so it is no Python; name the engine's Python"
        ) from None
    return answer
