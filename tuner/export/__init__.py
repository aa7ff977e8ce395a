"""Turning an accepted trial into something that starts exactly what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.export.formats import FILE_NAMES, Format, UnknownFormatError, export, format_of
from tuner.export.settings import ExportError
from tuner.ledger import TrialRecord
from tuner.verdict import Verdict

__all__ = [
    "ExportError",
    "Format",
    "UnknownFormatError",
    "export",
    "export_study",
    "format_of",
    "write_launch_script",
]


def write_launch_script(record: TrialRecord, path: Path) -> Path:
    """Write the shell script of a trial to `path`, executable, whole or not at all.

    Raises ExportError if the trial never started an engine, OSError if `path` cannot be written.
    """
    return _write(export(record, Format.SH), path, executable=True)


def export_study(
    record: TrialRecord, format_name: str, folder: Path, output: Path | None = None
) -> Path | None:
    """Write an accepted trial in a format, by default beside the study's results.

    `output` `-` means standard output, for which None is returned. A unit comes with the script
    that it starts. Raises ExportError for a format
    that there is not and for a trial that was not accepted.
    """
    wanted = format_of(format_name)
    if record.verdict is not Verdict.ACCEPTED:
        why = f" ({record.rejection.code.value})" if record.rejection else ""
        raise ExportError(
            f"trial {record.number} is {record.verdict.value}{why}; only an accepted trial is "
            "exported. To start it again as it was, take launch.sh from its artifacts."
        )
    script = (folder / FILE_NAMES[Format.SH]).resolve()
    text = export(record, wanted, script=script)
    if wanted is Format.SYSTEMD:
        write_launch_script(record, script)
    if output is not None and str(output) == "-":
        sys.stdout.write(text)
        return None
    path = folder / FILE_NAMES[wanted] if output is None else output
    return _write(text, path, executable=wanted is Format.SH)


def _write(text: str, path: Path, *, executable: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_bytes(text.encode("utf-8", "surrogateescape"))
    draft.chmod(0o755 if executable else 0o644)
    return draft.replace(path)
