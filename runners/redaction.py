"""Keeps secrets and terminal escapes out of everything that is written down or printed."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

SECRET_NAMES = ("*_TOKEN", "*_KEY", "*PASSWORD*", "*SECRET*", "*CREDENTIAL*")
REDACTED = "[redacted]"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links
    r"|\x1b[P^_X][^\x1b]*(?:\x1b\\)?"  # device control, privacy, application strings
    r"|\x1b[ -/]*[0-~]"  # the other two-byte escapes
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and newline
)


def is_secret(name: str, extra: Iterable[str] = ()) -> bool:
    """Whether a variable of this name holds something that must not be written down."""
    return any(fnmatch.fnmatchcase(name.upper(), p.upper()) for p in (*SECRET_NAMES, *extra))


def redact_env(env: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """The same variables, with the values of secrets replaced."""
    extra = tuple(extra)
    return {name: REDACTED if is_secret(name, extra) else value for name, value in env.items()}


def redact_text(text: str, values: Iterable[str]) -> str:
    """The text without the given secret values; the longest first, as one may contain another."""
    for value in sorted((v for v in values if v), key=len, reverse=True):
        text = text.replace(value, REDACTED)
    return text


def plain(text: str) -> str:
    """Text that is safe to print: no terminal escapes, no control character but tab and newline."""
    return _ESCAPES.sub("", text)
