"""The driver is killed in the middle of a study on Ray: nothing is left, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from runners import InProcessBackend
from runners.process import marked
from tests.runners.scripted import eventually
from tests.tuner.scripted_study import write_study
from tuner.study import Study
from tuner.verdict import Verdict

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

DRIVER = """
    import sys
    from tuner.events import TrialFinished
    from tuner.study import Study
    def listen(event):
        if isinstance(event, TrialFinished):
            print("finished", event.number, flush=True)
    Study.load(sys.argv[1]).run(listen=listen)
"""


def children(pid: int) -> set[int]:
    """The process and everything below it, as the kernel shows it now."""
    found, new = set(), {pid}
    while new:
        found |= new
        new = {
            int(stat.parent.name)
            for stat in Path("/proc").glob("[0-9]*/stat")
            if _parent(stat) in found
        } - found
    return found


def _parent(stat: Path) -> int | None:
    try:
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_driver_leaves_nothing_and_its_study_goes_on(tmp_path: Path) -> None:
    study = write_study(
        tmp_path,
        enqueue=[{"speed": 0.5}, {"wrong": 1}, {"block_size": "startup"}, {"speed": 1.5}],
        trials=5,
        flags=("--leave-orphan",),
    )
    path = str(study.files.path)
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "finished 0\n"
    assert driver.stdout.readline().startswith("finished")
    assert eventually(lambda: bool(marked(study.marker)), 20), "no engine of the next trial"
    family = children(driver.pid)
    assert len(family) > 5, "Ray's processes and the trial's actor"
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    began = time.monotonic()
    assert eventually(lambda: not marked(study.marker), 15)
    assert eventually(lambda: not any(lives(pid) for pid in family), 15 - time.monotonic() + began)
    kept = [json.loads(line) for line in (study.folder / "ledger.jsonl").read_text().splitlines()]
    assert len(kept) >= 2

    Study.load(path).run(backend=InProcessBackend)
    records = [json.loads(r.model_dump_json()) for r in study.ledger]
    assert records[: len(kept)] == [json.loads(json.dumps(record)) for record in kept]
    settled = [r for r in study.ledger if r.verdict is not Verdict.INVALID]
    assert [record.number for record in settled] == [0, 1, 2, 3, 4]
    assert marked(study.marker) == []
