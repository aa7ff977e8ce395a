"""MLflow holds what the ledger holds, whatever happens to the server."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from mlflow.entities import Run

from mlflow import MlflowClient
from objectives import GateKind
from tests.tuner.trial_records import (
    accepted_record,
    control_record,
    gate,
    invalid_record,
    record_of,
    rejected_record,
)
from tuner import tracking
from tuner.ledger import Ledger, TrialRecord
from tuner.mlflow_views import TAG, VIEWS
from tuner.tracking import Tracker, key_of_study, local_store, runs_page
from tuner.verdict import Code

LANE = "ab12" * 16


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that MLflow has laid out once, as that takes it seconds."""
    folder = tmp_path_factory.mktemp("store")
    MlflowClient(local_store(folder)).search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def study(tmp_path: Path, empty_store: Path) -> Path:
    folder = tmp_path / "a study"
    folder.mkdir()
    shutil.copyfile(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture
def tracker(study: Path) -> Tracker:
    return Tracker(None, study, "quick", LANE, lane_label="toy · 1 cpu")


def evidence(study: Path, record: TrialRecord) -> Path:
    directory = study / record.directory
    (directory / "gates").mkdir(parents=True)
    (directory / "identity.json").write_text(record.identity.model_dump_json())
    (directory / "gates" / "parity.json").write_text("{}")
    (directory / "server.log").write_text("ready\n")
    return directory


def tell(tracker: Tracker, study: Path, record: TrialRecord) -> str | None:
    return tracker.record(record, study / record.directory)


def runs(study: Path) -> list[Run]:
    client = MlflowClient(local_store(study))
    experiments = [
        e.experiment_id for e in client.search_experiments(filter_string="name != 'Default'")
    ]
    return list(client.search_runs(experiments))


def trials(study: Path) -> dict[str, Run]:
    return {run.info.run_name: run for run in runs(study) if run.data.tags["role"] != "study"}


def test_a_rejected_trial_says_verdict_code_and_reason_in_its_name_tags_and_description(
    tracker: Tracker, study: Path
) -> None:
    tell(tracker, study, control_record())
    record = rejected_record(3)
    tell(tracker, study, record)
    run = trials(study)["3 parity_mismatch · rejected · 33.5 tok/s"]
    assert record.rejection is not None
    assert run.data.tags["verdict"] == "rejected"
    assert run.data.tags["rejection.code"] == "parity_mismatch"
    assert run.data.tags["rejection.reason"] == record.rejection.reason
    description = run.data.tags["mlflow.note.content"]
    assert record.rejection.reason in description
    assert "| `configuration.args.dtype` | `bfloat16` | `float16` |" in description


def test_knobs_and_the_settings_that_hold_are_parameters_and_repeats_a_series(
    tracker: Tracker, study: Path
) -> None:
    run_id = tell(tracker, study, accepted_record(4, env={"VLLM_X": "1"}))
    assert run_id is not None
    client = MlflowClient(local_store(study))
    data = client.get_run(run_id).data
    assert data.params["knob.dtype"] == "bfloat16"
    assert data.params["arg.max-num-seqs"] == "16"
    assert data.params["env.VLLM_X"] == "1"
    assert data.metrics["tok_s"] == pytest.approx(40.55)
    assert data.metrics["gates/canary.json.corruption_bound"] == 0.046
    assert data.metrics["seconds/smoke"] == 12.5
    series = client.get_metric_history(run_id, "repeats/tok_s")
    assert [(m.step, m.value) for m in series] == [(1, 40.0), (2, 41.0), (3, 40.5), (4, 40.7)]


def test_the_evidence_is_kept_with_the_log_compressed(tracker: Tracker, study: Path) -> None:
    record = rejected_record(2)
    run_id = tracker.record(record, evidence(study, record))
    assert run_id is not None
    client = MlflowClient(local_store(study))
    names = {a.path for a in client.list_artifacts(run_id)}
    assert names == {
        "gates",
        "identity.json",
        "launch.sh",
        "report.md",
        "server.log.gz",
        "tables",
    }
    log = client.download_artifacts(run_id, "server.log.gz")
    assert gzip.decompress(Path(log).read_bytes()) == b"ready\n"


def test_trials_are_children_of_the_studys_run(tracker: Tracker, study: Path) -> None:
    tell(tracker, study, control_record())
    tell(tracker, study, rejected_record(1))
    parent = next(run for run in runs(study) if run.data.tags["role"] == "study")
    assert {r.data.tags["mlflow.parentRunId"] for r in trials(study).values()} == {
        parent.info.run_id
    }


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (rejected_record(1), "FINISHED"),
        (invalid_record(1), "FAILED"),
        (invalid_record(1, code=Code.INTERRUPTED), "KILLED"),
    ],
)
def test_the_status_tells_finished_invalid_and_interrupted_apart(
    tracker: Tracker, study: Path, record: TrialRecord, status: str
) -> None:
    tell(tracker, study, record)
    (run,) = trials(study).values()
    assert run.info.status == status
    assert run.info.end_time - run.info.start_time == 40_000


