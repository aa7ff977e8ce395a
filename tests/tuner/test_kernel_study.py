"""A kernel's tune is a study: sampled, recorded, judged, told to MLflow, and continued."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="kernels need the extra `kernels` (torch)")

from typer.testing import CliRunner

from kernels import Ground, KernelError, KernelTrial, TuneResult, WorkerSettings, ground_of
from mlflow import MlflowClient
from tuner.kernel_cli import app
from tuner.kernel_study import KernelStudy, tune_in
from tuner.ledger import Ledger, TrialRecord
from tuner.tracking import local_store
from tuner.verdict import Code, Verdict

OP_FILE = """
import os, time
import torch
from kernels import BitExact, Case, Constraint, Cost, Space, op

@op(
    name="tripled",
    cases=(Case("small", {"rows": 64}),),
    make_inputs=lambda case, rng, device: {
        "x": torch.randint(-9, 9, (case["rows"],), generator=rng, device=device)
    },
    make_outputs=lambda case, inputs: {"y": torch.empty_like(inputs["x"])},
    exactness=BitExact("integers"),
    cost=lambda case, inputs: Cost(bytes=16 * case["rows"], operations=case["rows"]),
)
def tripled(inputs):
    "Three times the input."
    return {"y": inputs["x"] * 3}

@tripled.candidate(separate=True)
def steps(inputs, outputs, config):
    time.sleep(0.004)
    torch.mul(inputs["x"], 3, out=outputs["y"])

@tripled.candidate(space=Space(
    {"HOW": ("plain", "lazy", "fast", "wrong", "crash", "hang"), "TILE": (1, 2)},
    (Constraint(
        "the tile does not fit",
        lambda config, params, limits: config["TILE"] == 1 or config["HOW"] == "fast",
    ),),
))
def tunable(inputs, outputs, config):
    how = config["HOW"]
    if how == "crash":
        os._exit(9)
    if how == "hang":
        time.sleep(600)
    time.sleep({"plain": 0.001, "lazy": 0.003}.get(how, 0))
    torch.mul(inputs["x"], 2 if how == "wrong" else 3, out=outputs["y"])
"""
LEGAL = 7  # six with the small tile, and the fast one with the large


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> WorkerSettings:
    path = tmp_path_factory.mktemp("ops") / "tripled.py"
    path.write_text(OP_FILE)
    return WorkerSettings(op_files=(str(path),), device="cpu", env={"OMP_NUM_THREADS": "1"})


def tuned(folder: Path, settings: WorkerSettings, **options: Any) -> TuneResult:
    return tune_in(
        folder, "tripled", "small", candidate="tunable", settings=settings, seed=3,
        quick_repeats=2, deep_repeats=5, samples=5, trial_timeout_s=6, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that MLflow has laid out once, as that takes it seconds."""
    folder = tmp_path_factory.mktemp("store")
    MlflowClient(local_store(folder)).search_experiments()
    return folder / "mlflow.db"


