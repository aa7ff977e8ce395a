"""A whole study with a fault in each trial: verdict, blame, nothing left, none lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from runners import Device, DeviceReading, Health, InProcessBackend
from runners.process import marked
from tests.tuner.scripted_study import write_study
from tuner.study import Study
from tuner.verdict import Verdict

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LOST = "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"

FAST = {"knob-speed": 2.0}
"""For faults that only show once it serves: what is not faster is not looked at for long."""

FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    # name: (arguments of the scripted engine, verdict, code)
    "dies in start-up": ({"die-at": "startup"}, "rejected", "startup_crash"),
    "hangs in start-up": ({"hang-at": "startup"}, "rejected", "readiness_timeout"),
    "dies at its first request": ({"die-at": "request:1"}, "rejected", "first_request_failed"),
    "hangs at its first request": ({"hang-at": "request:1"}, "rejected", "first_request_failed"),
    "answers its first request with 500": (
        {"fail-request": 1},
        "rejected",
        "first_request_failed",
    ),
    "dies while it serves": ({"die-at": "request:4", **FAST}, "rejected", "engine_died"),
    "dies in the middle of a stream": (
        {"die-at": "midstream:4", **FAST},
        "rejected",
        "engine_died",
    ),
    "hangs while it serves": ({"hang-at": "request:4", **FAST}, "rejected", "engine_hung"),
    "hangs in the middle of a stream": (
        {"hang-at": "midstream:4", **FAST},
        "rejected",
        "engine_hung",
    ),
    "answers a request with 500": ({"fail-request": 4, **FAST}, "rejected", "request_failed"),
    "refuses its arguments": ({"no-such-flag": 1}, "rejected", "argument_refused"),
    "runs out of memory": (
        {"print": "torch.OutOfMemoryError: XPU out of memory.", "die-at": "startup"},
        "rejected",
        "out_of_memory",
    ),
    "waits on an event of a graph": (
        {
            "print": "RuntimeError: wait method cannot be used for an event associated with a "
            "command graph.",
            "die-at": "startup",
        },
        "rejected",
        "graph_event_wait",
    ),
    "is slow": ({"knob-speed": 0.3}, "rejected", "too_slow"),
    "says something else": ({"flip-token-at": 5, **FAST}, "rejected", "parity_mismatch"),
    "says something else at a canary's repeat": (
        {"corrupt-canary-at": 3, **FAST},
        "rejected",
        "canary_mismatch",
    ),
    "does not stop when asked": (
        {"ignore-sigint": True, "ignore-sigterm": True, "knob-speed": 0.3},
        "rejected",
        "too_slow",
    ),
    "leaves an orphan": ({"leave-orphan": True, "knob-speed": 0.3}, "rejected", "too_slow"),
    "finds the disk full": (
        {"print": "OSError: [Errno 28] No space left on device", "die-at": "startup"},
        "rejected",
        "host_fault",
    ),
    "finds its port taken": (
        {"print": "OSError: [Errno 98] Address already in use", "die-at": "startup"},
        "rejected",
        "host_fault",
    ),
}
"""What fails alike on three different hosts is held against the candidate in the end."""


def four_hosts() -> InProcessBackend:
    cpus = [Device("cpu", 0, "fake", host) for host in ("alpha", "beta", "gamma", "delta")]
    return InProcessBackend([DeviceReading(cpu, Health.HEALTHY) for cpu in cpus])


def knob(faults: dict[str, tuple[dict[str, Any], str, str]]) -> dict[str, Any]:
    return {
        "fault": {
            "choices": ["none", *faults],
            "default": "none",
            "sets": {name: {"args": args} for name, (args, _, _) in faults.items()},
        }
    }


def write_faulty_study(folder: Path, faults: dict[str, Any]) -> Study:
    study = write_study(
        folder,
        knobs=knob(faults),
        enqueue=[{"fault": name} for name in faults],
        trials=len(faults) + 1,
    )
    yaml = YAML(typ="safe")
    runner = yaml.load((folder / "runner.yaml").read_text())
    runner["timeouts"] |= {"ready_s": 6, "first_token_s": 4, "request_s": 4, "teardown_s": 3}
    yaml.dump(runner, folder / "runner.yaml")
    return Study.load(str(study.files.path))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    made = write_faulty_study(tmp_path_factory.mktemp("faults"), FAULTS)
    made.run(backend=four_hosts)
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_verdict_and_code(study: Study, fault: str) -> None:
    _, verdict, code = FAULTS[fault]
    (record,) = [trial for trial in study.trials if trial.assignment["fault"] == fault]
    assert record.rejection is not None
    assert (record.verdict.value, record.rejection.code.value) == (verdict, code)
    assert record.rejection.reason


def test_each_trial_is_accounted_exactly_once(study: Study) -> None:
    tried = Counter(trial.assignment["fault"] for trial in study.trials)
    assert tried == Counter(["none", *FAULTS])


def test_what_the_host_did_was_tried_on_three_hosts_before_it_was_held_against_anybody(
    study: Study,
) -> None:
    attempts = [r for r in study.ledger if r.assignment["fault"] == "finds the disk full"]
    assert [attempt.verdict for attempt in attempts] == [
        Verdict.INVALID,
        Verdict.INVALID,
        Verdict.REJECTED,
    ]
    assert len({attempt.host for attempt in attempts}) == 3


def test_nothing_is_left_of_any_of_them(study: Study) -> None:
    assert marked(study.marker) == []


def test_the_control_was_never_blamed(study: Study) -> None:
    assert study.best is not None
    assert study.best.assignment["fault"] == "none"
