"""Python tracebacks in a log: the first one is the cause, and equal ones are one kind of crash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

_PREFIX = re.compile(
    r"^(?:\((?P<process>[\w-]+)(?: pid=\d+)?\) )?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d\d-\d\d \d\d:\d\d:\d\d )?\[[^\]]*\] ?)?"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_EXCEPTION = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Lost|Warning))"
    r"(?:: (?P<message>.*))?$"
)
_VOLATILE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"/[^\s'\":,)]+/"), ""),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)


@dataclass(frozen=True)
class LogLine:
    """A line without what the engine's logger put in front of it."""

    text: str
    process: str | None
    level: str | None


@dataclass(frozen=True)
class Stack:
    """One traceback: the line with its exception, its frames from the outside in, its place."""

    exception: str
    message: str
    frames: tuple[tuple[str, str], ...]
    index: int

    @property
    def cluster(self) -> str:
        """Twelve hexadecimal digits, equal for crashes that differ only in numbers and paths.

        Made of the exception's kind, its message without numbers, addresses and folders, and the
        innermost eight frames as file and function: line numbers move with every patch.
        """
        message = self.message
        for pattern, replacement in _VOLATILE:
            message = pattern.sub(replacement, message)
        frames = ["|".join(frame) for frame in self.frames[-8:]]
        text = "\n".join([self.exception, message, *frames])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def parse_line(line: str) -> LogLine:
    """Splits `(Worker pid=7) ERROR 12-01 15:37:25 [file.py:1] text` into its parts."""
    match = _PREFIX.match(line)
    if match is None or not match.group():
        return LogLine(line, None, None)
    return LogLine(line[match.end() :], match["process"], match["level"])


def find_stacks(lines: Sequence[str]) -> list[Stack]:
    """Every traceback in the order of their ends.

    Processes may write at the same time, so frames are collected per process.
    """
    stacks: list[Stack] = []
    frames: dict[str | None, list[tuple[str, str]]] = {}
    for index, raw in enumerate(lines):
        line = parse_line(raw)
        if line.text.startswith("Traceback (most recent call last)"):
            frames[line.process] = []
            continue
        frame = _FRAME.match(line.text)
        if frame:
            name = frame["file"].rpartition("site-packages/")[2].rpartition("/lib/python")[2]
            frames.setdefault(line.process, []).append((name, frame["function"]))
            continue
        exception = _EXCEPTION.match(line.text)
        if exception and line.process in frames:
            stacks.append(
                Stack(
                    exception["kind"],
                    exception["message"] or "",
                    tuple(frames.pop(line.process)),
                    index,
                )
            )
    return stacks
