"""Keeps what the vendors' tools said on a host, to read it elsewhere: for reports and for tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from runners.devices import nvidia, xpu
from runners.devices.tool import Tool, run_tool

COMMANDS = (xpu.DISCOVERY, xpu.NOW, xpu.PROCESSES, xpu.HEALTH, nvidia.QUERY, nvidia.PROCESSES)


def file_name(command: Sequence[str]) -> str:
    """Where a command's output lies in a recording: such as `xpu-smi-ps.txt`.

    By the first two words, which tell all of `COMMANDS` apart.
    """
    words = [word.lstrip("-").partition("=")[0] for word in command[:2]]
    return re.sub(r"[^\w-]", "-", "-".join(words)) + ".txt"


def record(folder: Path, run: Tool = run_tool) -> list[Path]:
    """Writes the output of every known tool that answers; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for command in COMMANDS:
        output = run(command)
        if output is not None:
            path = folder / file_name(command)
            path.write_text(output, encoding="utf-8")
            written.append(path)
    return written


def recorded(folder: Path) -> Tool:
    """A tool that answers from a recording; what was not recorded is a tool that is missing."""

    def run(command: Sequence[str]) -> str | None:
        path = folder / file_name(command)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    return run
