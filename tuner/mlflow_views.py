"""Named views of the runs table, which MLflow's UI offers under "Views".

The UI keeps a view as a tag of the experiment: `mlflow.sharedViewState.<id>` holds a name and, as
JSON, the filter, the order and the columns. It has no API for them; the shape is that of MLflow
3.17's own front end, and a version that does not know it shows no views, and nothing breaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TAG = "mlflow.sharedViewState."
RUN_NAME = "attributes.`Run Name`"

WIDTHS_PX = {
    RUN_NAME: 330,
    "tags.`rejection.reason`": 420,
    "tags.`rejection.code`": 150,
    "tags.`changes`": 240,
    "runDateAndNestInfo": 150,
}


CHARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Rate by trial": {"BAR": ("tok_s", "ratio_to_control", "ttft_ms")},
    "Every repeat": {"LINE": ("repeats/tok_s", "repeats/ttft_ms")},
    "Seconds by rung": {
        "BAR": ("seconds", "seconds/startup", "seconds/smoke", "seconds/medium", "seconds/deep")
    },
}
"""Charts worth seeing first, by section and kind; the UI adds the other metrics below them."""

CHARTED_RUNS = 100


@dataclass(frozen=True)
class RunsView:
    """A filter and the columns worth seeing with it; runs come in the order of `order_by`."""

    name: str
    search: str
    tags: tuple[str, ...]
    metrics: tuple[str, ...]
    order_by: str = "attributes.start_time"
    charts: bool = False

    def as_tag(self) -> str:
        """The value of the experiment's tag."""
        tags = [f"tags.`{name}`" for name in self.tags]
        metrics = [f"metrics.`{name}`" for name in self.metrics]
        order = [RUN_NAME, *tags, *metrics, "duration", "runDateAndNestInfo"]
        state: dict[str, Any] = {
            "searchFilter": self.search,
            "orderByKey": self.order_by,
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "modelVersionFilter": "All Runs",
            "datasetsFilter": [],
            "selectedColumns": [*tags, *metrics],
            "columnOrder": order,
            "columnWidths": {name: WIDTHS_PX.get(name, 110) for name in order},
        }
        if self.charts:
            state |= chart_state()
        # A fixed date: the same view is the same tag, whoever writes it.
        return json.dumps({"name": self.name, "createdAt": 0, "state": json.dumps(state)})


def chart_state() -> dict[str, Any]:
    """The charts as the UI keeps them: sections, and charts that name theirs."""
    sections = [
        {"uuid": f"tuner-{number}", "name": name, "display": True, "isReordered": True}
        for number, name in enumerate(CHARTS)
    ]
    charts = [
        {
            "uuid": f"tuner-{metric}",
            "type": kind,
            "runsCountToCompare": CHARTED_RUNS,
            "metricSectionId": f"tuner-{number}",
            "deleted": False,
            "isGenerated": False,
            "metricKey": metric,
            **({"xAxisKey": "step"} if kind == "LINE" else {}),
        }
        for number, kinds in enumerate(CHARTS.values())
        for kind, metrics in kinds.items()
        for metric in metrics
    ]
    return {
        "compareRunSections": sections,
        "compareRunCharts": charts,
        "isAccordionReordered": True,
    }


VIEWS: Mapping[str, RunsView] = {
    "tuner-trials": RunsView(
        "Trials: verdict and why",
        "tags.role != 'study'",
        ("verdict", "rejection.code", "rejection.reason", "changes", "rung"),
        ("tok_s", "tok_s.low", "tok_s.high"),
        charts=True,
    ),
    "tuner-accepted": RunsView(
        "What won",
        "tags.verdict = 'accepted'",
        ("changes", "promotion_ready", "quality_validated"),
        ("tok_s", "tok_s.low", "tok_s.high", "ratio_to_control", "ttft_ms"),
        "metrics.`tok_s`",
    ),
    "tuner-said-something-else": RunsView(
        "Rejected for what they say",
        "tags.`rejection.kind` = 'correctness'",
        ("rejection.code", "rejection.gate", "rejection.reason", "changes"),
        ("tok_s",),
        "metrics.`tok_s`",
    ),
    "tuner-too-slow": RunsView(
        "Rejected for speed",
        "tags.`rejection.kind` = 'speed'",
        ("rejection.code", "rejection.reason", "changes"),
        ("tok_s", "tok_s.low", "tok_s.high", "ratio_to_control"),
        "metrics.`tok_s`",
    ),
    "tuner-did-not-serve": RunsView(
        "Did not start, or died",
        "tags.`rejection.kind` = 'engine'",
        ("rejection.code", "rejection.reason", "changes", "rung"),
        ("seconds",),
    ),
    "tuner-invalid": RunsView(
        "Attempts that say nothing",
        "tags.verdict = 'invalid'",
        ("rejection.code", "rejection.reason", "host", "device", "attempt"),
        ("seconds",),
    ),
}
"""The views, by the id that a link to one carries."""


GUIDE = """Runs of one *lane*: same model files, hardware, workload and quality bar, so that they may be compared.

A trial's name says its verdict, why it was rejected, and its rate. Its page opens with the notebook entry.

| to see | type into the search box |
| --- | --- |
| which won | `tags.verdict = 'accepted'` |
| which were rejected for what they say | ``tags.`rejection.kind` = 'correctness'`` |
| which were only too slow | ``tags.`rejection.kind` = 'speed'`` |
| which did not start, or died | ``tags.`rejection.kind` = 'engine'`` |
| attempts that say nothing | `tags.verdict = 'invalid'` |
| all but the study's own run | `tags.role != 'study'` |

Or take a view from the menu *Views*: each has its filter and its columns.
"""  # noqa: E501 - a Markdown table has long lines


def link(server: str, experiment_id: str, view: str = "tuner-trials") -> str:
    """The address of a view; the workflow is named, as the UI otherwise opens on traces."""
    return (
        f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs"
        f"?workflowType=machine_learning&viewStateShareKey={view}"
    )
