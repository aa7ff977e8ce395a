"""Whether an engine serves: it answers, on a port that is its own, and gives a real token."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from runners.launch import Launch

OnProgress = Callable[[str], None]

FIRST_PROMPT = "The capital of France is"


@dataclass(frozen=True)
class Readiness:
    """How the start went. Seconds count from the start of the engine's process."""

    ready_s: float
    first_token_s: float
    stages: tuple[tuple[float, str], ...]
    port_owner: int | None


class NotServing(Exception):  # noqa: N818 - names a state, not an error of ours
    """The first request failed; the text is what came back."""


def client_for(launch: Launch, timeout_s: float) -> httpx.Client:
    """A client of the engine. Proxies of the environment are not for an address of our own."""
    return httpx.Client(base_url=launch.base_url, timeout=timeout_s, trust_env=False)


def answers(client: httpx.Client, path: str) -> bool:
    """Whether the engine answers 200 there, now."""
    try:
        return client.get(path, timeout=2.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def first_token(
    client: httpx.Client, launch: Launch, api_key: str | None, timeout_s: float
) -> float:
    """Asks for one real token and returns the seconds that it took.

    Completions first, chat for a server that has only that.

    Raises:
        NotServing: the answer was an error, or had no choice in it.
        httpx.TimeoutException: no answer within `timeout_s`.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    settings = {"model": launch.model, "max_tokens": 1, "temperature": 0}
    began = time.monotonic()
    answer = _post(
        client, "/v1/completions", {**settings, "prompt": FIRST_PROMPT}, headers, timeout_s
    )
    if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED):
        messages = [{"role": "user", "content": FIRST_PROMPT}]
        answer = _post(
            client, "/v1/chat/completions", {**settings, "messages": messages}, headers, timeout_s
        )
    if answer.status_code != httpx.codes.OK:
        raise NotServing(f"HTTP {answer.status_code}: {answer.text[:300]}")
    try:
        choices = answer.json()["choices"]
    except (ValueError, KeyError, TypeError):
        choices = []
    if not choices:
        raise NotServing(f"no choice in the answer: {answer.text[:300]}")
    return time.monotonic() - began


def _post(
    client: httpx.Client,
    path: str,
    body: dict[str, Any],
    headers: dict[str, str],
    timeout_s: float,
) -> httpx.Response:
    try:
        return client.post(path, json=body, headers=headers, timeout=timeout_s)
    except httpx.TimeoutException:
        raise
    except httpx.HTTPError as error:
        raise NotServing(f"{type(error).__name__}: {error}") from error
