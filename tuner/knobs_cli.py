"""`tuner knobs`: what the installed engine offers, and whether a space fits it."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from runners.embedded import engine_python
from search_spaces import (
    EngineKnob,
    EngineKnobs,
    IntrospectionError,
    SearchSpace,
    check,
    introspect,
)
from search_spaces.knob import spelt
from tuner.catalog import find
from tuner.document import Document

_EXPLAINED = 3
"""Up to so many knobs are explained in full; more are listed."""
_MOST_CHOICES = 8


def knobs(
    pattern: Annotated[
        str, typer.Argument(help="Part of a name, or a pattern with * and ?; all knobs if left out")
    ] = "",
    python: Annotated[
        Path | None, typer.Option(help="The engine's Python; by default the embedded engine's")
    ] = None,
    space: Annotated[
        str, typer.Option(help="Check this space (a file or a catalog name) against the engine")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """List and explain what the installed engine lets one set; or check a space against it.

    Example: tuner knobs speculative
    """
    out = Console()
    try:
        offered = introspect(python or engine_python())
    except IntrospectionError as error:
        typer.echo(f"tuner: {error}", err=True)
        raise typer.Exit(2) from None
    if space:
        problems = check_space(space, offered)
        for problem in problems:
            out.print(problem, soft_wrap=True, highlight=False, markup=False)
        out.print(f"{space}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}")
        raise typer.Exit(1 if problems else 0)
    found = offered.search(pattern)
    if json:
        rows = [{"as_written": name, **knob.model_dump(mode="json")} for name, knob in found]
        typer.echo(json_format.dumps(rows, indent=2))
    elif not found:
        out.print(f"{offered.engine} {offered.version} has no knob like {pattern!r}.")
        raise typer.Exit(1)
    elif len(found) <= _EXPLAINED:
        for name, knob in found:
            _explain(name, knob, out)
    else:
        _list(found, out)
        out.print(
            f"{len(found)} knobs of {offered.engine} {offered.version};"
            " a longer pattern explains fewer in full."
        )


def check_space(name: str, offered: EngineKnobs) -> list[str]:
    """Every problem of a space with an engine, each as `file:line:column: message`.

    Raises DocumentError when the space is not there or is wrong by itself.
    """
    document = Document(find("space", name, Path.cwd()))
    space = document.validate(SearchSpace)
    return [
        f"{document.problem(problem.path, problem.message)} ({problem.severity})"
        for problem in check(space, offered)
    ]


def _list(found: list[tuple[str, EngineKnob]], out: Console) -> None:
    """Two lines a knob: its name and default, and what it does as far as the line goes."""
    for name, knob in found:
        line = Text(name, style="bold")
        line.append(f"  {_default(knob)}", style="not bold cyan")
        line.append(f"  {_accepts(knob)}", style="not bold dim")
        out.print(line, no_wrap=True, overflow="ellipsis")
        note = f"deprecated: {knob.deprecated}" if knob.deprecated else knob.help
        if note:
            out.print(Text(f"    {note}"), no_wrap=True, overflow="ellipsis")


def _explain(name: str, knob: EngineKnob, out: Console) -> None:
    out.print(Text(name, style="bold"))
    rows = [
        ("does", knob.help or "the engine does not say"),
        ("accepts", knob.domain),
        ("default", _default(knob)),
        ("group", knob.group),
        ("deprecated", knob.deprecated),
    ]
    for label, text in rows:
        if text:
            out.print(Text(f"  {label:<11}{text}"))


def _default(knob: EngineKnob) -> str:
    if not knob.default_known:
        return "decided at start"
    value = knob.default
    return str(value) if isinstance(value, (list, dict)) else spelt(value)


def _accepts(knob: EngineKnob) -> str:
    if len(knob.choices) <= _MOST_CHOICES:
        return knob.domain
    shown = ", ".join(str(one) for one in knob.choices[:_MOST_CHOICES])
    return f"{shown} and {len(knob.choices) - _MOST_CHOICES} more"
