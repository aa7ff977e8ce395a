"""The verbs around a study: init before it, status and logs, diff, report and verify after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.study import Study

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="The study's YAML file, or its name in studies/.")
]

INIT_EXAMPLE = "Example: tuner init --from 'VLLM_X=1 vllm serve MODEL --dtype bfloat16' --name mine"


def register(app: typer.Typer) -> None:
    """Add these verbs to the command."""
    app.command(epilog="Example: tuner status quickstart --json")(status)
    app.command(epilog="Example: tuner diff quickstart:0 quickstart:3")(diff)
    app.command(epilog="Example: tuner logs quickstart 3 --tail 50")(logs)
    app.command(epilog="Example: tuner report quickstart --min-tok-s 30")(report)
    app.command(epilog="Example: tuner verify studies/quickstart/launch.sh")(verify)
    app.command(epilog=INIT_EXAMPLE)(init)


def status(
    study: StudyArgument,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Say where a study stands: running or not, trials by verdict, the best, what waits."""
    from tuner.status import status_of

    found = status_of(Study.load(study))
    if json:
        print(found.model_dump_json(indent=2))
        return
    for line in found.sentences():
        print(line)


def diff(
    left: Annotated[
        str, typer.Argument(metavar="A", help="STUDY:NUMBER, STUDY (its best), or a launch script.")
    ],
    right: Annotated[
        str, typer.Argument(metavar="B", help="The same, or the address of a running server.")
    ],
) -> None:
    """Compare two identities setting by setting; exits with 1 if they differ."""
    from tuner.sides import UnknownSideError, differences, differences_from_server, side_of

    try:
        first = side_of(left)
        if right.startswith(("http://", "https://")):
            sentences = differences_from_server(first, right)
            for line in sentences:
                print(line)
            found = bool(sentences)
        else:
            rows = differences(first, side_of(right))
            table = Table(box=None, header_style="bold", pad_edge=False)
            for column in ("what", left, right):
                table.add_column(Text(column), overflow="fold")
            for row in rows:
                table.add_row(Text(row.what), Text(str(row.left)), Text(str(row.right)))
            if rows:
                Console().print(table)
            found = bool(rows)
    except UnknownSideError as error:
        _refuse(str(error))
    if not found:
        print("They do not differ.")
    raise typer.Exit(1 if found else 0)


def logs(
    study: StudyArgument,
    trial: Annotated[int, typer.Argument(metavar="TRIAL", help="A number of `tuner trials`.")],
    tail: Annotated[int, typer.Option(min=0, help="Only the last lines; 0 for all.")] = 0,
) -> None:
    """Print what the engine wrote during a trial, session by session."""
    from tuner.logs import logs_of
    from tuner.logs import tail as last_lines

    loaded = Study.load(study)
    record = loaded.ledger.trial(trial)
    if record is None:
        _refuse(f"there is no trial {trial} in this study; `tuner trials {study}` lists them")
    found = logs_of(loaded.folder / record.directory)
    if not found:
        print(f"Trial {trial} started no engine, so there is no log.")
    for name, text in found.items():
        print(f"==> {name} <==")
        print(last_lines(text, tail))


def report(
    study: StudyArgument,
    output: Annotated[
        Path | None, typer.Option(help="The folder to write to; by default the study's.")
    ] = None,
    min_tok_s: Annotated[
        float | None, typer.Option(help="The rate below which nothing is ready for promotion.")
    ] = None,
) -> None:
    """Write the report of a study: report.md with its pictures, and report.html, one file."""
    from tuner.report import write_report

    loaded = Study.load(study)
    for path in write_report(loaded.ledger, output or loaded.folder, min_tok_s=min_tok_s):
        print(path)


def verify(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A launch script.")],
    study: Annotated[
        str, typer.Option(help="The study it comes from; by default that of its folder.")
    ] = "",
) -> None:
    """Start a launch script and take what it serves up the deep rung again; exits with 1 if not so.

    Parity, canaries and quality are compared with the recorded reference, the rate with the one on
    record.
    """
    from tuner.verify import NotVerifiableError
    from tuner.verify import verify as verified

    loaded = Study.load(study or str(script.resolve().parent))
    try:
        outcome = verified(script, loaded, say=print)
    except NotVerifiableError as error:
        _refuse(str(error))
    for line in outcome.sentences():
        print(line)
    print("verified" if outcome.verified else "NOT verified")
    raise typer.Exit(0 if outcome.verified else 1)


def init(
    command: Annotated[
        str, typer.Option("--from", help="The `vllm serve` command line that you use today.")
    ],
    name: Annotated[str, typer.Option(help="Name of the study and its files.")] = "my-study",
    folder: Annotated[Path, typer.Option(help="Where to write them.")] = Path(),
    kind: Annotated[str, typer.Option(help="cpu, xpu or cuda; else guessed.")] = "",
) -> None:
    """Make a study from an existing command: it becomes the control, with knobs around it."""
    from tuner.scaffold import AlreadyThereError, scaffold
    from tuner.serve_command import NotACommandError, parse_serve_command

    if kind not in ("", "cpu", "xpu", "cuda"):
        _refuse(f"no kind of device is called '{kind}'; there are: cpu, xpu, cuda")
    try:
        made = scaffold(parse_serve_command(command), name, kind=kind)
        paths = made.write(folder)
    except (NotACommandError, AlreadyThereError) as error:
        _refuse(str(error))
    for path in paths:
        print(path)
    for note in made.notes:
        print(f"note: {note}")
    print(f"next: tuner run {paths[0]}")


def _refuse(message: str) -> NoReturn:
    """End with the exit code of wrong input."""
    Console(stderr=True).print(Text(message))
    raise typer.Exit(2)
