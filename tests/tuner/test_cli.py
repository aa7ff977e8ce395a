"""The command line: every mistake is one sentence with exit code 2, and nothing is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.tuner.scripted_study import write_study

TUNER = (sys.executable, "-m", "tuner.cli")


def tuner(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TUNER, *words], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def edit(path: Path, **changes: object) -> None:
    """Set keys of a YAML file, or with None remove them."""
    yaml = YAML(typ="safe")
    document = yaml.load(path)
    for key, value in changes.items():
        document[key] = value
        if value is None:
            del document[key]
    yaml.dump(document, path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, enqueue=[])
    return tmp_path


def refused(folder: Path, *words: str) -> str:
    """Run a verb that must be refused; returns its one message."""
    done = tuner(*(words or ("run", "study.yaml")), cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (folder / "study" / "trials").exists(), "nothing was started"
    return done.stderr.strip()


def test_an_unknown_key_of_the_study(folder: Path) -> None:
    edit(folder / "study.yaml", budgets={"trials": 3})
    message = refused(folder)
    assert "study.yaml:" in message
    assert "unknown key 'budgets'; did you mean 'budget'?" in message


def test_an_unknown_knob_of_an_enqueued_configuration(folder: Path) -> None:
    edit(folder / "study.yaml", enqueue=[{"sped": 1.5}])
    message = refused(folder)
    assert "study.yaml:" in message
    assert "sped" in message
    assert "speed" in message


def test_an_unknown_catalog_entry(folder: Path) -> None:
    edit(folder / "study.yaml", objective="no-quality-los")
    assert "did you mean 'no-quality-loss'?" in refused(folder)


def test_a_missing_study(folder: Path) -> None:
    assert "no such study" in refused(folder, "run", "other.yaml")


def test_an_engine_python_that_does_not_exist(folder: Path) -> None:
    edit(folder / "runner.yaml", engine="vllm", command=None, python="./no/python")
    message = refused(folder)
    assert "engine's Python does not exist" in message
    assert message.count("`python` in the runner") == 1


def test_an_engine_python_that_cannot_import_vllm(folder: Path) -> None:
    edit(folder / "runner.yaml", engine="vllm", command=None, python=sys.executable)
    assert "cannot import vllm" in refused(folder)


def test_a_missing_model(folder: Path, embedded_engine: Path) -> None:
    python, model = str(embedded_engine), "./no-such-model"
    edit(folder / "runner.yaml", engine="vllm", command=None, python=python, model=model)
    message = refused(folder)
    assert "model's folder does not exist" in message
    assert "no-such-model" in message


def test_a_secret_that_is_not_set(folder: Path) -> None:
    edit(folder / "runner.yaml", secrets=["SURELY_NOT_SET_TOKEN"])
    assert "SURELY_NOT_SET_TOKEN is not set" in refused(folder)


def test_a_trial_that_is_not_there(folder: Path) -> None:
    assert "there is no trial 7" in refused(folder, "show", "study.yaml", "7")


def test_an_unknown_verdict_names_those_that_there_are(folder: Path) -> None:
    message = refused(folder, "trials", "study.yaml", "--verdict", "accept")
    assert "accepted" in message


def test_exporting_before_anything_is_accepted(folder: Path) -> None:
    assert "no accepted trial yet" in refused(folder, "export", "study.yaml")


def test_every_verb_has_help_with_an_example(folder: Path) -> None:
    for verb in ("run", "trials", "show", "export", "ui"):
        done = tuner(verb, "--help", cwd=folder)
        assert done.returncode == 0
        assert f"Example: tuner {verb}" in done.stdout
