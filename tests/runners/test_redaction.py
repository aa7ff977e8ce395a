"""Secrets and terminal escapes stay out of what is written and printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners import is_secret, plain, redact_env, redact_text


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "OPENAI_API_KEY", "MLFLOW_TRACKING_PASSWORD", "my_token", "DB_PASSWORD_2"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["PATH", "VLLM_CPU_KVCACHE_SPACE", "TOKENIZERS_PARALLELISM"])
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)


def test_a_runner_may_name_more() -> None:
    assert is_secret("MY_PIN", ["MY_PIN"])
    assert redact_env({"MY_PIN": "1234", "A": "b"}, ["MY_PIN"]) == {
        "MY_PIN": "[redacted]",
        "A": "b",
    }


def test_of_overlapping_values_the_longest_goes_first() -> None:
    assert redact_text("key=abcdef", ["abc", "abcdef"]) == "key=[redacted]"


@given(st.text())
def test_plain_text_never_holds_an_escape(text: str) -> None:
    assert "\x1b" not in plain("\x1b[1m" + text + "\x1b]8;;http://x\x07")
