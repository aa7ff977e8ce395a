"""Documents: every mistake in a file is reported with its place, in a sentence one can act on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tuner.document import DocumentError, load


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    repeats: int = Field(default=1, ge=1)


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str
    steps: list[Step] = []
    by_name: dict[str, Step] = {}


def messages(folder: Path, text: str) -> list[str]:
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load(path, Plan)
    return [str(problem).removeprefix(f"{path}") for problem in caught.value.problems]


def test_a_good_document_is_its_model(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("title: on  # YAML 1.2: a word, not a truth value\nsteps: [{name: a}]\n")
    assert load(path, Plan) == Plan(title="on", steps=[Step(name="a")])


def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    assert messages(tmp_path, "title: t\nsteps:\n  - name: a\n    repeat: 3\n") == [
        ":4:5: unknown key 'repeat'; did you mean 'repeats'?"
    ]


def test_an_unknown_key_below_a_free_key_knows_its_neighbours(tmp_path: Path) -> None:
    assert messages(tmp_path, "title: t\nby_name:\n  first: {name: a, repaets: 3}\n") == [
        ":3:20: unknown key 'repaets'; did you mean 'repeats'?"
    ]


def test_a_key_unlike_any_other_is_answered_with_all_that_there_are(tmp_path: Path) -> None:
    assert messages(tmp_path, "title: t\nqqq: 1\n") == [
        ":2:1: unknown key 'qqq'; known: by_name, steps, title."
    ]


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = "titel: t\nsteps:\n  - {name: a, repeats: 0}\n  - {repeats: many}\n"
    told = messages(tmp_path, text)
    assert len(told) == 5
    assert ":3:15: steps.0.repeats: input should be greater than or equal to 1 (given: 0)." in told
    assert any("'title' is missing" in message for message in told)
    assert any("'steps.1.name' is missing" in message for message in told)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: [\n", "is not valid YAML"),
        ("- a\n- b\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("title: t\ntitle: u\n", 'found duplicate key "title"'),
        ("title: !!python/object/apply:os.system ['true']\n", "title"),
    ],
)
def test_what_is_no_mapping_of_plain_values_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in messages(tmp_path, text)[0]


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"cannot read this file .*check the path"):
        load(tmp_path / "none.yaml", Plan)


def test_a_file_that_is_not_text_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DocumentError, match="not UTF-8"):
        load(path, Plan)
