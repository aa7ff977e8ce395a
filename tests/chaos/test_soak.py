"""Five hundred trials with random faults: each is accounted once, whatever happened to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from benchmarks.overhead.simulated import SimulatedFleet, random_fate
from tests.tuner.scripted_study import write_study
from tuner.study import Stop, Study
from tuner.verdict import Verdict

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

TRIALS = 500
KNOBS = {"idle": {"arg": "--knob-idle", "range": [0, 100_000]}}


def fleet(seed: int) -> SimulatedFleet:
    return SimulatedFleet(4, devices_each=4, seconds=0.01, fate=random_fate(seed))


def test_five_hundred_trials_with_faults_and_restarts_are_five_hundred_trials(
    tmp_path: Path,
) -> None:
    study = write_study(
        tmp_path,
        enqueue=[],
        trials=TRIALS,
        knobs=KNOBS,
        sampler="random",
        tracking={"uri": "http://127.0.0.1:9"},  # nobody answers there, from beginning to end
    )
    for seed in range(3):  # twice it is interrupted somewhere in the middle
        stop = Stop()
        heard = 0

        def listen(event: object, stop: Stop = stop, seed: int = seed) -> None:
            nonlocal heard
            heard += type(event).__name__ == "TrialFinished"
            if seed < 2 and heard == 150:
                stop.ask()

        summary = Study.load(str(study.files.path)).run(
            backend=lambda seed=seed: fleet(seed), listen=listen, stop=stop
        )
    assert not summary.interrupted
    last = {record.number: record for record in study.ledger}
    assert sorted(last) == list(range(TRIALS))
    assert len({record.identity.sha for record in last.values()}) == TRIALS
    attempts = defaultdict(list)
    for record in study.ledger:
        attempts[record.number].append(record)
    for records in attempts.values():
        numbers = [record.attempt for record in records]  # an interrupted attempt leaves a gap
        assert numbers == sorted(set(numbers))
        assert all(record.verdict is Verdict.INVALID for record in records[:-1])
    verdicts = Counter(record.verdict.value for record in last.values())
    assert verdicts["accepted"] == 1
    assert sum(verdicts.values()) == TRIALS
