"""Runs a vendor's tool and keeps what it said; readers parse the text, so they need no device."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

TIMEOUT_S = 20.0

Tool = Callable[[Sequence[str]], str | None]
"""Runs a command; gives its output, or None when the tool is missing, hangs or fails."""


def run_tool(command: Sequence[str]) -> str | None:
    """The standard output of a command that ended with status 0 within `TIMEOUT_S`, else None."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def number(text: str | None) -> float | None:
    """The number that `41.5`, `24 MiB` or `32768.00 MiB` begins with; None for `N/A` or nothing."""
    words = (text or "").strip().split()
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None
