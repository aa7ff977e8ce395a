"""How much time and memory the tuner itself takes: `python -m benchmarks.overhead.measure PART`.

Parts: `one-host` (a real study on a local Ray, scripted engines, SQLite and MLflow), `fleet` (how
many simulated one-second trials a driver keeps going) and `memory` (the driver after many trials).
Prints one JSON object per part, with the machine's load, since other work falsifies such figures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.overhead.simulated import SimulatedFleet
from tests.tuner.scripted_study import write_study
from tuner.study import Study

KNOBS = {
    "idle": {"arg": "--knob-idle", "range": [0, 999]},
    "seed": {"arg": "--seed", "range": [0, 999]},
}
NOWHERE = "http://127.0.0.1:9"
"""A tracking server that is away: what is measured is then the driver without MLflow."""


class Clock:
    """Hears a study and notes when each trial was settled."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, float]] = []

    def __call__(self, event: object) -> None:
        """One event of the study."""
        if type(event).__name__ == "TrialFinished":
            self.settled.append((getattr(event, "number", -1), time.monotonic()))

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one settled trial and the next, without the control."""
        times = [at for number, at in self.settled if number]
        return [after - before for before, after in itertools.pairwise(times)]


def one_host(trials: int) -> dict[str, Any]:
    """Seconds of a trial that are spent in neither engine nor gates, one trial after the other."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder), enqueue=[], trials=trials, knobs=KNOBS, sampler="random")
        study.run(listen=clock)
        spent = {record.number: sum(record.seconds_by_rung.values()) for record in study.ledger}
    numbers = [number for number, _ in clock.settled if number]
    overhead = [gap - spent[number] for number, gap in zip(numbers[1:], clock.gaps_s, strict=True)]
    return {
        "part": "one-host",
        "trials": trials,
        "overhead_s_median": round(statistics.median(overhead), 3),
        "overhead_s_max": round(max(overhead), 3),
        "engine_and_gates_s_median": round(statistics.median(spent.values()), 3),
    }


def fleet(hosts: int, trials: int, sampler: str, tracking: bool) -> dict[str, Any]:
    """The share of simulated hosts that one driver keeps busy with one-second trials."""
    made = SimulatedFleet(hosts, seconds=1.0)
    with tempfile.TemporaryDirectory() as folder:
        _study(Path(folder), trials, sampler, tracking).run(backend=lambda: made)
    assert made.began_candidates is not None, "no candidate was drawn"
    wall_s = made.last_end - made.began_candidates
    rate = (trials - 1) / wall_s  # asked, submitted, settled and recorded per second
    return {
        "part": "fleet",
        "hosts": hosts,
        "trials": trials,
        "sampler": sampler,
        "mlflow": tracking,
        "busy_share": round(made.busy_s / (hosts * wall_s), 3),
        "trials_per_s": round(rate, 1),
        "seconds_per_trial_for_90_percent_busy": round(0.9 * hosts / rate, 1),
    }


def memory(trials: int, sampler: str) -> dict[str, Any]:
    """The driver's largest resident memory after many trials."""
    with tempfile.TemporaryDirectory() as folder:
        study = _study(Path(folder), trials, sampler, tracking=False)
        study.run(backend=lambda: SimulatedFleet(64, seconds=0.01))
        records = len(study.ledger)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "part": "memory",
        "trials": trials,
        "sampler": sampler,
        "records": records,
        "peak_mib": round(peak_kib / 1024),
    }


def _study(folder: Path, trials: int, sampler: str, tracking: bool) -> Study:
    more: dict[str, Any] = {} if tracking else {"tracking": {"uri": NOWHERE}}
    return write_study(folder, enqueue=[], trials=trials, knobs=KNOBS, sampler=sampler, **more)


def main() -> None:
    """One part, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["one-host", "fleet", "memory"])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--no-mlflow", action="store_true")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    match chosen.part:
        case "one-host":
            result = one_host(chosen.trials)
        case "fleet":
            result = fleet(chosen.hosts, chosen.trials, chosen.sampler, not chosen.no_mlflow)
        case _:
            result = memory(chosen.trials, chosen.sampler)
    print(json.dumps({**result, "load_1m": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()
