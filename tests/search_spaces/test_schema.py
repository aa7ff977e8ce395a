"""The published JSON Schema accepts what the models accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from search_spaces import CATALOG, schema


def errors(document: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema()).iter_errors(document)]


@pytest.mark.parametrize("path", sorted(CATALOG.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_catalog_fits_its_schema(path: Path) -> None:
    assert errors(YAML(typ="safe").load(path)) == []


def test_an_editor_sees_a_mistyped_key() -> None:
    assert not errors({"name": "x", "knobs": {}, "constraints": ["1 < 2", {"that": "1 < 2"}]})
    assert errors({"name": "x", "knobs": {"a": {"choises": [1]}}})
    assert errors({"name": "x", "knobs": {"a": {"env": "A", "choices": [1]}}, "guards": [{}]})


def test_the_schema_is_valid_and_explains_its_keys() -> None:
    Draft202012Validator.check_schema(schema())
    knob = schema()["$defs"]["Knob"]["properties"]
    assert all("description" in entry for entry in knob.values())
