"""Asking an engine's Python: a stand-in package here, the real engine where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runners.embedded import engine_python
from search_spaces import CATALOG, IntrospectionError, SearchSpace, SpaceDocument, check, introspect

PYTHON = """#!/bin/sh
exec env PYTHONPATH={folder} {python} "$@"
"""
CLI_ARGS = """
def make_arg_parser(parser):
    group = parser.add_argument_group("SchedulerConfig")
    group.add_argument("--max-num-seqs", type=int, help="Requests in a batch.")
    group.add_argument("--old", help="--old is deprecated. Use --new.")
    return parser
"""
PARSER = "from argparse import ArgumentParser as FlexibleArgumentParser"
ENVS = """
import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    VLLM_MODE: Literal["fast", "exact"] | None = None
    VLLM_LIMIT: int = 4

environment_variables = {
    # How exact it is.
    "VLLM_MODE": lambda: os.getenv("VLLM_MODE"),
    "VLLM_LIMIT": lambda: int(os.getenv("VLLM_LIMIT", "4")),
}
print("engines chat while they are imported")
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python that has a small package called vllm."""
    files = {
        "vllm/__init__.py": "",
        "vllm/envs.py": ENVS,
        "vllm/config/__init__.py": "",
        "vllm/engine/__init__.py": "",
        "vllm/engine/arg_utils.py": "class AsyncEngineArgs:\n    max_num_seqs: int = 8\n",
        "vllm/utils/__init__.py": "",
        "vllm/utils/argparse_utils.py": PARSER,
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/launchers/__init__.py": "",
        "vllm/entrypoints/launchers/cli_args.py": CLI_ARGS,
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = tmp_path / "python"
    script.write_text(PYTHON.format(folder=tmp_path / "site", python=sys.executable))
    script.chmod(0o755)
    return script


def test_tells_types_choices_defaults_and_help(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_LIMIT", "99")  # what holds in our shell is not the engine's default
    offered = introspect(python, cache=tmp_path / "cache")
    mode, limit = offered.env
    assert (mode.choices, mode.help, mode.domain) == (
        ("fast", "exact"), "How exact it is.", "fast, exact",
    )  # fmt: skip
    assert (limit.kinds, limit.default) == (("int",), 4)
    seqs, old = offered.args
    assert (seqs.name, seqs.kinds, seqs.group) == ("max-num-seqs", ("int",), "SchedulerConfig")
    assert old.deprecated == "--old is deprecated."


def test_asks_again_only_when_the_engine_has_changed(python: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = introspect(python, cache=cache)
    (kept,) = cache.iterdir()
    kept.write_text(first.model_copy(update={"version": "from the cache"}).model_dump_json())
    assert introspect(python, cache=cache).version == "from the cache"
    with (tmp_path / "site/vllm/envs.py").open("a") as envs:
        envs.write("environment_variables['VLLM_NEW'] = lambda: None\n")
    assert "VLLM_NEW" in introspect(python, cache=cache).env_by_name


def test_a_python_without_the_engine_is_one_sentence() -> None:
    with pytest.raises(IntrospectionError, match=r"has no vllm.*name the Python"):
        introspect(sys.executable)


def test_something_that_is_no_python_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(IntrospectionError, match="name the engine's Python"):
        introspect(tmp_path / "missing")
    with pytest.raises(IntrospectionError, match="no Python"):
        introspect("/bin/true")


@pytest.mark.engine
def test_the_installed_engine_is_described_and_the_catalog_fits_it(tmp_path: Path) -> None:
    offered = introspect(engine_python(), cache=tmp_path)
    assert len(offered.env) > 300
    assert len(offered.args) > 300
    names = [name for name, _ in offered.search("speculative")]
    assert "--speculative-config.num_speculative_tokens" in names
    assert "bfloat16" in offered.args_by_flag["dtype"].choices
    for name in ("vllm-cpu", "vllm-cpu-quickstart", "vllm-cuda", "vllm-xpu"):
        space: SearchSpace = SpaceDocument.read(CATALOG / f"{name}.yaml").space()
        assert check(space, offered) == []
