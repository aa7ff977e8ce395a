"""A study on the scripted server: what it accepts, what it rejects and why, and that it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners import InProcessBackend
from tests.tuner.scripted_study import KNOBS, write_study
from tests.tuner.trial_records import accepted_record, control_record
from tuner.events import Event, TrialFinished
from tuner.ledger import Ledger
from tuner.retries import overtaken, resolution
from tuner.study import Stop, Study, StudyError, StudySummary
from tuner.verdict import Code, Verdict


def run(study: Study, **more: object) -> StudySummary:
    return study.run(backend=InProcessBackend, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, StudySummary]]:
    """One study, whole: control, wrong tokens, too slow, a crash, and a true gain."""
    study = write_study(
        tmp_path_factory.mktemp("study"),
        enqueue=[{"wrong": 1}, {"speed": 0.5}, {"block_size": "startup"}, {"speed": 1.5}],
        trials=5,
    )
    return study, run(study)


def verdict_and_code(study: Study, number: int) -> tuple[Verdict, Code | None]:
    record = study.ledger.trial(number)
    assert record is not None
    return record.verdict, record.rejection.code if record.rejection else None


def test_the_control_runs_first_and_is_the_first_accepted_identity(
    finished: tuple[Study, StudySummary],
) -> None:
    control = finished[0].trials[0]
    assert (control.role, control.verdict) == ("control", Verdict.ACCEPTED)
    assert control.judgement.quality_validated
    assert len(control.control_rates) == 2


def test_other_tokens_are_rejected_with_prompt_index_and_both_tokens(
    finished: tuple[Study, StudySummary],
) -> None:
    assert verdict_and_code(finished[0], 1) == (Verdict.REJECTED, Code.PARITY_MISMATCH)
    record = finished[0].ledger.trial(1)
    assert record is not None
    assert record.rejection is not None
    evidence = next(g for g in record.gates if g.gate == "parity").evidence
    assert evidence["divergences"][0]["index"] == 12
    assert "at index 12: expected" in record.rejection.reason
    assert record.control_gates["parity"].status == "passed"


def test_a_slow_candidate_is_rejected_before_the_dear_gates(
    finished: tuple[Study, StudySummary],
) -> None:
    assert verdict_and_code(finished[0], 2) == (Verdict.REJECTED, Code.TOO_SLOW)
    record = finished[0].ledger.trial(2)
    assert record is not None
    assert record.rung == "smoke"


def test_a_crash_at_startup_is_the_candidates_and_says_what_the_log_said(
    finished: tuple[Study, StudySummary],
) -> None:
    assert verdict_and_code(finished[0], 3) == (Verdict.REJECTED, Code.STARTUP_CRASH)
    record = finished[0].ledger.trial(3)
    assert record is not None
    assert record.rejection is not None
    assert "scripted failure during start-up" in record.rejection.reason


def test_a_true_gain_is_accepted_beside_an_adjacent_control(
    finished: tuple[Study, StudySummary],
) -> None:
    study, summary = finished
    assert verdict_and_code(study, 4) == (Verdict.ACCEPTED, None)
    assert summary.best == 4
    best = study.best
    assert best is not None
    ab = best.gate("ab")
    assert ab is not None
    assert ab.evidence["low"] > ab.evidence["bound"]
    assert best.control_rates, "a control session ran after the candidate's"


def test_the_evidence_lies_in_the_trials_folder(finished: tuple[Study, StudySummary]) -> None:
    study = finished[0]
    record = study.ledger.trial(1)
    assert record is not None
    folder = study.folder / record.directory
    for name in ("identity.json", "launch.json", "gates/smoke.parity.json"):
        assert (folder / name).is_file()
    assert list(folder.glob("1-candidate/server.log"))


def test_the_sampler_hears_every_settled_trial_with_all_its_constraints(
    finished: tuple[Study, StudySummary],
) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(finished[0].folder / "optuna.journal")))
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 5
    assert len({frozenset(trial.constraints) for trial in trials}) == 1
    assert trials[1].constraints["parity"] > 0
    assert trials[3].constraints["startup"] > 0
    assert all(value <= 0 for value in trials[4].constraints.values())


def test_a_finished_study_run_again_repeats_nothing(finished: tuple[Study, StudySummary]) -> None:
    study, before = finished
    heard: list[Event] = []
    summary = run(study, listen=heard.append)
    assert not [event for event in heard if isinstance(event, TrialFinished)]
    assert summary.verdicts == before.verdicts


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    study = write_study(tmp_path, enqueue=[{"speed": 0.5}, {"wrong": 1}], trials=3)
    stop = Stop()

    def listen(event: Event) -> None:
        if isinstance(event, TrialFinished) and event.number == 1:
            stop.ask()

    first = run(study, listen=listen, stop=stop)
    assert first.interrupted
    kept = [record.model_dump() for record in study.ledger]
    second = run(Study.load(str(tmp_path / "study.yaml")))
    assert not second.interrupted
    assert [record.model_dump() for record in study.ledger][: len(kept)] == kept
    assert [record.number for record in study.ledger] == [0, 1, 2]


def test_a_control_that_does_not_start_ends_the_study_with_the_reason(tmp_path: Path) -> None:
    study = write_study(tmp_path, enqueue=[], flags=("--die-at", "startup"))
    with pytest.raises(StudyError, match=r"the control fails startup.*scripted failure"):
        run(study)
    assert len(study.ledger) == 1


def test_a_control_that_does_not_repeat_itself_ends_the_study(tmp_path: Path) -> None:
    study = write_study(tmp_path, enqueue=[], flags=("--corrupt-canary-at", "5"))
    with pytest.raises(StudyError, match=r"the control fails canary\.json"):
        run(study)


def test_a_canary_that_the_control_fails_too_stops_the_study(tmp_path: Path) -> None:
    """The lane breaks after the control was established: no candidate may be blamed for it."""
    switch = tmp_path / "broken"
    study = write_study(
        tmp_path,
        enqueue=[{"speed": 1.5}, {"speed": 0.5}],
        flags=("--corrupt-canaries-while", str(switch)),
        objective={"attribution": {"control_max_age_s": 0.001}},
    )

    def listen(event: Event) -> None:
        if isinstance(event, TrialFinished) and event.number == 0:
            switch.touch()

    summary = run(study, listen=listen)
    record = study.ledger.trial(1)
    assert record is not None
    assert record.rejection is not None
    assert (record.verdict, record.rejection.code) == (Verdict.INVALID, Code.LANE_UNHEALTHY)
    assert "unhealthy" in summary.ended_because
    assert study.ledger.trial(2) is None, "nothing more is drawn in a broken lane"


def test_a_lost_device_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    """The only device is put aside, and the study stops instead of waiting for ever."""
    line = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
    knobs = {"log": {"arg": "--print", "choices": [None, line]}, **KNOBS}
    study = write_study(
        tmp_path, enqueue=[{"log": line, "block_size": "startup"}], trials=3, knobs=knobs
    )
    summary = run(study)
    record = study.ledger.trial(1)
    assert record is not None
    assert record.rejection is not None
    assert (record.verdict, record.rejection.code) == (Verdict.INVALID, Code.DEVICE_LOST)
    assert "no healthy device is left" in summary.ended_because


def test_a_study_whose_objective_changed_is_refused_and_loses_nothing(
    finished: tuple[Study, StudySummary], tmp_path: Path
) -> None:
    """Trials of two lanes in one ledger would be compared by somebody, sooner or later."""
    shutil.copytree(finished[0].folder, tmp_path / "study")
    before = (tmp_path / "study" / "ledger.jsonl").read_bytes()
    changed = write_study(tmp_path, enqueue=[], objective={"minimal_effect": 0.05})
    with pytest.raises(StudyError, match="the objective changed"):
        run(changed)
    assert (tmp_path / "study" / "ledger.jsonl").read_bytes() == before


def test_two_drivers_never_run_the_same_study(tmp_path: Path) -> None:
    study = write_study(tmp_path, enqueue=[])
    with study._alone(), pytest.raises(StudyError, match="another process runs the study"):
        run(study)


def test_the_ledger_is_whole_after_a_torn_last_line(
    finished: tuple[Study, StudySummary], tmp_path: Path
) -> None:
    whole = (finished[0].folder / "ledger.jsonl").read_bytes()
    torn = tmp_path / "ledger.jsonl"
    torn.write_bytes(whole[:-40])
    assert len(Ledger(torn)) == len(finished[0].ledger) - 1
    assert torn.read_bytes().endswith(b"\n")


def test_a_canary_goes_past_every_repeat_at_which_one_has_failed(tmp_path: Path) -> None:
    """Trial 1 fails its canary at repeat 7; what is asked of trial 2 goes deeper than that."""
    study = write_study(
        tmp_path,
        enqueue=[{"canary": 7, "speed": 1.5}, {"speed": 1.5}],
        trials=3,
        knobs={"canary": {"arg": "--corrupt-canary-at", "choices": [None, 7]}, **KNOBS},
    )
    run(study)
    failed = study.ledger.trial(1)
    assert failed is not None
    assert failed.rejection is not None
    assert (failed.rejection.code, failed.rejection.gate) == (Code.CANARY_MISMATCH, "canary.json")
    assert study.ledger.failure_repeats() == [7]
    later = study.ledger.trial(2)
    assert later is not None
    canary = later.gate("canary.json")
    assert canary is not None
    assert canary.evidence["repeats"] == 9, "the margin of 1.15 past 7, and more than the 8 asked"


def test_an_acceptance_against_a_replaced_control_is_measured_again() -> None:
    control, other, winner = control_record(), accepted_record(1), accepted_record(2)
    other = other.model_copy(update={"control_sha": control.identity.sha})
    again = overtaken(other, winner)
    assert again.verdict is Verdict.INVALID
    assert again.rejection is not None
    assert again.rejection.code is Code.NOT_COMPARABLE
    next_step = resolution([again], 3)
    assert next_step is not None
    assert next_step.retry
    assert overtaken(other, control) == other
