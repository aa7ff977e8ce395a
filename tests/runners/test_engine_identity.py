"""What decides a result is hashed: the engine's binaries and the model's files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runners import EngineFailure, Runner, engine_identity
from tests.runners.scripted import SERVER, scripted_runner


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def model(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").touch()
    return folder


def test_every_file_of_the_model_counts_but_hidden_ones(tmp_path: Path) -> None:
    runner = scripted_runner().model_copy(update={"model": str(model(tmp_path / "m"))})
    identity = engine_identity(runner)["model"]
    assert identity["files"] == {
        "config.json": hashlib.sha256(b"{}").hexdigest(),
        "model.safetensors": hashlib.sha256(b"weights").hexdigest(),
    }


def test_a_changed_file_is_another_identity_although_hashes_are_cached(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    runner = scripted_runner().model_copy(update={"model": str(folder)})
    before = engine_identity(runner)
    assert engine_identity(runner) == before
    (folder / "model.safetensors").write_bytes(b"weighty")
    assert engine_identity(runner) != before


def test_a_command_engine_is_known_by_its_files() -> None:
    engine = engine_identity(scripted_runner())["engine"]
    assert SERVER.name in engine["binaries"]


@pytest.mark.parametrize(
    ("python", "says"),
    [("/no/such/python", "does not exist"), ("/bin/true", "not a Python that can be run")],
)
def test_an_engine_that_cannot_be_asked_is_the_users_mistake(python: str, says: str) -> None:
    runner = Runner(name="r", python=python, model="org/model")
    with pytest.raises(EngineFailure, match=says) as caught:
        engine_identity(runner)
    assert caught.value.failure.blame == "user"


def test_a_python_without_vllm_is_the_users_mistake(tmp_path: Path) -> None:
    import sys

    runner = Runner(name="r", python=sys.executable, model="org/model")
    with pytest.raises(EngineFailure, match="cannot import vllm"):
        engine_identity(runner)


def test_a_missing_model_is_the_users_mistake(tmp_path: Path) -> None:
    runner = scripted_runner().model_copy(
        update={"engine": "vllm", "command": (), "model": str(tmp_path / "none")}
    )
    with pytest.raises(EngineFailure) as caught:
        engine_identity(runner)
    assert caught.value.failure.blame == "user"
