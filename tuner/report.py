"""The report of a study: what won and how sure that is, what was rejected, what was not tested."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt

from objectives import GateKind, GateResult, GateStatus
from tuner.figures import as_bytes, figures
from tuner.ledger import TrialRecord
from tuner.notebook import code, entry, rate_in_words, table
from tuner.rows import Row, rows_of
from tuner.standing import Standing, of_last_lane
from tuner.verdict import CODE_MEANINGS, Verdict

CAPTIONS = {
    "rates": "Decode rate of every trial with its interval, and the control that had to be beaten.",
    "repeats": "Every measured repeat, a line a trial: warm-up, drift and noise are seen here.",
    "seconds": "Where the time went.",
    "rejections": "How many trials each rejection code took.",
    "pareto": "Rate against time to first token; the line joins accepted trials only.",
    "knobs": "How much of the rate's variance each knob explains alone. It sees no interactions.",
}


def markdown_report(
    records: Iterable[TrialRecord],
    *,
    min_tok_s: float | None = None,
    pictures: Mapping[str, str] | None = None,
) -> str:
    """The whole report as Markdown; `pictures` are the addresses of the figures, by name.

    `min_tok_s` is the rate below which no trial counts as ready for promotion.
    """
    known = of_last_lane(records)
    standing = Standing.of(known)
    parts = [
        _summary(standing),
        _certainty(standing),
        _promotions(standing),
        _rejections(standing),
        _invalid(standing),
        _untested(standing),
        _pictures(pictures or {}),
        _table(rows_of(standing.trials, min_tok_s=min_tok_s), min_tok_s),
        _notebook(known),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def study_note(standing: Standing) -> str:
    """The report in a page: what won, how sure, what was rejected by code, what was not tested."""
    rows = [
        (rejection.value, len(trials), ", ".join(str(trial.number) for trial in trials))
        for rejection, trials in standing.rejections.items()
    ]
    counts = "## Rejections by code\n\n" + table(("code", "trials", "which"), rows) if rows else ""
    more = "The whole report, with pictures and the lab notebook, is the artifact `report.html`."
    parts = [_summary(standing), _certainty(standing), counts, _untested(standing), more]
    return "\n\n".join(part for part in parts if part) + "\n"


def html_report(records: Iterable[TrialRecord], *, min_tok_s: float | None = None) -> str:
    """The report as one HTML file that needs no other: pictures are in it, scripts are not."""
    known = of_last_lane(records)
    pictures = {
        name: f"data:image/svg+xml;base64,{base64.b64encode(as_bytes(figure, 'svg')).decode()}"
        for name, figure in figures(Standing.of(known)).items()
    }
    markdown = markdown_report(known, min_tok_s=min_tok_s, pictures=pictures)
    # What an engine or a model said is in the report: as text, never as markup.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.validateLink = lambda url: url.startswith("data:image/svg+xml;")  # type: ignore[method-assign]  # the documented way to set it
    environment = Environment(
        loader=PackageLoader("tuner"), undefined=StrictUndefined, autoescape=select_autoescape()
    )
    first = known[0] if known else None
    return environment.get_template("report.html.j2").render(
        title=f"Study {first.study}" if first else "Study", body=parser.render(markdown)
    )


def write_report(
    records: Iterable[TrialRecord], folder: Path, *, min_tok_s: float | None = None
) -> tuple[Path, Path]:
    """Write report.md (with its figures beside it) and report.html to `folder`; returns both."""
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    addresses: dict[str, str] = {}
    every = list(records)
    for name, figure in figures(Standing.of(of_last_lane(every))).items():
        (pictures / f"{name}.svg").write_bytes(as_bytes(figure, "svg"))
        addresses[name] = f"figures/{name}.svg"
    markdown, html = folder / "report.md", folder / "report.html"
    text = markdown_report(every, min_tok_s=min_tok_s, pictures=addresses)
    markdown.write_text(text, encoding="utf-8")
    html.write_text(html_report(every, min_tok_s=min_tok_s), encoding="utf-8")
    return markdown, html


def _summary(standing: Standing) -> str:
    if not standing.trials:
        return "# Nothing has been tried yet"
    first = standing.trials[0]
    counts = [
        f"{len(standing.with_verdict(v))} {v.value}" for v in Verdict if standing.with_verdict(v)
    ]
    spent_min = sum(trial.seconds for trial in standing.trials) / 60
    total = f"{len(standing.trials)} trials in {spent_min:.0f} minutes of engine time"
    lane = f"Lane {code(first.lane[:12])}."
    lines = [f"# Study {first.study}", f"{total}: {', '.join(counts)}. {lane}"]
    best, control = standing.best, standing.first_control
    if best is None:
        lines.append("**No identity was accepted**, not even the control: nothing can be exported.")
    elif best is control:
        rate = f", which has {rate_in_words(best.rate)}" if best.rate else ""
        lines.append(f"**Nothing beat the control**{rate}. What is exported is the control.")
    else:
        rate = rate_in_words(best.rate) if best.rate else "no rate"
        lines.append(
            f"**Trial {best.number} won**, with {rate}: {standing.changes_in_words(best)}."
        )
    return "\n\n".join(lines)


def _certainty(standing: Standing) -> str:
    """How sure the gain and the sameness of the best trial are, in its gates' own numbers."""
    best = standing.best
    if best is None:
        return ""
    lines = ["## How sure is this?"]
    lines += [
        f"- {gate.gate}, {gate.rung}: {gate.reason}"
        for gate in _deepest(best).values()
        if gate.kind in (GateKind.AB, GateKind.CANARY, GateKind.PARITY, GateKind.QUALITY)
    ]
    lines += [f"- Warning: {warning}" for warning in (best.rate.warnings if best.rate else ())]
    judgement = best.judgement
    lines.append(
        f"- Quality validated: {_yes(judgement.quality_validated)}; promotion ready: "
        f"{_yes(judgement.promotion_ready)}."
    )
    return "\n".join(lines)


