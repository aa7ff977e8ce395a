"""Reads an engine's log as it grows, across its rotated segments."""

from __future__ import annotations

import re
from pathlib import Path

from runners.redaction import plain

_SHARDS = re.compile(r"Loading .*shards:\s+(\d+)% Completed \| (\d+)/(\d+)")
_STEP = re.compile(
    r"(Capturing [^:]{0,60}?|Warming up[^:]{0,40}?|Compiling [^:]{0,40}?)\W{0,3}:?\s*"
    r"(?:\(.*?\):?)?\s*(?:\d+%\|.*?\|\s*)?(\d+)/(\d+)"
)
_STAGES = (
    (re.compile(r"Starting to load model|Loading model"), "loading the model"),
    (
        re.compile(r"Dynamo bytecode|Compiling a graph|Start compiling|torch\.compile t"),
        "compiling",
    ),
    (re.compile(r"KV cache size|kv cache", re.IGNORECASE), "making the KV cache"),
    (re.compile(r"Capturing|graph captur", re.IGNORECASE), "capturing graphs"),
    (re.compile(r"Starting .*server on|Application startup complete|Uvicorn running"), "listening"),
    (re.compile(r"Initializing a V1 LLM engine|Initializing engine"), "starting the engine"),
)


class LogFollower:
    """Gives the lines that were added since the last look. A file not there yet has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._segment = 0
        self._offset = 0
        self._partial = b""

    def new_lines(self) -> list[str]:
        """New whole lines, safe to print; a rotation loses at most the dropped middle."""
        lines: list[bytes] = []
        while True:
            lines += self._read(self._segment_path(self._segment))
            following = self._later_segment()
            if following is None:
                break
            self._segment, self._offset = following, 0
        return [plain(line.decode(errors="replace")).rstrip() for line in lines]

    def _read(self, path: Path) -> list[bytes]:
        if not path.is_file():  # a device in its place may have no end
            return []
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._partial = (self._partial + data).replace(b"\r", b"\n").split(b"\n")
        return whole

    def _segment_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def _later_segment(self) -> int | None:
        later = [number for number in _segments(self.path) if number > self._segment]
        return min(later) if later else None


def read_log(path: Path) -> list[str]:
    """The log as lines that are safe to print: its whole beginning and its end, oldest first."""
    lines: list[str] = []
    last = 0
    for number in [0, *_segments(path)]:
        segment = path.with_name(f"{path.name}.{number}") if number else path
        if not segment.is_file():  # a device in its place may have no end
            continue
        try:
            data = segment.read_bytes()
        except OSError:
            continue
        if number > last + 1:
            lines.append(f"[... the log was cut here: {number - last - 1} segments dropped ...]")
        last = number
        text = data.decode(errors="replace").replace("\r", "\n")
        lines += [plain(line).rstrip() for line in text.split("\n")]
    return lines


def _segments(path: Path) -> list[int]:
    suffixes = (p.name.removeprefix(path.name + ".") for p in path.parent.glob(path.name + ".*"))
    return sorted(int(suffix) for suffix in suffixes if suffix.isdigit())


def progress_of(line: str) -> str | None:
    """What a line of the log says about how far the start is, or None.

    `Capturing CUDA graphs (PIECEWISE): 93%|…| 14/15` gives `capturing graphs 14/15`.
    """
    shards = _SHARDS.search(line)
    if shards:
        return f"loading weights {shards[2]}/{shards[3]}"
    step = _STEP.search(line)
    if step:
        what = "capturing graphs" if step[1].startswith("Capturing") else step[1].strip().lower()
        return f"{what} {step[2]}/{step[3]}"
    return next((stage for pattern, stage in _STAGES if pattern.search(line)), None)
