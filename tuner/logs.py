"""The engine's own words: the logs of a trial's server sessions."""

from __future__ import annotations

import gzip
from pathlib import Path

from runners.redaction import plain

SUFFIXES = (".log", ".log.gz")


def logs_of(directory: Path) -> dict[str, str]:
    """Every log below a trial's folder, by its name there, in the order of the sessions.

    Compressed or not; terminal escapes are taken out. Empty if the trial never started an engine.
    """
    found = sorted(
        path for path in directory.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file()
    )
    return {str(path.relative_to(directory)): plain(_read(path)) for path in found}


def tail(text: str, lines: int) -> str:
    """The last lines of a text; all of it for 0."""
    return "\n".join(text.splitlines()[-lines:] if lines else text.splitlines())


def _read(path: Path) -> str:
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    return raw.decode("utf-8", "replace")
