"""MLflow as a projection of the ledger: one experiment per lane, a run per study, a run per trial.

MLflow is told of a trial after the ledger has it. A server that cannot be reached stops nothing:
what it has not heard waits in the study's outbox, and is sent with the next trial, by `flush`, or
when the study is opened again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.redaction import is_secret, redact_text
from tuner import mlflow_views
from tuner.identity import sha256_of
from tuner.ledger import Ledger, TrialRecord
from tuner.notebook import entry
from tuner.outbox import Outbox, Parcel
from tuner.run_artifacts import stage_artifacts
from tuner.run_fields import LONGEST_TAG, Point, RunFields, run_fields, shorten
from tuner.study_id import study_id
from tuner.study_page import fill_study_page
from tuner.verdict import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

RETRY_AFTER_S = 60.0
"""After a failure to reach the server, trials are only queued for this long: no study waits."""

BATCH = 900
"""Values in one request; MLflow takes 1000 metrics, of which we stay clear."""

NAMES_IN_BATCH = 90
"""Params or tags in one request; MLflow takes 100."""

NOTE = "mlflow.note.content"
PARENT = "mlflow.parentRunId"
KEY = "tuner.key"
RECORD_SHA = "tuner.record.sha"


def local_store(study_directory: Path) -> str:
    """The default store: a SQLite file in the study's folder, by its absolute path."""
    return f"sqlite:///{study_directory.resolve() / 'mlflow.db'}"


