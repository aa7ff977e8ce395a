"""Judging the words of one answer: exact text, JSON value, JSON schema."""

from __future__ import annotations

import json
from typing import Any, Literal

from objectives.client import Ask
from objectives.json_schema import schema_problem
from objectives.quality_cases import Expected

Api = Literal["chat", "completion"]


def ask_for(prompt: str, api: Api, *, max_tokens: int, top: int = 0) -> Ask:
    """The request that puts `prompt` to the model as a chat turn or as a raw completion."""
    if api == "chat":
        return Ask(messages=({"role": "user", "content": prompt},), max_tokens=max_tokens, top=top)
    return Ask(prompt=prompt, max_tokens=max_tokens, top=top)


def answer_problem(
    text: str,
    *,
    expected: Expected | None = None,
    contains: str | None = None,
    json_schema: dict[str, Any] | None = None,
) -> str | None:
    """What is wrong with an answer, as one clause, or None when it is right."""
    said = text.strip()
    if contains is not None and contains not in said:
        return f"said {shown(said)}, which does not contain {shown(contains)}"
    if expected is not None and expected.text is not None and said != expected.text.strip():
        return f"said {shown(said)} instead of {shown(expected.text)}"
    wants_json = json_schema is not None or (expected is not None and expected.text is None)
    if not wants_json:
        return None
    try:
        value = json.loads(_unfenced(said))
    except ValueError:
        return f"said {shown(said)}, which is not JSON"
    if json_schema is not None:
        problem = schema_problem(value, json_schema)
        if problem:
            return f"said {shown(said)}: {problem}"
    if expected is not None and expected.text is None and value != expected.value:
        return f"said {shown(said)} instead of {shown(json.dumps(expected.value))}"
    return None


def shown(text: str, limit: int = 80) -> str:
    """A text as it is quoted in a reason: on one line, cut to `limit` characters."""
    return repr(text if len(text) <= limit else text[:limit] + "...")


def _unfenced(text: str) -> str:
    """The content of a Markdown code fence, which chat models like to put around JSON."""
    if not (text.startswith("```") and text.endswith("```") and "\n" in text):
        return text
    return text.split("\n", 1)[1].rsplit("```", 1)[0].strip()
