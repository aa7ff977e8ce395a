"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.tuner.trial_records import accepted_record, control_record, rejected_record
from tuner.cli import app
from tuner.run_fields import METRIC_MEANINGS, TAG_MEANINGS, run_fields

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


@pytest.mark.parametrize("name", ["cli.md", "codes.md", "mlflow.md", "yaml.md"])
def test_a_page_of_the_reference_is_fresh(name: str) -> None:
    fresh = generated()[name]
    assert (REFERENCE / name).read_text() == fresh, "run: python docs/reference/generate.py"


def verbs(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if hasattr(command, "commands"):
        return [v for name, c in command.commands.items() for v in verbs(c, (*path, name))]
    return [path]


@pytest.mark.parametrize("verb", verbs(typer.main.get_command(app)), ids=" ".join)
def test_every_verb_has_help_with_an_example(verb: tuple[str, ...]) -> None:
    run = CliRunner().invoke(app, [*verb, "--help"])
    assert run.exit_code == 0
    assert "Example: tuner" in " ".join(run.output.split())


def test_every_metric_and_tag_of_a_trial_is_explained() -> None:
    control = control_record()
    patterns = [re.escape(name).replace(r"\*", ".*") for name in METRIC_MEANINGS]
    for record in (control, rejected_record(1), accepted_record(2, duplicate_of=1)):
        fields = run_fields(record, control, str)
        for point in fields.points:
            assert any(re.fullmatch(p, point.key) for p in patterns), point.key
        assert fields.tags.keys() <= TAG_MEANINGS.keys()


def links() -> list[tuple[Path, str]]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("mlflow/*.md")]
    return [
        (page, target)
        for page in pages
        for target in re.findall(
            r"\]\(([^)#\s]+)[^)]*\)",
            re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL),
        )
        if "://" not in target
    ]


@pytest.mark.parametrize(("page", "target"), links())
def test_a_link_of_the_documentation_leads_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists(), f"{page}: {target}"
