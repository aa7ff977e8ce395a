"""Editing a space's YAML keeps what people wrote around the values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from search_spaces import CATALOG, SpaceDocument

TEXT = """\
# My space.
name: mine
knobs:
  dtype:   # the risky one
    arg: --dtype
    choices: [bfloat16, "float16"]
  threads: {env: OMP_NUM_THREADS, choices: [null, 1, 2]}  # one line

# Rules.
constraints:
  - "threads != 2"  # never
"""


@pytest.mark.parametrize("path", sorted(CATALOG.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_comment_of_the_catalog_survives(path: Path) -> None:
    text = path.read_text()
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    again = SpaceDocument(text).text()
    assert [line.partition("#")[2] for line in again.splitlines() if "#" in line] == comments
    assert SpaceDocument(again).space() == SpaceDocument(text).space()


def test_a_change_touches_its_own_line_only() -> None:
    document = SpaceDocument(TEXT)
    document.set(("knobs", "threads", "choices"), [None, 2])
    document.add(("rejected",), {"where": "threads == 2", "code": "too_slow"})
    before, after = TEXT.splitlines(), document.text().splitlines()
    assert [line for line in before if line not in after] == [
        "  threads: {env: OMP_NUM_THREADS, choices: [null, 1, 2]}  # one line"
    ]
    assert document.space().rejected[0].code == "too_slow"


def test_a_wrong_space_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    document = SpaceDocument(TEXT)
    document.write(path)
    document.set(("knobs", "dtype", "choices"), [])
    kept = path.read_text()
    with pytest.raises(ValidationError):
        document.write(path)
    assert path.read_text() == kept
