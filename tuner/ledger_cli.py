"""`tuner ledger`: records measured elsewhere, judged by the code that judges our own trials."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runners.redaction import plain
from tuner.recorded import RecordedError, RecordJudgement, judge_file
from tuner.view import VERDICT_STYLES

app = typer.Typer(help="Judge and import records that were measured elsewhere.")


@app.callback()
def ledger() -> None:
    """Judge and import records that were measured elsewhere."""


@app.command(epilog="Example: tuner ledger judge records.yaml")
def judge(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Records in YAML.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object per record.")] = False,
) -> None:
    """Give each record of a file its verdict, and say where its author decided otherwise."""
    try:
        judgements = judge_file(file)
    except RecordedError as error:
        typer.echo(f"tuner: {error}", err=True)
        raise typer.Exit(2) from None
    if json:
        for judgement in judgements:
            print(judgement.model_dump_json())
        return
    console = Console()
    console.print(table(judgements))
    console.print(agreement(judgements), highlight=False)


def table(judgements: list[RecordJudgement]) -> Table:
    """One row per record: ours beside theirs, and our reason."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("record", "verdict", "code", "theirs"):
        rows.add_column(name, overflow="fold")
    rows.add_column("reason", ratio=3, overflow="fold")
    for one in judgements:
        theirs = Text(one.lab_verdict, style="" if one.agrees else "bold red")
        verdict = Text(one.verdict.value, style=VERDICT_STYLES[one.verdict.value])
        rows.add_row(one.record, verdict, one.code or "", theirs, plain(one.reason))
    return rows


def agreement(judgements: list[RecordJudgement]) -> str:
    """How many of the records that can be compared have the verdict that their author gave."""
    compared = [judgement for judgement in judgements if judgement.counts]
    if not compared:
        return "No record states both its gates and its verdict, so nothing can be compared."
    same = sum(judgement.agrees for judgement in compared)
    share = 100 * same / len(compared)
    return (
        f"{same} of {len(compared)} records that state their gates and their verdict agree "
        f"({share:.1f} %); {len(judgements)} records in all."
    )
