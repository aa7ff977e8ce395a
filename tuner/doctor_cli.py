"""`tuner doctor`: what this host has, what is wrong with it, and what a study on it could run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from runners import Runner
from runners.device import DeviceReading
from runners.devices.recording import record
from runners.doctor import HostReport, examine
from runners.redaction import plain
from tuner.catalog import find, names
from tuner.document import load

GIB = 1024**3
_COLOURS = {"healthy": "green", "throttled": "yellow", "unknown": "yellow"}


def doctor(
    runner: Annotated[
        list[str] | None,
        typer.Option(help="A runner's document or catalog name; default: the whole catalog."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Examine a host that was recorded with --record.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--record", help="Write what the vendors' tools say into this folder."),
    ] = None,
) -> None:
    """Say what this host has, what is wrong with it, and what a study on it could run."""
    console = Console()
    if save is not None:
        for path in record(save):
            console.print(f"wrote {path}")
    chosen = runner or names("runner")
    documents = [load(find("runner", name, Path.cwd()), Runner) for name in chosen]
    report = examine(documents, recording=recorded)
    show(report, console)
    raise typer.Exit(0 if report.is_usable or not documents else 1)


def show(report: HostReport, console: Console) -> None:
    """Prints a report: facts, devices, problems each with its fix, and what fits."""
    console.print(f"[bold]{plain(report.host)}[/bold]")
    for name, text in report.facts:
        console.print(f"  {name}: {text}", highlight=False)
    console.print(_devices(report.devices) if report.devices else "  no devices")
    for problem in report.problems:
        colour = "red" if problem.severity == "error" else "yellow"
        console.print(f"[{colour}]{problem.severity}[/{colour}]: {plain(problem.what)}")
        console.print(f"  fix: {problem.fix}", highlight=False)
    for fit in report.fits:
        answer = (
            f"{fit.trials_at_once} trial(s) at once" if fit.trials_at_once else f"no: {fit.reason}"
        )
        console.print(f"runner {fit.runner} ({fit.demand}): {answer}", highlight=False)


def _devices(readings: tuple[DeviceReading, ...]) -> Table:
    table = Table("device", "name", "health", "memory", "°C", "W", "NUMA", "driver")
    for reading in readings:
        device = reading.device
        used = reading.memory_used_bytes
        memory = f"{device.memory_bytes / GIB:.1f} GiB" if device.memory_bytes else "?"
        colour = _COLOURS.get(reading.health.value, "red")
        table.add_row(
            f"{device.kind}{device.index}",
            plain(device.name),
            f"[{colour}]{reading.health.value}[/{colour}]",
            memory if used is None else f"{used / GIB:.1f} of {memory}",
            _figure(reading.temperature_c),
            _figure(reading.power_w),
            "" if device.numa_node is None else str(device.numa_node),
            reading.driver or "",
        )
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
