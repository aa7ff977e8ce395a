"""A study's own run in MLflow: its report, its pictures, and its counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tuner.figures import figures
from tuner.ledger import TrialRecord
from tuner.report import html_report, markdown_report, study_note
from tuner.run_fields import LONGEST_TAG, shorten
from tuner.standing import Standing
from tuner.verdict import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient


def fill_study_page(
    client: MlflowClient,
    run_id: str,
    records: Sequence[TrialRecord],
    redact: Callable[[str], str],
) -> None:
    """Write what the study's page shows of these records, every attempt of one lane, onto its run.

    Raises what the client raises.
    """
    from mlflow.entities import Metric

    standing = Standing.of(records)
    note = redact(shorten(study_note(standing), LONGEST_TAG))
    client.set_tag(run_id, "mlflow.note.content", note)
    client.log_text(run_id, redact(markdown_report(records)), "report.md")
    client.log_text(run_id, redact(html_report(records)), "report.html")
    for name, figure in figures(standing).items():
        client.log_figure(run_id, figure, f"figures/{name}.png")
    now_ms = round(time.time() * 1000)
    counts = {verdict.value: len(standing.with_verdict(verdict)) for verdict in Verdict}
    metrics = [Metric(f"trials/{name}", count, now_ms, 0) for name, count in counts.items()]
    best = standing.best
    if best is not None:
        client.set_tag(run_id, "best.trial", str(best.number))
        client.set_tag(run_id, "best.sha", best.identity.sha)
        if best.tok_s is not None:
            metrics.append(Metric("tok_s", best.tok_s, now_ms, 0))
    client.log_batch(run_id, metrics=metrics)
