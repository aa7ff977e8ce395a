"""The formats of an export, and the one function that writes a trial in any of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from tuner.document import nearest
from tuner.export.settings import ExportError, Settings, settings_of
from tuner.export.shell import shell_script
from tuner.ledger import TrialRecord


class Format(StrEnum):
    """What a trial can be written as."""

    SH = "sh"


class UnknownFormatError(ExportError):
    """There is no format of this name; the message lists those that there are."""


FILE_NAMES: dict[Format, str] = {Format.SH: "launch.sh"}
"""What a file of each format is called."""

_WRITERS: dict[Format, Callable[[Settings], str]] = {Format.SH: shell_script}


def format_of(name: str) -> Format:
    """The format of that name. Raises UnknownFormatError."""
    try:
        return Format(name)
    except ValueError:
        raise UnknownFormatError(
            f"no format is called '{name}'{nearest(name, list(Format))}"
        ) from None


def export(record: TrialRecord, kind: Format | str) -> str:
    """A trial in a format. Raises ExportError if there is none so called, or nothing to export."""
    return _WRITERS[format_of(kind)](settings_of(record))