def with_store(folder: Path, empty_store: Path) -> Path:
    folder.mkdir(exist_ok=True)
    shutil.copyfile(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    return with_store(tmp_path_factory.mktemp("study"), empty_store)


@pytest.fixture
def study_folder(tmp_path: Path, empty_store: Path) -> Path:
    return with_store(tmp_path / "study", empty_store)


@pytest.fixture(scope="module")
def result(folder: Path, settings: WorkerSettings) -> TuneResult:
    """Three trials, an end, and then all the others, as after an interruption."""
    tuned(folder, settings, trials=3)
    return tuned(folder, settings)


@pytest.fixture(scope="module")
def records(folder: Path, result: TuneResult) -> list[TrialRecord]:
    assert result.best is not None
    return list(Ledger(folder / "ledger.jsonl"))


def how(records: list[TrialRecord], value: str) -> list[TrialRecord]:
    return [record for record in records if record.assignment["HOW"] == value]


def test_a_crash_and_a_hang_each_cost_their_own_trial(records: list[TrialRecord]) -> None:
    codes = {
        record.assignment["HOW"]: record.rejection.code
        for record in records
        if record.failure is not None and record.rejection is not None
    }
    assert codes == {"crash": Code.ENGINE_DIED, "hang": Code.ENGINE_HUNG}
    assert all(record.verdict is Verdict.REJECTED for record in how(records, "crash"))
    assert len({record.number for record in records}) == LEGAL


def test_what_is_inexact_is_rejected_by_its_exactness_gate(records: list[TrialRecord]) -> None:
    (wrong,) = how(records, "wrong")
    assert wrong.rejection is not None
    assert wrong.rejection.code is Code.PARITY_MISMATCH
    assert wrong.rejection.gate == "parity.exactness"
    assert wrong.rate is None


def test_what_is_slower_than_the_default_is_rejected_with_both_times(
    records: list[TrialRecord],
) -> None:
    lazy = how(records, "lazy")[0]
    assert lazy.rejection is not None
    assert lazy.rejection.code is Code.TOO_SLOW
    assert "the default configuration" in lazy.rejection.reason


def test_the_default_comes_first_as_the_control_of_the_others(records: list[TrialRecord]) -> None:
    assert records[0].role == "control"
    assert records[0].assignment == {"HOW": "plain", "TILE": 1}
    assert {r.control_sha for r in records if r.role == "candidate"} == {records[0].identity.sha}


def test_only_the_deeply_proven_winner_is_accepted(
    records: list[TrialRecord], result: TuneResult
) -> None:
    winner = records[-1]
    assert winner.verdict is Verdict.ACCEPTED
    assert winner.rung == "deep"
    assert winner.assignment["HOW"] == "fast"
    assert result.best is not None
    assert winner.assignment == result.best.config
    speed = winner.gate("speed")
    assert speed is not None
    assert speed.evidence["ratio"] > 2
    assert winner.judgement.quality_validated
    exactness = winner.gate("parity.exactness")
    assert exactness is not None
    assert "5 x eager" in exactness.reason
    earlier = next(record for record in records if record.number == winner.number)
    assert earlier.verdict is Verdict.PROMISING


def test_an_identity_says_what_decides_a_time(records: list[TrialRecord]) -> None:
    identity = records[0].identity
    assert identity.model == {"op": "tripled"}
    assert identity.workload == {"name": "small", "params": {"rows": 64}}
    assert identity.configuration["args"] == {"HOW": "plain", "TILE": 1}
    assert identity.engine["candidate"] == "tunable"
    assert identity.engine["torch"]
    assert {"triton", "sources_sha"} <= identity.engine.keys()
    assert {"device", "driver"} <= identity.topology.keys()


def test_an_interrupted_tune_goes_on_and_repeats_nothing(
    records: list[TrialRecord], result: TuneResult
) -> None:
    quick = [record for record in records if record.gates[-1].rung == "smoke"]
    assert len({str(record.assignment) for record in quick}) == len(quick) == LEGAL
    assert len(result.trials) == LEGAL


def test_each_attempt_is_one_run_of_mlflow_with_its_time(
    folder: Path, records: list[TrialRecord]
) -> None:
    client = MlflowClient(local_store(folder))
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = [r for r in client.search_runs(experiments) if r.data.tags["role"] != "study"]
    assert {(r.data.tags["trial"], r.data.tags["attempt"]) for r in runs} == {
        (str(record.number), str(record.attempt)) for record in records
    }
    died = [r for r in runs if r.data.tags.get("rejection.code") == "engine_died"]
    assert len(died) == 1
    accepted = next(r for r in runs if r.data.tags["verdict"] == "accepted")
    speed = records[-1].gate("speed")
    assert speed is not None
    assert accepted.data.metrics["gates/speed.us"] == pytest.approx(speed.evidence["us"])


@pytest.fixture(scope="module")
def ground(settings: WorkerSettings) -> Ground:
    return ground_of("tripled", "small", candidate="tunable", settings=settings)


def exact(config: dict[str, Any], us: float = 5.0) -> KernelTrial:
    return KernelTrial(0, config, "exact", "exact", us=us, low_us=us, high_us=us)


def test_equal_seeds_ask_equally_and_only_what_is_legal(
    ground: Ground, tmp_path: Path, empty_store: Path
) -> None:
    def asked(name: str, seed: int) -> list[Any]:
        study = KernelStudy(with_store(tmp_path / name, empty_store), ground, seed=seed)
        found = []
        while (config := study.ask()) is not None:
            found.append(config)
            study.tell(exact(config, us=3.0 + len(config["HOW"])))
        return found

    first = asked("one", 1)
    assert first == asked("two", 1)
    assert len(first) == LEGAL
    assert all(ground.refusal(config) is None for config in first)


def test_a_trial_that_ran_when_the_process_died_is_run_again(
    ground: Ground, study_folder: Path
) -> None:
    study = KernelStudy(study_folder, ground)
    first = study.ask()
    assert first is not None
    study.tell(exact(first))
    lost = study.ask()
    again = KernelStudy(study_folder, ground)
    assert [trial.config for trial in again.earlier] == [first]
    assert again.ask() == lost


def test_a_worker_that_cannot_start_accuses_no_configuration(
    ground: Ground, study_folder: Path
) -> None:
    study = KernelStudy(study_folder, ground)
    config = study.ask()
    assert config is not None
    study.tell(KernelTrial(0, config, "not_started", "no such Python"))
    (record,) = study.ledger
    assert record.verdict is Verdict.INVALID
    assert study.ask() == config


def test_other_code_stands_on_other_ground(ground: Ground, study_folder: Path) -> None:
    study = KernelStudy(study_folder, ground, trials=1)
    config = study.ask()
    assert config is not None
    study.tell(exact(config))
    assert study.ask() is None
    changed = KernelStudy(study_folder, replace(ground, sources_sha="other"), trials=1)
    assert changed.earlier == ()
    assert changed.ask() == config


def test_values_that_leave_nothing_legal_are_refused(ground: Ground, study_folder: Path) -> None:
    with pytest.raises(KernelError, match="is legal"):
        KernelStudy(study_folder, ground, only={"HOW": ["wrong"], "TILE": [2]})


def test_the_command_line_keeps_a_study_in_a_folder(study_folder: Path) -> None:
    words = ["tune", "rms_norm", "--case", "r5_h131", "--candidate", "torch_functional",
             "--repeats", "3", "--device", "cpu", "--folder", str(study_folder), "--sampler", "tpe",
             "--seed", "4", "--trials", "2"]  # fmt: skip
    for _ in range(2):
        ran = CliRunner().invoke(app, words, env={"OMP_NUM_THREADS": "1", "COLUMNS": "200"})
        assert ran.exit_code == 0, ran.output
    lines = (study_folder / "ledger.jsonl").read_text().splitlines()
    assert {json.loads(line)["number"] for line in lines} == {0}