def test_recording_an_attempt_twice_updates_one_run(tracker: Tracker, study: Path) -> None:
    first = tell(tracker, study, rejected_record(1))
    changed = rejected_record(1, notices=("Seen again.",))
    assert tell(tracker, study, changed) == first
    again = Tracker(None, study, "quick", LANE, lane_label="toy · 1 cpu")
    assert tell(again, study, changed) == first
    (run,) = trials(study).values()
    assert "Seen again." in run.data.tags["mlflow.note.content"]
    client = MlflowClient(local_store(study))
    assert len(client.get_metric_history(str(first), "repeats/tok_s")) == 3


def test_another_attempt_is_another_run(tracker: Tracker, study: Path) -> None:
    tell(tracker, study, invalid_record(1))
    tell(tracker, study, rejected_record(1, attempt=2))
    assert set(trials(study)) == {
        "1 host_fault · invalid",
        "1 parity_mismatch · rejected · 33.5 tok/s · attempt 2",
    }


@pytest.fixture
def broken(study: Path) -> Tracker:
    """A tracker whose store cannot be opened: its file is a folder."""
    (study / "mlflow.db").rename(study / "good.db")
    (study / "mlflow.db").mkdir()
    return Tracker(None, study, "quick", LANE)


def repair(study: Path) -> None:
    (study / "mlflow.db").rmdir()
    (study / "good.db").rename(study / "mlflow.db")


