"""Measures every configuration of a space on the real engine, to be replayed as a table.

    python -m benchmarks.search.record            # hours on a quiet machine; stop and go on at will
    python -m benchmarks.search.record --pack     # what was measured, as tables/vllm-cpu.json.gz

Each configuration is started by itself, measured for its decode rate, and asked for its tokens,
which are compared with the control's. The control is measured again after every dozen
configurations, and rates are divided by the drift of the control around them. A line in
`results/vllm-cpu.jsonl` per configuration is the progress; what stands there is not measured again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks.search.tables import key
from objectives import Endpoint, EndpointError, Objective, measure_rate, record_oracle
from runners import EngineFailure, InProcessBackend, Lease, Runner, engine_identity, open_engine
from runners.backend import Finished, Report
from search_spaces import Configuration, SearchSpace, SpaceDocument
from tuner.catalog import find
from tuner.document import load
from tuner.identity import sha256_of

HERE = Path(__file__).parent
ROWS = HERE / "results" / "vllm-cpu.jsonl"
TABLE = HERE / "tables" / "vllm-cpu.json.gz"
CONTROL_EVERY = 12
REPEATS = 3
SEED = 1
WAIT_S = 1800.0


class Measurement:
    """One configuration on one lease: a task that a backend can run."""

    def __init__(
        self, runner: Runner, objective: Objective, configuration: Configuration, folder: Path
    ) -> None:
        self.runner, self.objective = runner, objective
        self.configuration, self.folder = configuration, folder

    def __call__(self, lease: Lease, _report: Report) -> dict[str, Any]:
        """Rate (None: it did not serve) and tokens of every parity prompt."""
        began = time.monotonic()
        row: dict[str, Any] = {"tok_s": None, "tokens": None, "failure": None}
        try:
            server, _ = open_engine(
                self.runner,
                args=self.configuration.args,
                env=self.configuration.env,
                lease=lease,
                directory=self.folder,
                marker=f"search-table/{self.folder.name}",
            )
            try:
                endpoint = Endpoint(server.base_url, server.model)
                rate = measure_rate(endpoint, self.objective.workload, repeats=REPEATS, seed=SEED)
                oracle = record_oracle(
                    endpoint, self.objective, identity_sha=self.folder.name, margins=False
                )
                row["tok_s"] = rate.tok_s.mean
                row["tok_s_interval"] = [rate.tok_s.low, rate.tok_s.high]
                row["tokens"] = sha256_of([list(trace.ids) for trace in oracle.traces])
            except EndpointError as error:
                row["failure"] = server.diagnose(error).code
            finally:
                server.stop()
        except EngineFailure as error:
            row["failure"] = error.failure.code
        return row | {"seconds": round(time.monotonic() - began, 1)}


def measure(backend: InProcessBackend, task: Measurement) -> dict[str, Any]:
    """Run one measurement to its end."""
    ticket = backend.submit(task, devices=task.runner.devices)
    while True:
        event = backend.next_event(WAIT_S)
        if isinstance(event, Finished) and event.ticket == ticket:
            result: dict[str, Any] = event.result
            return result
        if event is None:
            raise TimeoutError(f"nothing was heard of {task.folder.name} for {WAIT_S:.0f} s")


def record(space: SearchSpace, runner: Runner, objective: Objective, most: int | None) -> None:
    """Measure what is missing, the control in between."""
    ROWS.parent.mkdir(exist_ok=True)
    lines = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    there = {key(row["assignment"]) for row in lines if row["role"] == "candidate"}
    control = space.control().assignment
    todo = [one for one in space.enumerate() if one != control and key(one) not in there][:most]
    backend = InProcessBackend()
    try:
        with ROWS.open("a") as rows:
            for at, assignment in enumerate(todo):
                batch = [("candidate", assignment)]
                if at % CONTROL_EVERY == 0:
                    batch.insert(0, ("control", control))
                for role, values in batch:
                    folder = HERE / "results" / "sessions" / f"{time.time_ns()}"
                    folder.mkdir(parents=True)
                    task = Measurement(runner, objective, space.configure(values), folder)
                    row = {"role": role, "assignment": values, **measure(backend, task)}
                    rows.write(json.dumps(row) + "\n")
                    rows.flush()
                    print(f"{at + 1}/{len(todo)} {role} {row['tok_s']} {row['failure'] or ''}")
    finally:
        backend.close()


def pack(space: SearchSpace, runner: Runner) -> None:
    """The table: drift taken out, tokens compared, with what it was measured on."""
    lines = [json.loads(line) for line in ROWS.read_text().splitlines()]
    first = next(line for line in lines if line["role"] == "control")
    drift, packed = 1.0, []
    for line in lines:
        if line["role"] == "control":
            drift = line["tok_s"] / first["tok_s"]
        tok_s = None if line["tok_s"] is None else round(line["tok_s"] / drift, 3)
        if line["role"] == "candidate" or line is first:
            packed.append(
                {
                    "assignment": line["assignment"],
                    "tok_s": tok_s,
                    "same_tokens": line["tokens"] == first["tokens"],
                    "failure": line["failure"],
                }
            )
    missing = len(list(space.enumerate())) - len(packed)
    if missing:
        raise SystemExit(f"{missing} configurations are not measured yet; run without --pack")
    identity = engine_identity(runner) | {"machine": platform.processor(), "repeats": REPEATS}
    TABLE.parent.mkdir(exist_ok=True)
    document = {"identity": identity, "space": space.model_dump(mode="json", by_alias=True,
                exclude_unset=True), "rows": packed}  # fmt: skip
    with gzip.open(TABLE, "wt", encoding="utf-8") as file:
        json.dump(document, file)
    print(f"{TABLE}: {len(packed)} configurations")


def main() -> None:
    """Measure, or pack what was measured."""
    parser = argparse.ArgumentParser(description="Record a table on the real engine")
    parser.add_argument("--space", type=Path, default=HERE / "vllm-cpu-table.yaml")
    parser.add_argument("--runner", default="vllm-cpu")
    parser.add_argument("--objective", default="quick")
    parser.add_argument("--most", type=int, help="measure at most so many now")
    parser.add_argument("--pack", action="store_true")
    options = parser.parse_args()
    space = SpaceDocument.read(options.space).space()
    runner = load(find("runner", options.runner, Path.cwd()), Runner)
    if options.pack:
        pack(space, runner)
        return
    objective = load(find("objective", options.objective, Path.cwd()), Objective)
    record(space, runner, objective, options.most)


if __name__ == "__main__":
    main()