def shown(uri: str) -> str:
    """The URI without a password, for messages."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", uri)


def runs_page(server: str, store: str, study_key: str) -> str:
    """The address of the table with a study's trials, on a UI at `server` that shows `store`.

    `study_key` is the study's name and id, as `key_of_study` gives it.

    The front page of that UI if the store holds nothing of the study.
    """
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    for experiment in client.search_experiments():
        found = client.search_runs(
            [experiment.experiment_id], f"tags.`{KEY}` = '{study_key}'", max_results=1
        )
        if found:
            return mlflow_views.link(server, experiment.experiment_id)
    return server


def key_of_study(folder: Path, name: str) -> str:
    """What names a study on a server that several people use: its name and its id."""
    return f"{name}@{study_id(folder)}"


class Tracker:
    """Tells MLflow of a study's trials.

    `uri` is any MLflow tracking URI, None for the study's own SQLite file; user, password and
    token come from MLflow's own variables (MLFLOW_TRACKING_USERNAME, _PASSWORD, _TOKEN). `secrets`
    are names (or patterns) of variables whose values must appear nowhere.
    """

    def __init__(
        self,
        uri: str | None,
        study_directory: Path,
        study_name: str,
        lane: str,
        *,
        lane_label: str = "",
        secrets: Sequence[str] = (),
    ) -> None:
        self.uri = uri or local_store(study_directory)
        self.study_directory = study_directory.resolve()
        self.study_name = study_name
        self.study_key = key_of_study(self.study_directory, study_name)
        self.lane = lane
        self.experiment_name = f"{lane_label or 'lane'} · {lane[:12]}"
        self._outbox = Outbox(self.study_directory / "outbox" / lane[:12])
        self._hidden = [
            value
            for name, value in os.environ.items()
            if is_secret(name, secrets) and len(value) > 3
        ]
        self._accepted: dict[str, TrialRecord] = {}
        self._runs: dict[str, tuple[str, str]] = {}
        self._silent_until = 0.0
        self._connection: MlflowClient | None = None
        self._experiment: str | None = None

    @property
    def waiting(self) -> int:
        """How many trials MLflow has not heard of yet."""
        return len(self._outbox)

    def record(
        self, record: TrialRecord, directory: Path, control: TrialRecord | None = None
    ) -> str | None:
        """Tell MLflow of a trial, or queue it; recording an attempt twice updates one run.

        `directory` holds the trial's evidence. `control` is the record of the identity it was
        compared with, by default the accepted one recorded here before under `record.control_sha`.
        Returns the run's id, None if the trial was queued. A trial of another lane is left out:
        it belongs to another experiment. Raises OSError if the disk refuses.
        """
        if record.lane != self.lane:
            return None
        control = control or self._accepted.get(record.control_sha or "")
        if record.verdict is Verdict.ACCEPTED:
            self._accepted[record.identity.sha] = record
        key = self._key(record)
        if key in self._runs and self._runs[key][1] == sha256_of(record.model_dump(mode="json")):
            return self._runs[key][0]
        place = directory.resolve()
        inside = place.is_relative_to(self.study_directory)
        relative = str(place.relative_to(self.study_directory) if inside else place)
        self._outbox.put(Parcel(record=record, control=control, directory=relative))
        if time.monotonic() < self._silent_until:
            return None
        return self._send_waiting().get(record.key)

    def flush(self) -> int:
        """Send everything that waits, now; returns how many trials still wait."""
        self._send_waiting()
        return self.waiting

    def finish(self, summary: str) -> None:
        """Put the study's report, its figures and `summary` (JSON) on its run, and end that run.

        `summary` holds what the ledger does not, such as why the study ended. Where the server is
        away nothing is queued: the next run of the study writes all of it again.
        """
        self.flush()
        try:
            client = self._client()
            run_id = self._study_run(client)
            ledger = Ledger(self.study_directory / "ledger.jsonl")
            records = [record for record in ledger if record.lane == self.lane]
            fill_study_page(client, run_id, records, self._redact)
            client.log_text(run_id, self._redact(summary), "summary.json")
            client.set_terminated(run_id, "FINISHED")
        except Exception as error:  # noqa: BLE001 - whatever the server does, no study ends by it
            self._note_failure(error)

    def run_url(self, run_id: str) -> str | None:
        """Where a browser shows the run; None for a local store, which `tuner ui` serves."""
        if not self.uri.startswith("http"):
            return None
        return f"{self.uri.rstrip('/')}/#/experiments/{self._experiment}/runs/{run_id}"

    # What follows talks to MLflow.

    def _send_waiting(self) -> dict[tuple[int, int], str]:
        """Send what waits, in order; returns the runs of what was sent.

        Two failures in a row mean that the server is away. One alone may be a parcel that no
        server takes, and must not keep the others waiting.
        """
        sent: dict[tuple[int, int], str] = {}
        failures = 0
        for path in self._outbox:
            try:
                parcel = self._outbox.open(path)
                sent[parcel.record.key] = self._send(parcel)
            except Exception as error:  # noqa: BLE001 - a projection must never stop a study
                self._note_failure(error)
                failures += 1
                if failures == 2:
                    break
            else:
                failures = 0
                path.unlink(missing_ok=True)
        return sent

    def _note_failure(self, error: Exception) -> None:
        self._silent_until = time.monotonic() + RETRY_AFTER_S
        self._connection = None
        log.warning(
            "MLflow at %s did not take the results (%s); %d trials wait in %s and are sent later.",
            shown(self.uri),
            self._redact(str(error).splitlines()[0] if str(error) else type(error).__name__),
            self.waiting,
            self._outbox.folder,
        )

    def _client(self) -> MlflowClient:
        if self._connection is None:
            # A dead server must cost a trial seconds, not the minutes of MLflow's default retries.
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
            # It would print an address after each run, into the middle of the live view.
            os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
            from mlflow import MlflowClient  # two seconds of import, which other verbs do not need

            self._probe()
            client = MlflowClient(tracking_uri=self.uri)
            self._experiment = self._find_experiment(client)
            self._runs = self._find_runs(client)
            self._connection = client
        return self._connection

    def _probe(self) -> None:
        """Raise at once for a SQLite file that is no store, where MLflow tries for minutes."""
        path = self.uri.removeprefix("sqlite:///")
        if path != self.uri:
            with contextlib.closing(sqlite3.connect(path, timeout=5)) as store:
                store.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()

    def _find_experiment(self, client: MlflowClient) -> str:
        found = client.get_experiment_by_name(self.experiment_name)
        tags = self._experiment_tags()
        if found is not None:
            for name, value in tags.items():
                if found.tags.get(name) != value:
                    client.set_experiment_tag(found.experiment_id, name, value)
            return str(found.experiment_id)
        # Only a local store needs to be told where artifacts lie; a server decides for itself.
        remote = self.uri.startswith("http")
        place = None if remote else (self.study_directory / "artifacts").as_uri()
        return str(
            client.create_experiment(
                self.experiment_name,
                artifact_location=place,
                tags=tags,
            )
        )

    def _experiment_tags(self) -> dict[str, str]:
        return {
            NOTE: mlflow_views.GUIDE,
            "lane": self.lane,
            "mlflow.experimentKind": "custom_model_development",
            "mlflow.experiment.primaryMetric.name": "tok_s",
            "mlflow.experiment.primaryMetric.greaterIsBetter": "True",
            **{mlflow_views.TAG + key: view.as_tag() for key, view in mlflow_views.VIEWS.items()},
        }

    def _find_runs(self, client: MlflowClient) -> dict[str, tuple[str, str]]:
        """The runs that MLflow has of this study: by key, the run's id and its record's hash."""
        found: dict[str, tuple[str, str]] = {}
        token: str | None = ""
        while token is not None:
            page = client.search_runs(
                [self._experiment_id],
                f"tags.`{KEY}` LIKE '{self.study_key}%'",
                max_results=1000,
                page_token=token or None,
            )
            for run in page:
                tags = run.data.tags
                found[tags.get(KEY, "")] = (run.info.run_id, tags.get(RECORD_SHA, ""))
            token = page.token or None
        return found

    @property
    def _experiment_id(self) -> str:
        if self._experiment is None:
            raise RuntimeError("the experiment is known once a client is connected")
        return self._experiment

    def _study_run(self, client: MlflowClient) -> str:
        """The id of the parent run of this study, made when it is first needed."""
        key = self.study_key
        if key not in self._runs:
            run = client.create_run(
                self._experiment_id,
                run_name=f"study {self.study_name}",
                tags={KEY: key, "study": self.study_name, "role": "study", "lane": self.lane},
            )
            self._runs[key] = (str(run.info.run_id), "")
        return self._runs[key][0]

    def _key(self, record: TrialRecord) -> str:
        return f"{self.study_key}/{record.number}/{record.attempt}"

    def _links(self, record: TrialRecord, control: TrialRecord | None) -> str:
        """Markdown that leads from a trial to its study and control, and from a control back."""
        page = f"#/experiments/{self._experiment_id}/runs/"
        links = [f"[study {self.study_name}]({page}{self._runs[self.study_key][0]})"]
        key = None if control is None else self._key(control)
        if control is not None and key in self._runs and control.key != record.key:
            links.append(f"[control: trial {control.number}]({page}{self._runs[key][0]})")
        if record.verdict is Verdict.ACCEPTED:
            search = f"tags.`control.sha` = '{record.identity.sha}'"
            links.append(f"compared with this one: search for `` {search} ``")
        if record.launch:
            links.append("starts it again: `launch.sh` among the artifacts")
        return "Links: " + "; ".join(links) + ".\n"

    def _send(self, parcel: Parcel) -> str:
        client = self._client()
        record = parcel.record
        key = self._key(record)
        sha = sha256_of(record.model_dump(mode="json"))
        if self._runs.get(key, ("", ""))[1] == sha:
            return self._runs[key][0]
        fields = run_fields(record, parcel.control, self._redact)
        known: Mapping[str, str] = {}
        if key in self._runs:
            run_id = self._runs[key][0]
            known = client.get_run(run_id).data.params
        else:
            tags = {
                KEY: key,
                PARENT: self._study_run(client),
                "study": self.study_name,
                "mlflow.source.name": "tuner",
                # The UI shows such runs at the first visit; others stay hidden under their study.
                "mlflow.runType": "evaluation",
            }
            run = client.create_run(
                self._experiment_id, fields.started_ms, run_name=fields.name, tags=tags
            )
            run_id = str(run.info.run_id)
            self._runs[key] = (run_id, "")
        note = entry(record, parcel.control) + "\n" + self._links(record, parcel.control)
        self._send_workload(client, run_id, record)
        self._send_fields(client, run_id, fields, known)
        client.set_tag(run_id, NOTE, self._redact(shorten(note, LONGEST_TAG)))
        self._send_artifacts(client, run_id, parcel, note)
        client.update_run(run_id, name=fields.name)
        client.set_terminated(run_id, fields.status, end_time=fields.finished_ms)
        # Last of all: its presence says that everything above is there.
        client.set_tag(run_id, RECORD_SHA, sha)
        self._runs[key] = (run_id, sha)
        return run_id

    def _send_fields(
        self, client: MlflowClient, run_id: str, fields: RunFields, known: Mapping[str, str]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        # A parameter cannot be written twice, and cannot have changed: an attempt is recorded once.
        params = [Param(k, v) for k, v in fields.params.items() if k not in known]
        tags = [RunTag(k, v) for k, v in fields.tags.items()]
        metrics = [_metric(Metric, point, fields.finished_ms) for point in fields.points]
        for group in _batches(params, NAMES_IN_BATCH):
            client.log_batch(run_id, params=group)
        for group in _batches(tags, NAMES_IN_BATCH):
            client.log_batch(run_id, tags=group)
        for group in _batches(metrics, BATCH):
            client.log_batch(run_id, metrics=group)

    def _send_workload(self, client: MlflowClient, run_id: str, record: TrialRecord) -> None:
        """The workload as the run's dataset, which is what the table's Dataset column shows."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        workload = record.identity.workload
        dataset = Dataset(
            name=str(workload.get("name", "workload")),
            digest=sha256_of(workload)[:8],
            source_type="tuner",
            source="tuner",
            profile=json.dumps(workload),
        )
        context = [InputTag("mlflow.data.context", "measured")]
        client.log_inputs(run_id, [DatasetInput(dataset, context)])

    def _send_artifacts(self, client: MlflowClient, run_id: str, parcel: Parcel, note: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tuner-artifacts-") as name:
            tables = stage_artifacts(
                Path(name),
                parcel.record,
                parcel.control,
                note=note,
                directory=self.study_directory / parcel.directory,
                redact=self._redact,
            )
            client.log_artifacts(run_id, name)
        if tables:
            listed = [{"path": path, "type": "table"} for path in tables]
            client.set_tag(run_id, "mlflow.loggedArtifacts", json.dumps(listed))

    def _redact(self, text: str) -> str:
        return redact_text(text, self._hidden)


def _metric(kind: Any, point: Point, moment_ms: int) -> Any:
    """An MLflow metric; a fixed time makes sending it twice the same as sending it once."""
    return kind(point.key, point.value, moment_ms, point.step)


def _batches(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))
