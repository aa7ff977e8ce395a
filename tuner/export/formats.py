"""The formats of an export, and the one function that writes a trial in any of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from tuner.document import nearest
from tuner.export.compose import compose_file
from tuner.export.documents import env_file, json_document
from tuner.export.kubernetes import kubernetes_manifest
from tuner.export.result import result_record
from tuner.export.settings import ExportError, Settings, settings_of
from tuner.export.shell import shell_script
from tuner.export.systemd import systemd_unit
from tuner.ledger import TrialRecord


class Format(StrEnum):
    """What a trial can be written as."""

    SH = "sh"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"
    JSON = "json"
    ENV = "env"
    RECORD = "record"


class UnknownFormatError(ExportError):
    """There is no format of this name; the message lists those that there are."""


FILE_NAMES: dict[Format, str] = {
    Format.SH: "launch.sh",
    Format.COMPOSE: "compose.yaml",
    Format.SYSTEMD: "tuner.service",
    Format.KUBERNETES: "kubernetes.yaml",
    Format.JSON: "launch.json",
    Format.ENV: "launch.env",
    Format.RECORD: "result.json",
}
"""What a file of each format is called."""

_WRITERS: dict[Format, Callable[[Settings], str]] = {
    Format.SH: shell_script,
    Format.COMPOSE: compose_file,
    Format.SYSTEMD: systemd_unit,
    Format.KUBERNETES: kubernetes_manifest,
    Format.JSON: json_document,
    Format.ENV: env_file,
    Format.RECORD: result_record,
}

INSTALLED = Path("/opt/tuner/launch.sh")
"""Where a unit looks for the launch script unless it is told."""


def format_of(name: str) -> Format:
    """The format of that name. Raises UnknownFormatError."""
    try:
        return Format(name)
    except ValueError:
        raise UnknownFormatError(
            f"no format is called '{name}'{nearest(name, list(Format))}"
        ) from None


def export(record: TrialRecord, kind: Format | str, *, script: Path = INSTALLED) -> str:
    """A trial in a format; `script` is where its launch script lies, for formats that start it.

    Raises ExportError if there is no format so called, or nothing to export.
    """
    return _WRITERS[format_of(kind)](settings_of(record, script))
