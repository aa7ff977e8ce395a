"""`tuner kernel`: list, check, bench and tune kernels."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

import kernels
from kernels import Case, KernelError, KernelTrial, MoeShape, WorkerSettings
from kernels.routing import DECODE_SHAPE
from tuner.kernel_study import tune_in
from tuner.ledger import LedgerError

app = typer.Typer(no_args_is_help=True, help="Prove, time and tune kernels of one op.")

_OpsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[OP]...", help="Names of `tuner kernel list`.")
]
_Candidates = Annotated[
    list[str] | None, typer.Option("--candidate", help="Only this candidate; may be repeated.")
]
_Cases = Annotated[
    list[str] | None, typer.Option("--case", help="Only this case; may be repeated.")
]
_Config = Annotated[str | None, typer.Option(help="Meta-parameters as JSON, for all candidates.")]
_Device = Annotated[
    str | None, typer.Option(help="cpu, cuda:0, xpu:0; by default the first accelerator.")
]
_Python = Annotated[
    Path | None, typer.Option(help="A Python that has torch, such as an engine's; else this one.")
]
_OpFiles = Annotated[
    list[Path] | None, typer.Option("--op-file", help="A file that registers ops or candidates.")
]
_Routes = Annotated[
    Path | None, typer.Option(help="JSON lines of captured routes; their cases replace the op's.")
]
_Layer = Annotated[str | None, typer.Option(help="Only routes whose layer contains this.")]
_Sampler = Literal["tpe", "guided", "random", "exhaustive"]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_kernels(op_file: _OpFiles = None, json: _Json = False) -> None:
    """Show the ops, how exact each must be, and what can compute it.

    Example: tuner kernel list
    """
    with _refusals():
        found = kernels.list_ops([str(path) for path in op_file or ()])
    if json:
        rows = [{**op.__dict__, "candidates": [c.__dict__ for c in op.candidates]} for op in found]
        typer.echo(json_format.dumps(rows, indent=2))
        return
    table = Table("op", "candidate", "configurations", "what it does", "needs")
    for op in found:
        table.add_row(op.name, "", "", op.summary, "", style="bold")
        table.add_row("", "", "", op.exactness, "", style="dim")
        for candidate in op.candidates:
            needs = ", ".join(candidate.needs)
            size = str(candidate.configurations)
            table.add_row("", candidate.name, size, candidate.summary, needs)
    Console().print(table)


@app.command()
def check(
    ops: _OpsArgument = None,
    candidate: _Candidates = None,
    case: _Cases = None,
    config: _Config = None,
    repeats: Annotated[int, typer.Option(min=1, help="Fresh inputs per mode.")] = 200,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Check the checker on planted faults instead.")
    ] = False,
    torch_op: Annotated[
        str | None, typer.Option(help="NAMESPACE::NAME of a torch op, as a candidate of the OP.")
    ] = None,
    load: Annotated[
        list[str] | None, typer.Option(help="Library or module that registers the torch op.")
    ] = None,
    routes: _Routes = None,
    layer: _Layer = None,
    device: _Device = None,
    python: _Python = None,
    op_file: _OpFiles = None,
    json: _Json = False,
) -> None:
    """Prove candidates exact, eagerly and replayed; exit 1 when one is not.

    Example: tuner kernel check moe_layerlet --candidate triton_two_launches --repeats 300
    """
    requests = _torch_op_requests(ops, torch_op, load)
    settings = _settings(device, python, op_file, requests)
    if self_test:
        _self_test(settings, repeats, json)
        return
    if torch_op is not None:
        candidate = [*(candidate or ()), torch_op.replace("::", "_")]
    with _refusals():
        table = kernels.check(
            ops or None,
            candidates=candidate,
            cases=_cases(case, routes, layer),
            config=_parsed(config),
            repeats=repeats,
            settings=settings,
        )
    if json:
        typer.echo(json_format.dumps(table.to_json(), indent=2))
    else:
        shown = Table("op", "case", "candidate", "status", "reason")
        for row in table.rows:
            shown.add_row(row.op, row.case, row.candidate, row.status, row.reason)
        Console().print(shown)
    raise typer.Exit(0 if table.exact else 1)


@app.command()
def bench(
    ops: _OpsArgument = None,
    candidate: _Candidates = None,
    case: _Cases = None,
    config: _Config = None,
    routes: _Routes = None,
    layer: _Layer = None,
    device: _Device = None,
    python: _Python = None,
    op_file: _OpFiles = None,
    json: _Json = False,
) -> None:
    """Time candidates beside the separate steps and the floor of the device.

    Example: tuner kernel bench moe_layerlet --case decode_tp4_t1
    """
    with _refusals():
        table = kernels.bench(
            ops or None,
            candidates=candidate,
            cases=_cases(case, routes, layer),
            config=_parsed(config),
            settings=_settings(device, python, op_file),
        )
    if json:
        typer.echo(json_format.dumps(table.to_json(), indent=2))
        return
    shown = Table(
        "op", "case", "candidate", "eager us", "warm us", "cold us", "floor us", "speed-up"
    )
    for row in table.rows:
        if row.timing is None:
            shown.add_row(row.op, row.case, row.candidate, f"{row.status}: {row.reason}")
            continue
        times = [_median(row.timing[name]) for name in ("eager", "warm", "cold")]
        floor = f"{row.floor_us:.3f}" if row.floor_us is not None else ""
        gain = f"{row.speedup:.2f}" if row.speedup is not None else ""
        shown.add_row(row.op, row.case, row.candidate, *times, floor, gain)
    out = Console()
    out.print(shown)
    limits = table.ceilings
    out.print(
        f"{table.identity['device']}: {limits.bytes_per_s / 1e9:.0f} GB/s, "
        f"{limits.int8_operations_per_s / 1e12:.1f} INT8 TOP/s, "
        f"{limits.launch_us:.2f} us a launch; speed-up is over the fastest separate steps"
    )


@app.command()
def tune(
    op: Annotated[str, typer.Argument(metavar="OP", help="A name of `tuner kernel list`.")],
    case: Annotated[list[str], typer.Option("--case", help="May be repeated.")],
    candidate: Annotated[str | None, typer.Option(help="Default: the largest space.")] = None,
    budget: Annotated[
        int | None, typer.Option("--trials", "--budget", min=1, help="Most trials per case.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep a study here: ledger, journal, MLflow. Called again, it goes on."),
    ] = None,
    sampler: Annotated[_Sampler, typer.Option(help="Who chooses, in a study.")] = "tpe",
    seed: Annotated[int, typer.Option(help="Decides the order and the data.")] = 0,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow for the study; by default a file in its folder.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="JSON: meta-parameter -> values to try.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of the deep check.")] = 200,
    processes: Annotated[int, typer.Option(help="Workers that compile ahead.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for one table a case.")] = None,
    vllm: Annotated[
        Path | None, typer.Option(help="Folder for vLLM's fused-MoE file (grouped_gemm_w8a8).")
    ] = None,
    device: _Device = None,
    python: _Python = None,
    op_file: _OpFiles = None,
) -> None:
    """Search a candidate's meta-parameters; exit 1 when nothing proved exact.

    Without a folder every legal configuration is tried; in a folder a sampler chooses.

    Example: tuner kernel tune moe_layerlet --case decode_tp4_t1 --folder layerlet --trials 60
    """
    if folder is not None and processes:
        typer.echo(
            "tuner: --processes compiles ahead what is tried in a fixed order; leave it out with"
            " --folder",
            err=True,
        )
        raise typer.Exit(2)
    console = Console()
    results = []
    for name in case:
        with _refusals():
            common: dict[str, Any] = {
                "candidate": candidate,
                "only": _parsed(only),
                "seed": seed,
                "deep_repeats": repeats,
                "on_trial": _progress(console),
                "settings": _settings(device, python, op_file),
            }
            if folder is None:
                result = kernels.tune(
                    op, name, budget=budget, compile_processes=processes, **common
                )
            else:
                result = tune_in(
                    folder, op, name, sampler=sampler, trials=budget,
                    tracking_uri=tracking_uri, **common,
                )  # fmt: skip
        results.append(result)
        console.print(_summary(result), highlight=False, soft_wrap=True)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            path = out / f"{op}-{name}-{result.candidate}.jsonl"
            command = f"tuner kernel tune {op} --case {name} --candidate {result.candidate}"
            kernels.write_table(result, path, command=command)
            console.print(f"table: {path}", highlight=False)
    if vllm is not None:
        with _refusals():
            path = kernels.write_fused_moe_config(results, vllm)
        console.print(f"vLLM's file: {path}", highlight=False)
        console.print("knob:", json_format.dumps(kernels.endpoint_knob(vllm)), highlight=False)
    raise typer.Exit(0 if all(result.best is not None for result in results) else 1)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (KernelError, LedgerError) as error:
        typer.echo(f"tuner: {error}", err=True)
        raise typer.Exit(2) from None


def _settings(
    device: str | None,
    python: Path | None,
    op_files: list[Path] | None,
    torch_ops: tuple[dict[str, Any], ...] = (),
) -> WorkerSettings:
    return WorkerSettings(
        python=str(python) if python else sys.executable,
        device=device,
        op_files=tuple(str(path) for path in op_files or ()),
        torch_ops=torch_ops,
    )


def _torch_op_requests(
    ops: list[str] | None, torch_op: str | None, load: list[str] | None
) -> tuple[dict[str, Any], ...]:
    if torch_op is None:
        return ()
    if not ops or len(ops) != 1:
        typer.echo("tuner: --torch-op is a candidate of one op: name exactly one OP", err=True)
        raise typer.Exit(2)
    return ({"op": ops[0], "torch_op": torch_op, "loads": load or []},)


def _cases(
    names: list[str] | None, routes: Path | None, layer: str | None
) -> list[str | Case] | None:
    if routes is None:
        return list(names) if names else None
    try:
        top_k = _top_k(routes)
        shape = MoeShape(
            DECODE_SHAPE.experts, DECODE_SHAPE.hidden, DECODE_SHAPE.intermediate, top_k
        )
        return list(kernels.captured_cases(routes, shape, layer=layer))
    except OSError as error:
        raise KernelError(f"cannot read {routes}: {error.strerror}") from error


def _top_k(routes: Path) -> int:
    """How many experts the first captured token went to."""
    with routes.open(encoding="utf-8") as lines:
        try:
            return len(json_format.loads(lines.readline())["topk_ids"][0])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise KernelError(f"{routes}, line 1: not a route ({error})") from error


def _parsed(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json_format.loads(text)
    except ValueError as error:
        raise KernelError(f"not JSON: {text!r} ({error})") from error
    if not isinstance(value, dict):
        raise KernelError(f"not a JSON object: {text!r}")
    return value


def _self_test(settings: WorkerSettings, repeats: int, json: bool) -> None:
    with _refusals():
        outcomes = kernels.self_test(repeats=repeats, settings=settings)
    if json:
        typer.echo(json_format.dumps([outcome.to_json() for outcome in outcomes], indent=2))
    else:
        shown = Table("candidate", "what", "op", "expected", "as expected", "reason")
        for outcome in outcomes:
            verdict = "yes" if outcome.as_expected else "NO"
            shown.add_row(
                outcome.name, outcome.what, outcome.op, outcome.expected, verdict, outcome.reason
            )
        Console().print(shown)
    raise typer.Exit(0 if all(outcome.as_expected for outcome in outcomes) else 1)


def _median(timing: dict[str, Any] | None) -> str:
    return "" if timing is None else f"{timing['median_us']:.2f}"


def _progress(console: Console) -> Callable[[KernelTrial], None]:
    best = float("inf")

    def show(trial: KernelTrial) -> None:
        nonlocal best
        if trial.us is not None and trial.us < best:
            best = trial.us
            console.print(
                f"trial {trial.number}: {trial.us:.3f} us {trial.config}", highlight=False
            )
        elif trial.status not in ("exact", "illegal"):
            console.print(f"trial {trial.number}: {trial.status}, {trial.reason}", highlight=False)

    return show


def _summary(result: kernels.TuneResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.counts().items())
    if result.best is None or result.best.us is None or result.deep is None:
        return f"{result.op} {result.case.name}: {counts}; no configuration proved exact"
    gain = "" if result.speedup is None else f", {result.speedup:.2f} x the separate steps"
    floor = "" if result.floor_us is None else f", floor {result.floor_us:.3f} us"
    return (
        f"{result.op} {result.case.name}: {counts}; best {result.best.us:.3f} us{gain}{floor}; "
        f"{result.deep.reason}; {result.best.config}"
    )
