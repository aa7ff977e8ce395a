"""The client of an OpenAI-compatible endpoint: streams answers and notes when each token came.

Tokens are counted by their ids, never by events: under speculation one event holds several tokens.
Requests are greedy. Every request carries its own `cache_salt`, so that no prefix of another one is
reused and time to first token is the whole prefill.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx
from pydantic import BaseModel, ConfigDict

from objectives.endpoint import Endpoint, EndpointError, Phase


class Completion(BaseModel):
    """One answer. Times are `time.perf_counter` seconds of this process.

    `events` holds one (time, tokens so far) pair per event that brought tokens. `top` holds, per
    token, the likeliest ids with their log-probabilities, where they were asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    ids: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int | None
    finish_reason: str | None
    sent_s: float
    events: tuple[tuple[float, int], ...]
    ended_s: float
    top: tuple[dict[int, float], ...] = ()

    @property
    def first_token_s(self) -> float:
        """When the first token came."""
        return self.events[0][0]

    @property
    def last_token_s(self) -> float:
        """When the last token came."""
        return self.events[-1][0]


class Ask(BaseModel):
    """One greedy request: a prompt as text or ids, or chat messages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str | tuple[int, ...] | None = None
    messages: tuple[dict[str, str], ...] | None = None
    max_tokens: int
    ignore_eos: bool = False
    top: int = 0
    stop: tuple[str, ...] = ()
    cache_salt: str | None = None

    def body(self, model: str) -> dict[str, Any]:
        """The JSON body of this request."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "cache_salt": self.cache_salt or uuid.uuid4().hex,
        }
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.stop:
            body["stop"] = list(self.stop)
        if self.messages is not None:
            body["messages"] = list(self.messages)
            if self.top:
                body |= {"logprobs": True, "top_logprobs": self.top}
        else:
            body["prompt"] = list(self.prompt) if isinstance(self.prompt, tuple) else self.prompt
            if self.top:
                body["logprobs"] = self.top
        if self.top:
            body["return_tokens_as_token_ids"] = True
        return body

    @property
    def path(self) -> str:
        """Where the request is sent."""
        return "/v1/completions" if self.messages is None else "/v1/chat/completions"


