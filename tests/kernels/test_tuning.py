"""Tuning: exact first, then fast, and nobody's crash but the candidate's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernels
from kernels import Exhaustive, KernelError, KernelTrial, TuneResult, WorkerSettings

OP_FILE = """
import os, time
import torch
from kernels import BitExact, Case, Constraint, Cost, Space, op

@op(
    name="doubled",
    cases=(Case("small", {"rows": 64}),),
    make_inputs=lambda case, rng, device: {
        "x": torch.randint(-9, 9, (case["rows"],), generator=rng, device=device)
    },
    make_outputs=lambda case, inputs: {"y": torch.empty_like(inputs["x"])},
    exactness=BitExact("integers"),
    cost=lambda case, inputs: Cost(bytes=16 * case["rows"], operations=case["rows"]),
)
def doubled(inputs):
    "Twice the input."
    return {"y": inputs["x"] * 2}

@doubled.candidate(separate=True)
def two_steps(inputs, outputs, config):
    time.sleep(0.004)
    torch.add(inputs["x"], inputs["x"], out=outputs["y"])

runs = 0

@doubled.candidate(space=Space(
    {"HOW": ("slow", "fast", "wrong", "crash", "hang", "raise", "racy", "too_big")},
    (Constraint("does not fit", lambda config, params, limits: config["HOW"] != "too_big"),),
))
def tunable(inputs, outputs, config):
    global runs
    how = config["HOW"]
    if how == "crash":
        os._exit(9)
    if how == "hang":
        time.sleep(600)
    if how == "raise":
        raise RuntimeError("out of resources: shared memory")
    if how == "slow":
        time.sleep(0.002)
    torch.mul(inputs["x"], 3 if how == "wrong" else 2, out=outputs["y"])
    if how == "racy":
        runs += 1
        if runs % 150 == 0:
            outputs["y"][0] += 1
    elif how == "fast":
        time.sleep(0.0005)
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> WorkerSettings:
    path = tmp_path_factory.mktemp("ops") / "doubled.py"
    path.write_text(OP_FILE)
    return WorkerSettings(op_files=(str(path),))


@pytest.fixture(scope="module")
def result(settings: WorkerSettings) -> TuneResult:
    return kernels.tune(
        "doubled", "small", candidate="tunable", settings=settings,
        quick_repeats=3, deep_repeats=160, samples=5, trial_timeout_s=6,
    )  # fmt: skip


def test_each_configuration_is_one_trial_with_its_own_end(result: TuneResult) -> None:
    ends = {trial.config["HOW"]: trial.status for trial in result.trials}
    assert ends == {
        "slow": "exact",
        "fast": "exact",
        "wrong": "inexact",
        "crash": "crashed",
        "hang": "hung",
        "raise": "failed",
        "racy": "inexact",
    }


def test_a_winner_that_fails_its_deep_check_gives_way_to_the_next(result: TuneResult) -> None:
    racy = next(trial for trial in result.trials if trial.config["HOW"] == "racy")
    assert racy.reason.startswith("deep check")
    assert result.best is not None
    assert result.best.config == {"HOW": "fast"}
    assert result.deep is not None
    assert [mode["repeats"] for mode in result.deep.modes] == [160, 160]


def test_the_gain_is_told_against_the_separate_steps_and_the_floor(result: TuneResult) -> None:
    assert result.speedup is not None
    assert result.speedup > 2
    assert result.floor_us is not None
    assert result.best is not None
    assert result.best.us is not None
    assert 0 < result.floor_us < result.best.us


def test_what_is_wrong_has_no_time(result: TuneResult) -> None:
    assert all((trial.us is None) == (trial.status != "exact") for trial in result.trials)


def test_a_proposer_is_asked_and_told_and_an_illegal_proposal_is_never_started(
    settings: WorkerSettings,
) -> None:
    class Scripted:
        def __init__(self) -> None:
            self.told: list[tuple[Any, str]] = []
            self.left = ["too_big", "fast"]

        def ask(self) -> dict[str, Any] | None:
            return {"HOW": self.left.pop(0)} if self.left else None

        def tell(self, trial: KernelTrial) -> None:
            self.told.append((trial.config["HOW"], trial.status))

    proposer = Scripted()
    seen: list[int] = []
    found = kernels.tune(
        "doubled", "small", candidate="tunable", settings=settings, proposer=proposer,
        on_trial=lambda trial: seen.append(trial.number), deep_repeats=3, samples=3,
    )  # fmt: skip
    assert proposer.told == [("too_big", "illegal"), ("fast", "exact")]
    assert found.trials[0].reason == "does not fit"
    assert seen == [0, 1]


def test_the_search_can_be_narrowed_and_bounded(settings: WorkerSettings) -> None:
    found = kernels.tune(
        "doubled", "small", candidate="tunable", settings=settings,
        only={"HOW": ["fast", "slow"]}, budget=1, deep_repeats=2, samples=3,
    )  # fmt: skip
    assert len(found.trials) == 1
    assert found.trials[0].config["HOW"] in ("fast", "slow")


def test_exhaustive_search_asks_each_once_in_a_seeded_order() -> None:
    configs = [{"a": number} for number in range(20)]

    def order(seed: int) -> list[Any]:
        proposer = Exhaustive(configs, shuffle_seed=seed)
        return [config["a"] for config in iter(proposer.ask, None)]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20))


def test_a_table_written_is_the_table_read(result: TuneResult, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    kernels.write_table(result, path, command="tuner kernel tune doubled")
    table = kernels.read_table(path)
    assert table.header["identity"]["torch"]
    assert table.header["command"] == "tuner kernel tune doubled"
    assert {row.config["HOW"]: row.status for row in table.rows} == {
        trial.config["HOW"]: trial.status for trial in result.trials
    }


def test_a_file_that_is_no_table_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({"table": "something else"}) + "\n")
    with pytest.raises(KernelError, match="line 1"):
        kernels.read_table(path)


def test_a_candidate_that_cannot_run_here_is_refused_with_the_reason() -> None:
    with pytest.raises(KernelError, match="triton_grouped"):
        kernels.tune("grouped_gemm_w8a8", "tiny_sparse_gemm1", candidate="triton_grouped",
                     settings=WorkerSettings(device="cpu"))  # fmt: skip
