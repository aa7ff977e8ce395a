"""The command `tuner`: each verb parses, calls one function, and prints what it returns.

Exit codes, the same for every verb: 0 done; 1 done, and the answer is no (a study that was stopped
or cannot go on, a check that fails); 2 the input is wrong, and nothing was started.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import optuna
import typer
from rich.console import Console
from rich.markdown import Markdown

from runners import EngineFailure, LaunchRefused, sweep
from tuner import kernel_cli, ledger_cli, look_cli
from tuner.doctor_cli import doctor
from tuner.document import DocumentError
from tuner.knobs_cli import knobs
from tuner.ledger import LedgerError, TrialRecord
from tuner.study import Stop, Study, StudyError

app = typer.Typer(
    name="tuner",
    help="Finds the fastest way to serve a language model without changing what the model says.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

StudyArgument = Annotated[
    str, typer.Argument(metavar="STUDY", help="The study's YAML file, or its name in studies/.")
]
TrialArgument = Annotated[int, typer.Argument(metavar="TRIAL", help="A number of `tuner trials`.")]


class BadInput(Exception):  # noqa: N818 - it is what the user gave, not what we did
    """Something that the user gave cannot be used; the message is one sentence about it."""


def main() -> None:
    """Run the command; what a person did wrong becomes sentences and exit code 2."""
    # The libraries tell of tables that they create and studies that they open; people asked for
    # neither. Their warnings stay.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        app()
    except (DocumentError, LaunchRefused, LedgerError, BadInput) as error:
        _end(str(error), 2)
    except EngineFailure as error:
        _end(error.failure.reason, 2 if error.failure.blame == "user" else 1)
    except StudyError as error:
        _end(str(error), 1)


def _end(message: str, code: int) -> None:
    print(f"tuner: {message}", file=sys.stderr)
    sys.exit(code)


@app.command(epilog="Example: tuner run studies/quickstart.yaml")
def run(
    study: StudyArgument,
    json: Annotated[bool, typer.Option("--json", help="One JSON event per line.")] = False,
) -> None:
    """Run a study, or continue it where it stopped. Ctrl-C ends it cleanly, twice at once."""
    from tuner.view import choose_view

    loaded = Study.load(study)
    with _interruptible(loaded) as stop, choose_view(json=json) as view:
        summary = loaded.run(listen=view.show, stop=stop)
    if summary.interrupted or summary.best is None:
        raise typer.Exit(1)


@contextmanager
def _interruptible(study: Study) -> Iterator[Stop]:
    """The first Ctrl-C (or SIGTERM) asks the study to stop; the second ends everything now."""
    stop = Stop()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            sweep(study.marker, grace_s=2.0)
            os._exit(1)
        stop.ask()

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.command(epilog="Example: tuner trials quickstart --verdict rejected")
def trials(
    study: StudyArgument,
    verdict: Annotated[str, typer.Option(help="Only trials of this verdict.")] = "",
    sort: Annotated[str, typer.Option(help="number, rate or verdict.")] = "number",
    json: Annotated[bool, typer.Option("--json", help="One JSON record per line.")] = False,
) -> None:
    """List a study's trials: what was changed, how far it came, and why it was rejected."""
    from tuner.listing import UnknownChoiceError, chosen, table

    try:
        records = chosen(Study.load(study).ledger, verdict=verdict, sort=sort)
    except UnknownChoiceError as error:
        raise BadInput(str(error)) from None
    if json:
        for record in records:
            print(record.model_dump_json())
        return
    Console().print(table(records))


@app.command(epilog="Example: tuner show quickstart 3")
def show(study: StudyArgument, trial: TrialArgument) -> None:
    """Show one trial as its notebook entry: hypothesis, difference, gates, result, decision."""
    from tuner.notebook import entry

    ledger = Study.load(study).ledger
    record = _trial(ledger.trial(trial), trial)
    control = next((r for r in ledger if r.identity.sha == record.control_sha), None)
    Console().print(Markdown(entry(record, control)))


@app.command(epilog="Example: tuner export quickstart --output launch.sh")
def export(
    study: StudyArgument,
    trial: Annotated[
        int | None, typer.Option(help="Another accepted trial than the best one.")
    ] = None,
    wanted: Annotated[str, typer.Option("--format", help="What to write.")] = "sh",
    output: Annotated[
        Path | None, typer.Option(help="Where to write it; `-` for standard output.")
    ] = None,
) -> None:
    """Write a script that starts exactly the best accepted identity."""
    from tuner.export import ExportError, export_study

    loaded = Study.load(study)
    record = loaded.best if trial is None else _trial(loaded.ledger.trial(trial), trial)
    if record is None:
        raise BadInput(f"{study} has no accepted trial yet; run it first: tuner run {study}")
    try:
        written = export_study(record, wanted, loaded.folder, output)
    except ExportError as error:
        raise BadInput(str(error)) from None
    if written is not None:
        print(f"{written} starts trial {record.number}, identity {record.identity.sha}")


@app.command(epilog="Example: tuner ui quickstart --port 5000")
def ui(
    study: StudyArgument,
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Open the MLflow UI on a study's runs (until Ctrl-C)."""
    from tuner.ui import serve

    raise typer.Exit(serve(Study.load(study), host=host, port=port))


app.add_typer(ledger_cli.app, name="ledger")
app.add_typer(kernel_cli.app, name="kernel")
look_cli.register(app)
app.command(epilog="Example: tuner knobs speculative")(knobs)
app.command(epilog="Example: tuner doctor --runner vllm-cpu")(doctor)


def _trial(record: TrialRecord | None, number: int) -> TrialRecord:
    if record is None:
        raise BadInput(f"there is no trial {number} in this study; `tuner trials` lists them")
    return record


if __name__ == "__main__":
    main()