class Client:
    """An open connection to one endpoint; use it as an async context manager.

    Every method raises EndpointError when the endpoint does not answer properly.
    """

    def __init__(self, endpoint: Endpoint, *, streams: int = 1) -> None:
        self.endpoint = endpoint
        self._http = httpx.AsyncClient(
            base_url=endpoint.base_url,
            headers=endpoint.headers(),
            timeout=httpx.Timeout(endpoint.timeout_s, connect=10.0, pool=None),
            limits=httpx.Limits(max_connections=streams + 2, max_keepalive_connections=streams + 2),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def complete(self, ask: Ask) -> Completion:
        """Send one request and read its stream to the end."""
        reader = _StreamReader()
        body = json.dumps(ask.body(self.endpoint.model)).encode()
        sent_s = time.perf_counter()
        async with _errors("request"):
            request = self._http.build_request(
                "POST", ask.path, content=body, headers={"Content-Type": "application/json"}
            )
            response = await self._http.send(request, stream=True)
        try:
            if response.status_code != 200:
                async with _errors("request"):
                    detail = (await response.aread()).decode("utf-8", "replace")
                raise EndpointError("request", response.status_code, _shorten(detail))
            async with _errors("stream"):
                async for chunk in response.aiter_raw():
                    reader.feed(chunk, time.perf_counter())
        finally:
            await response.aclose()
        return reader.completion(sent_s, time.perf_counter())

    async def tokenize(
        self, text: str | None = None, *, messages: tuple[dict[str, str], ...] | None = None
    ) -> tuple[int, ...]:
        """Token ids of a text, or of chat messages as the model's template renders them."""
        body: dict[str, Any] = {"model": self.endpoint.model}
        if messages is not None:
            body |= {"messages": list(messages), "add_generation_prompt": True}
        else:
            body |= {"prompt": text, "add_special_tokens": False}
        answer = await self._json("POST", "/tokenize", "tokenize", body)
        return tuple(answer["tokens"])

    async def detokenize(self, ids: tuple[int, ...]) -> str:
        """The text that token ids stand for."""
        body = {"model": self.endpoint.model, "tokens": list(ids)}
        return str((await self._json("POST", "/detokenize", "tokenize", body))["prompt"])

    async def metrics(self) -> str:
        """The engine's Prometheus text, or an empty string where the endpoint has none."""
        async with _errors("metrics"):
            response = await self._http.get("/metrics")
        if response.status_code == 404:
            return ""
        if response.status_code != 200:
            raise EndpointError("metrics", response.status_code, _shorten(response.text))
        return response.text

    async def _json(
        self, method: str, path: str, phase: Phase, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        async with _errors(phase):
            response = await self._http.request(method, path, json=body)
        if response.status_code != 200:
            raise EndpointError(phase, response.status_code, _shorten(response.text))
        answer: dict[str, Any] = response.json()
        return answer


class _StreamReader:
    """Puts a stream of server-sent events together; one chunk of bytes may hold many or a part."""

    def __init__(self) -> None:
        self._rest = b""
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._events: list[tuple[float, int]] = []
        self._top: list[dict[int, float]] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._done = False

    def feed(self, chunk: bytes, now_s: float) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_s)

    def _event(self, data: bytes, now_s: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            error = event["error"]
            raise EndpointError("stream", error.get("code"), _shorten(str(error.get("message"))))
        if event.get("usage"):
            self._usage = event["usage"]
        for choice in event.get("choices", ()):
            delta = choice.get("delta")
            self._texts.append(
                (choice.get("text") if delta is None else delta.get("content")) or ""
            )
            ids = choice.get("token_ids")
            if ids:
                self._ids += ids
                self._events.append((now_s, len(self._ids)))
            if choice.get("logprobs"):
                self._top += _top_tokens(choice["logprobs"])
            self._finish = choice.get("finish_reason") or self._finish

    def completion(self, sent_s: float, ended_s: float) -> Completion:
        if not self._done:
            raise EndpointError("stream", None, "the stream ended before its [DONE] event.")
        if not self._events:
            raise EndpointError(
                "stream",
                None,
                "the answer holds no token ids; the engine must support `return_token_ids`.",
            )
        said = self._usage.get("completion_tokens")
        if said is not None and said != len(self._ids):
            raise EndpointError(
                "stream", None, f"the engine counts {said} tokens and sent {len(self._ids)} ids."
            )
        details = self._usage.get("prompt_tokens_details") or {}
        return Completion(
            text="".join(self._texts),
            ids=tuple(self._ids),
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            cached_tokens=details.get("cached_tokens"),
            finish_reason=self._finish,
            sent_s=sent_s,
            events=tuple(self._events),
            ended_s=ended_s,
            top=tuple(self._top),
        )


def _top_tokens(logprobs: Mapping[str, Any]) -> list[dict[int, float]]:
    """Ids and log-probabilities per token, in the shape of completions or of chat."""
    if "content" in logprobs:
        return [
            {
                _token_id(entry["token"]): entry["logprob"]
                for entry in [token, *token["top_logprobs"]]
            }
            for token in logprobs["content"]
        ]
    return [
        {_token_id(token): value for token, value in (tops or {}).items()}
        for tops in logprobs.get("top_logprobs") or ()
    ]


def _token_id(name: str) -> int:
    """The id in `token_id:123`, the form that `return_tokens_as_token_ids` asks for."""
    return int(name.removeprefix("token_id:"))


def _shorten(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."


@asynccontextmanager
async def _errors(phase: Phase) -> AsyncIterator[None]:
    """Turns what httpx raises into the one error of this package."""
    try:
        yield
    except httpx.ConnectError as error:
        raise EndpointError("connect", None, f"cannot connect ({error}).") from None
    except httpx.TimeoutException as error:
        raise EndpointError(phase, None, f"no answer in time ({type(error).__name__}).") from None
    except httpx.HTTPError as error:
        raise EndpointError(phase, None, f"{type(error).__name__}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise EndpointError(phase, None, f"the answer is malformed ({error!r}).") from None


async def ask_in_turn(client: Client, asks: list[Ask], *, at_a_time: int = 1) -> list[Completion]:
    """Answers to several requests, in order, with at most `at_a_time` of them open."""
    seats = asyncio.Semaphore(at_a_time)

    async def one(ask: Ask) -> Completion:
        async with seats:
            return await client.complete(ask)

    return list(await asyncio.gather(*(one(ask) for ask in asks)))