def _promotions(standing: Standing) -> str:
    parts = ["## Promotions"]
    for trial in standing.promotions:
        control = standing.control_of(trial)
        parts.append(f"### Trial {trial.number}: {standing.changes_in_words(trial)}")
        if control is not None:
            changes = control.identity.diff(trial.identity)
            rows = [(code(path), code(a), code(b)) for path, (a, b) in changes.items()]
            parts.append(table(("what", f"trial {control.number}", f"trial {trial.number}"), rows))
        evidence = [
            (code(gate.gate), gate.rung, gate.status.value, gate.reason)
            for gate in _deepest(trial).values()
        ]
        parts.append(table(("gate", "rung", "status", "evidence"), evidence))
    if len(parts) == 1:
        parts.append("None.")
    return "\n\n".join(parts)


def _rejections(standing: Standing) -> str:
    parts = ["## Rejections by code"]
    for rejection, trials in standing.rejections.items():
        parts.append(f"### {rejection.value} ({len(trials)})\n\n{CODE_MEANINGS[rejection]}")
        rows = [
            (t.number, standing.changes_in_words(t), t.rejection.reason)
            for t in trials
            if t.rejection is not None
        ]
        parts.append(table(("trial", "changed", "reason"), rows))
    if len(parts) == 1:
        parts.append("None.")
    return "\n\n".join(parts)


def _invalid(standing: Standing) -> str:
    rows = [
        (t.number, t.attempt, t.rejection.code.value, t.rejection.reason)
        for t in standing.with_verdict(Verdict.INVALID)
        if t.rejection is not None
    ]
    if not rows:
        return ""
    says = "These say nothing about their candidates, and no sampler heard of them."
    return f"## Invalid\n\n{says}\n\n" + table(("trial", "attempt", "code", "reason"), rows)


def _untested(standing: Standing) -> str:
    """What a reader could take for tested and is not."""
    lines: list[str] = []
    for trial in standing.trials:
        if trial.verdict is Verdict.PROMISING:
            missing = ", ".join(trial.judgement.missing) or "the deeper rungs"
            lines.append(f"- Trial {trial.number} passed what ran; not run: {missing}.")
    best = standing.best
    if best is not None:
        ran = {gate.kind for gate in best.gates}
        absent = [kind.value for kind in GateKind if kind not in ran and kind != GateKind.SPEED]
        if absent:
            lines.append(f"- No gate of these kinds ran on the best trial: {', '.join(absent)}.")
        if best.unverified:
            names = ", ".join(code(name) for name in best.unverified)
            lines.append(f"- The engine gives no way to read these settings back: {names}.")
        if best.rate is not None:
            work = best.rate.workload
            lines.append(
                f"- Rates hold for the workload {work.name} only ({work.prompt_tokens} prompt and "
                f"{work.output_tokens} output tokens, {work.streams} at a time), on {best.host}."
            )
    constant = _constant_knobs(standing)
    if constant:
        lines.append(f"- These knobs had one value in every trial: {', '.join(constant)}.")
    return "## What was not tested\n\n" + ("\n".join(lines) or "Nothing of note.")


def _constant_knobs(standing: Standing) -> list[str]:
    ran = [trial for trial in standing.trials if trial.seconds_by_rung]
    names = {name for trial in ran for name in trial.assignment}
    return sorted(name for name in names if len({str(t.assignment.get(name)) for t in ran}) == 1)


def _pictures(addresses: Mapping[str, str]) -> str:
    if not addresses:
        return ""
    shown = [f"![{CAPTIONS[name]}]({url})\n\n*{CAPTIONS[name]}*" for name, url in addresses.items()]
    return "## Pictures\n\n" + "\n\n".join(shown)


def _table(rows: list[Row], min_tok_s: float | None) -> str:
    floor = "" if min_tok_s is None else f" Promotion needs at least {min_tok_s:g} tok/s."
    columns = tuple(name.replace("_", " ") for name in Row.model_fields)
    cells = [tuple(_cell(value) for value in row.model_dump().values()) for row in rows]
    return f"## All trials\n\nA gate that did not run is missing.{floor}\n\n" + table(
        columns, cells
    )


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return _yes(value)
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else str(value)


def _notebook(known: Sequence[TrialRecord]) -> str:
    """Every attempt, also those that were tried again, in the order in which they ended."""
    records = sorted(known, key=lambda record: record.finished_at)
    by_sha = {r.identity.sha: r for r in known if r.verdict is Verdict.ACCEPTED}
    parts = ["## Lab notebook"]
    for record in records:
        again = f", attempt {record.attempt}" if record.attempt > 1 else ""
        parts.append(f"---\n\n## {record.finished_at[:16]} Trial {record.number}{again}")
        parts.append(entry(record, by_sha.get(record.control_sha or "")).strip())
    return "\n\n".join(parts)


def _deepest(trial: TrialRecord) -> dict[str, GateResult]:
    """The last result of each gate: rungs run from cheap to dear."""
    return {gate.gate: gate for gate in trial.gates if gate.status is not GateStatus.MISSING}


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
