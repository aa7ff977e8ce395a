"""A launch script is verified by starting it, and not by reading it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runners import EngineFailure, InProcessBackend
from tests.tuner.scripted_study import write_study
from tuner.cli import app
from tuner.sides import UnknownSideError, differences, side_of
from tuner.status import status_of
from tuner.study import Study
from tuner.verify import NotVerifiableError, verify


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A finished study of the scripted engine: the control, and one that is faster."""
    made = write_study(tmp_path_factory.mktemp("study"), enqueue=[{"speed": 1.5}], trials=2)
    made.run(backend=InProcessBackend)
    return made


@pytest.fixture
def script(study: Study) -> Path:
    return study.folder / "launch.sh"


def test_a_script_that_starts_what_was_measured_is_verified(study: Study, script: Path) -> None:
    outcome = verify(script, study)
    assert outcome.verified, outcome.sentences()
    assert outcome.identity_sha == study.trials[1].identity.sha
    kinds = {gate.gate.split(".")[0] for gate in outcome.gates}
    assert kinds == {"parity", "canary", "quality"}


def test_a_script_whose_server_says_something_else_is_not(
    study: Study, script: Path, tmp_path: Path
) -> None:
    forged = tmp_path / "launch.sh"
    text = script.read_text()
    assert "--knob-wrong\n  0\n" in text
    forged.write_text(text.replace("--knob-wrong\n  0\n", "--knob-wrong\n  1\n"))
    outcome = verify(forged, study)
    assert not outcome.verified
    assert {gate.gate for gate in outcome.failed} >= {"parity"}


def test_a_script_whose_server_is_slower_is_not(study: Study, script: Path, tmp_path: Path) -> None:
    slow = tmp_path / "launch.sh"
    slow.write_text(script.read_text().replace("\n  1.5\n", "\n  0.5\n"))
    outcome = verify(slow, study)
    assert outcome.failed == []
    assert not outcome.is_as_fast
    assert not outcome.verified


def test_a_failed_check_of_the_script_is_a_failure_to_start(
    study: Study, script: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "launch.sh"
    broken.write_text(script.read_text().replace("check_program\n", "refuse 'changed'\n"))
    with pytest.raises(EngineFailure):
        verify(broken, study)


def test_another_studys_script_is_refused_in_a_sentence(study: Study, tmp_path: Path) -> None:
    other = tmp_path / "launch.sh"
    other.write_text(f"#!/bin/bash\necho {'0' * 64}\n")
    with pytest.raises(NotVerifiableError, match="no measured trial of"):
        verify(other, study)
    other.write_text("#!/bin/bash\necho hello\n")
    with pytest.raises(NotVerifiableError, match="no launch script"):
        verify(other, study)


def test_the_verb_ends_with_0_for_a_verified_script(script: Path) -> None:
    run = CliRunner().invoke(app, ["verify", str(script)])
    assert run.exit_code == 0, run.output
    assert run.output.endswith("verified\n")


def test_a_trial_and_the_script_that_starts_it_do_not_differ(study: Study, script: Path) -> None:
    best = side_of(f"{study.folder}:1")
    assert differences(best, side_of(str(script))) == []
    (difference,) = differences(side_of(f"{study.folder}:0"), best)
    assert difference.what == "configuration.args.knob-speed"
    assert (difference.left, difference.right) == (1.0, 1.5)


def test_a_side_that_is_not_there_is_named(study: Study, tmp_path: Path) -> None:
    with pytest.raises(UnknownSideError, match="has no trial 77"):
        side_of(f"{study.folder}:77")
    with pytest.raises(UnknownSideError, match="cannot be read"):
        side_of(str(tmp_path / "none.sh"))


def test_the_status_of_a_finished_study(study: Study) -> None:
    status = status_of(study)
    assert not status.running
    assert (status.finished, status.budget, status.best) == (2, 2, 1)
    assert status.in_progress == ()
    assert status.waiting_for_mlflow == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status"], 0),
        (["logs", "1", "--tail", "3"], 0),
        (["logs", "99"], 2),
        (["report"], 0),
    ],
)
def test_the_verbs_that_look_end_as_documented(study: Study, words: list[str], code: int) -> None:
    verb, *rest = words
    run = CliRunner().invoke(app, [verb, str(study.folder), *rest])
    assert run.exit_code == code, run.output


def test_diff_ends_with_1_where_something_differs_and_with_0_where_nothing_does(
    study: Study,
) -> None:
    zero, one = f"{study.folder}:0", f"{study.folder}:1"
    assert CliRunner().invoke(app, ["diff", zero, one]).exit_code == 1
    assert CliRunner().invoke(app, ["diff", one, one]).exit_code == 0
    assert CliRunner().invoke(app, ["diff", zero, "nowhere.sh"]).exit_code == 2
