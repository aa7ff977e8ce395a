"""A log is followed while it grows, and says how far a start is."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.log import LogFollower, progress_of, read_log
from runners.supervisor import Log


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "Capturing CUDA graphs (mixed prefill-decode):  93%|#####| 14/15 [00:03<00:00]",
            "capturing graphs 14/15",
        ),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01, 1.2s/it]",
            "loading weights 1/2",
        ),
        (
            "(EngineCore pid=1) INFO [core.py:1] Initializing a V1 LLM engine (v0.32.0)",
            "starting the engine",
        ),
        (
            "(APIServer pid=1) INFO [entry.py:1] Starting vLLM server on http://127.0.0.1:1",
            "listening",
        ),
        ("(APIServer pid=1) WARNING Enforce eager set, disabling torch.compile", None),
        ("nothing of interest", None),
    ],
)
def test_progress_is_read_from_the_log(line: str, progress: str | None) -> None:
    assert progress_of(line) == progress


def test_a_follower_gives_each_line_once_and_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    follower = LogFollower(path)
    assert follower.new_lines() == []
    path.write_text("one\ntw")
    assert follower.new_lines() == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert follower.new_lines() == ["two", "three"]
    assert follower.new_lines() == []


def test_a_log_keeps_its_beginning_and_its_end_within_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = Log(path, 8000, [])
    for number in range(5000):
        log.feed(b"line %d\n" % number)
    log.close()
    lines = read_log(path)
    assert lines[0] == "line 0"
    assert "line 4999" in lines
    assert any("the log was cut here" in line for line in lines)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 8000


def test_a_follower_crosses_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    log = Log(path, 400, [])
    follower = LogFollower(path)
    seen = []
    for number in range(30):
        log.feed(b"line %d\n" % number)
        seen += follower.new_lines()
    assert seen == [f"line {number}" for number in range(30)]


def test_a_secret_is_redacted_even_when_it_comes_in_pieces(tmp_path: Path) -> None:
    log = Log(tmp_path / "server.log", 8000, [b"hunter22"])
    log.feed(b"my password is hun")
    log.feed(b"ter22, do not tell\n")
    log.close()
    assert read_log(tmp_path / "server.log")[0] == "my password is [redacted], do not tell"


def test_terminal_escapes_do_not_survive(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jend\n")
    assert read_log(tmp_path / "server.log")[0] == "red end"


def test_a_disk_that_is_full_loses_the_log_and_nothing_else() -> None:
    log = Log(Path("/dev/full"), 8000, [])
    log.feed(b"line\n")
    log.feed(b"line\n")
    log.close()
    assert log.error == "No space left on device while writing full"
