"""Launch settings become the words of a command line."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from runners import render_args

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=0, max_size=30)


def test_each_kind_of_value_has_its_words() -> None:
    args = {
        "enforce-eager": True,
        "async-scheduling": False,
        "quantization": None,
        "max-model-len": 2048,
        "cudagraph-capture-sizes": [1, 2],
        "compilation-config": {"mode": 3},
        "speculative-config.method": "ngram",
    }
    assert render_args(args) == [
        "--enforce-eager",
        "--no-async-scheduling",
        "--max-model-len", "2048",
        "--cudagraph-capture-sizes", "1", "2",
        "--compilation-config", '{"mode":3}',
        "--speculative-config.method", "ngram",
    ]  # fmt: skip


def test_a_value_that_looks_like_a_flag_stays_a_value() -> None:
    assert render_args({"seed": -1, "word": "--x"}) == ["--seed=-1", "--word=--x"]


@settings(max_examples=10, deadline=None)
@given(WORDS)
def test_any_text_reaches_the_engine_byte_for_byte(text: str) -> None:
    script = "import json,sys;print(json.dumps(sys.argv[1:]))"
    words = render_args({"x": text})
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.stdout.strip() == __import__("json").dumps(words)
