"""Writing any text down so that another language reads back the same bytes."""

from __future__ import annotations

import re
import shlex

_BARE = re.compile(r"[A-Za-z0-9@%+:,./_-]+")
_PLAIN = re.compile(r"[ -~\n]*")
_ANSI_C = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\t": r"\t", "\r": r"\r"}


def shell_word(text: str) -> str:
    """One word of bash.

    Printable ASCII and newlines are quoted singly, where nothing is special. All else is written
    byte by byte, in octal: how bash reads a character otherwise depends on the locale.
    """
    if _BARE.fullmatch(text):
        return text
    if _PLAIN.fullmatch(text):
        return "'" + text.replace("'", "'\"'\"'") + "'"
    return f"$'{''.join(_ansi_c(character) for character in text)}'"


def _ansi_c(character: str) -> str:
    if character in _ANSI_C:
        return _ANSI_C[character]
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def systemd_word(text: str) -> str:
    """One word of a systemd unit: quoted, with specifiers and variables escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("\t", "\\t").replace("%", "%%").replace("$", "$$") + '"'


def dotenv_value(text: str) -> str:
    """A value of an env file that a shell can source and dotenv readers understand."""
    return shlex.quote(text)


def checksum_line(name: str, sha256: str) -> str:
    """A line for `sha256sum --check`, whose own escapes stand for backslash and newline."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == name else chr(92)}{sha256}  {escaped}"
