"""Renders launch settings to the words of a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from runners.runner import Argument


def render_args(args: Mapping[str, Argument]) -> list[str]:
    """Arguments as words: `{"x": True, "y": [1, 2]}` gives `["--x", "--y", "1", "2"]`.

    True is `--x`, False is `--no-x`, None is left out, a list gives one word per item, an object
    one word of JSON, anything else its text. Dotted keys stay as the engine spells them.
    """
    words: list[str] = []
    for key, value in args.items():
        words += _render(key, value)
    return words


def _render(key: str, value: Argument) -> list[str]:
    if value is None:
        return []
    if value is True:
        return [f"--{key}"]
    if value is False:
        return [f"--no-{key}"]
    if isinstance(value, list):
        return [f"--{key}", *(_word(item) for item in value)]
    word = _word(value)
    # A word that begins with a dash would be read as a flag of its own.
    return [f"--{key}={word}"] if word.startswith("-") else [f"--{key}", word]


def _word(value: Argument) -> str:
    if isinstance(value, dict | list | bool) or value is None:
        return json.dumps(value, separators=(",", ":"))
    return str(value)