def test_an_unreachable_store_stops_nothing_and_hears_of_everything_later(
    broken: Tracker, study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        assert tell(broken, study, rejected_record(number)) is None
    broken.finish("{}")
    assert broken.waiting == 3
    assert "wait in" in caplog.text
    repair(study)
    assert broken.flush() == 0
    assert len(trials(study)) == 3


def test_what_waits_is_sent_by_the_next_process(broken: Tracker, study: Path) -> None:
    tell(broken, study, rejected_record(7))
    repair(study)
    assert Tracker(None, study, "quick", LANE).flush() == 0
    assert len(trials(study)) == 1


def test_a_trial_that_cannot_be_sent_keeps_no_other_waiting(
    tracker: Tracker, study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = study / "outbox" / LANE[:12]
    outbox.mkdir(parents=True)
    (outbox / "000000-1.json").write_text("{ torn")
    assert tell(tracker, study, rejected_record(1)) is not None
    assert tracker.flush() == 1
    assert len(trials(study)) == 1
    assert "1 trials wait" in caplog.text


def test_a_trial_of_another_lane_is_left_to_its_own_experiment(
    tracker: Tracker, study: Path
) -> None:
    assert tell(tracker, study, rejected_record(1, lane="0" * 64)) is None
    assert tracker.waiting == 0
    tell(tracker, study, rejected_record(2))
    assert len(trials(study)) == 1


def test_after_a_failure_trials_are_only_queued_for_a_while(
    broken: Tracker, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(broken, study, rejected_record(0))
    repair(study)
    assert tell(broken, study, rejected_record(1)) is None
    monkeypatch.setattr(tracking, "RETRY_AFTER_S", 0.0)
    broken._silent_until = 0.0
    assert tell(broken, study, rejected_record(2)) is not None
    assert len(trials(study)) == 3


def test_secrets_appear_nowhere(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    monkeypatch.setenv("LAB_PASS", "swordfish")
    tracker = Tracker(None, study, "quick", LANE, secrets=["LAB_PASS"])
    record = rejected_record(
        1, hypothesis="hf_s3cret swordfish", env={"X": "swordfish"}, notices=("hf_s3cret",)
    )
    directory = evidence(study, record)
    (directory / "server.log").write_text("token hf_s3cret\n")
    run_id = tracker.record(record, directory)
    assert run_id is not None
    client = MlflowClient(local_store(study))
    data = client.get_run(run_id).data
    whole = str(data.to_dictionary())
    log = client.download_artifacts(run_id, "server.log.gz")
    whole += gzip.decompress(Path(log).read_bytes()).decode()
    assert "hf_s3cret" not in whole
    assert "swordfish" not in whole
    assert "[redacted]" in whole


def test_a_value_too_long_for_mlflow_is_cut_visibly(tracker: Tracker, study: Path) -> None:
    run_id = tell(tracker, study, record_of(1, args={"additional-config": "y" * 9000}))
    assert run_id is not None
    value = MlflowClient(local_store(study)).get_run(run_id).data.params["arg.additional-config"]
    assert len(value) <= 6000
    assert value.endswith("characters in all; whole in the artifact identity.json]")


def test_more_columns_than_a_batch_holds_all_arrive(tracker: Tracker, study: Path) -> None:
    args = {f"flag-{i}": i for i in range(150)}
    gates = tuple(gate(f"canary.c{i}", GateKind.CANARY, repeats=i) for i in range(40))
    run_id = tell(tracker, study, record_of(1, args=args, gates=gates))
    assert run_id is not None
    data = MlflowClient(local_store(study)).get_run(run_id).data
    assert len(data.params) == 300
    assert data.metrics["gates/canary.c39.repeats"] == 39


def test_the_studys_run_holds_its_report(tracker: Tracker, study: Path) -> None:
    ledger = Ledger(study / "ledger.jsonl")
    for record in (control_record(), rejected_record(1), accepted_record(2)):
        ledger.append(record)
        tell(tracker, study, record)
    tracker.finish('{"ended_because": "its budget is spent"}')
    parent = next(run for run in runs(study) if run.data.tags["role"] == "study")
    assert parent.info.status == "FINISHED"
    assert "parity_mismatch" in parent.data.tags["mlflow.note.content"]
    names = {a.path for a in MlflowClient(local_store(study)).list_artifacts(parent.info.run_id)}
    assert {"report.md", "report.html", "summary.json", "figures"} <= names
    assert parent.data.tags["best.trial"] == "2"
    assert parent.data.metrics["trials/rejected"] == 1


def test_a_mismatch_is_a_table_of_what_was_expected_and_what_came(
    tracker: Tracker, study: Path
) -> None:
    run_id = tell(tracker, study, rejected_record(1))
    assert run_id is not None
    client = MlflowClient(local_store(study))
    table = json.loads(
        Path(client.download_artifacts(run_id, "tables/mismatches.json")).read_text()
    )
    assert table["data"][0][:3] == ["parity", "clock", 12]


def test_pages_of_trials_lead_to_their_study_and_control(tracker: Tracker, study: Path) -> None:
    control = control_record()
    control_id = tell(tracker, study, control)
    run_id = tracker.record(rejected_record(1), study / "trials", control)
    assert run_id is not None
    note = MlflowClient(local_store(study)).get_run(run_id).data.tags["mlflow.note.content"]
    assert f"[control: trial 0](#/experiments/1/runs/{control_id})" in note


def test_the_ui_is_opened_on_the_studys_own_trials(tracker: Tracker, study: Path) -> None:
    store = local_store(study)
    assert runs_page("http://x", store, key_of_study(study, "quick")) == "http://x"
    tell(tracker, study, control_record())
    assert runs_page("http://x", store, key_of_study(study, "quick")).startswith(
        "http://x/#/experiments/1/runs?"
    )
    assert runs_page("http://x", store, "another") == "http://x"


def test_the_experiment_offers_views_with_their_filters(tracker: Tracker, study: Path) -> None:
    tell(tracker, study, control_record())
    tell(tracker, study, rejected_record(1))
    tell(tracker, study, invalid_record(2))
    tell(tracker, study, accepted_record(3))
    tell(tracker, study, rejected_record(4, Code.TOO_SLOW))
    tell(tracker, study, rejected_record(5, Code.DEVICE_LOST))
    client = MlflowClient(local_store(study))
    (experiment,) = client.search_experiments(filter_string="name != 'Default'")
    found = {}
    for key, view in VIEWS.items():
        assert len(experiment.tags[TAG + key]) < 5000, "MLflow takes no longer tag"
        envelope = json.loads(experiment.tags[TAG + key])
        search = json.loads(envelope["state"])["searchFilter"]
        runs_found = client.search_runs([experiment.experiment_id], search)
        found[view.name] = sorted(run.info.run_name[:2] for run in runs_found)
    assert found == {
        "Trials: verdict and why": ["0 ", "1 ", "2 ", "3 ", "4 ", "5 "],
        "What won": ["0 ", "3 "],
        "Rejected for what they say": ["1 "],
        "Rejected for speed": ["4 "],
        "Did not start, or died": ["5 "],
        "Attempts that say nothing": ["2 "],
    }
