"""The embedded model is what it should be, and appears whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runners.embedded import engine_python, home, model, model_folder
from runners.embedded.environment import SetupError
from runners.embedded.model import Model


def test_everything_lies_under_the_folder_that_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_HOME", str(tmp_path))

    assert home() == tmp_path
    assert tmp_path in engine_python().parents
    assert tmp_path in model_folder().parents


def test_without_a_choice_everything_lies_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNER_HOME", raising=False)

    assert (home() / "pyproject.toml").exists()


@pytest.mark.engine
def test_the_same_package_converts_to_the_same_files(
    tmp_path: Path, embedded_engine: Path, embedded_model: Path
) -> None:
    again = Model(tmp_path / embedded_model.name, embedded_engine, lambda _: None)

    assert again.make() is True
    assert again.make() is False
    stamp = json.loads((again.folder / model.STAMP).read_text())
    assert stamp == json.loads((embedded_model / model.STAMP).read_text())


@pytest.mark.engine
def test_a_model_that_loses_a_file_is_made_again(tmp_path: Path, embedded_engine: Path) -> None:
    made = Model(tmp_path / "model", embedded_engine, lambda _: None)
    made.make()
    (made.folder / "tokenizer.json").unlink()

    assert not made.is_made()
    assert made.make() is True
    assert (made.folder / "tokenizer.json").exists()


@pytest.mark.engine
def test_a_conversion_that_talks_nonsense_is_not_put_in_place(
    tmp_path: Path, embedded_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "SMOLLM2", replace(model.SMOLLM2, answer="The capital is Rome."))
    wrong = Model(tmp_path / "model", embedded_engine, lambda _: None)

    with pytest.raises(SetupError, match=r"answers 'The capital of France is Paris\.' .* Rome"):
        wrong.make()

    assert not wrong.folder.exists()
    assert list(tmp_path.glob(".making-*")) == []
