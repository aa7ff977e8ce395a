"""How the scripted server speaks: HTTP by hand, and OpenAI's shapes of requests and replies."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scripted_tokens import EOS, Reply, token_bytes, tokenize

JSON = dict[str, Any]


@dataclass
class Shape:
    """The OpenAI wire shape of one reply, for completions and for chat."""

    chat: bool
    model: str
    id: str
    body: JSON
    reply: Reply
    cached: int

    def __post_init__(self) -> None:
        self.texts = self.reply.pieces()
        self.created = int(time.time())
        asked = self.body.get("top_logprobs", 0) if self.chat else self.body.get("logprobs")
        wanted = self.body.get("logprobs") if self.chat else self.body.get("logprobs") is not None
        self.top_k = int(asked or 0) if wanted else None

    def usage(self, completion: int) -> JSON:
        prompt = len(self.reply.prompt_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def frame(self, choices: list[JSON], **more: Any) -> str:
        kind = (
            ("chat.completion.chunk" if self.body.get("stream") else "chat.completion")
            if self.chat
            else "text_completion"
        )
        return json.dumps(
            {
                "id": self.id,
                "object": kind,
                "created": self.created,
                "model": self.model,
                "choices": choices,
                **more,
            }
        )

    def logprobs(self, start: int, end: int) -> JSON | None:
        if self.top_k is None:
            return None
        tops = [self.reply.top(i, max(self.top_k, 1)) for i in range(start, end)]
        names = [[(self.name(token), value, token) for token, value in top] for top in tops]
        if self.chat:
            return {
                "content": [
                    {
                        "token": top[0][0],
                        "logprob": top[0][1],
                        "bytes": list(token_bytes(top[0][2])),
                        "top_logprobs": [
                            {"token": n, "logprob": v, "bytes": list(token_bytes(t))}
                            for n, v, t in top[: self.top_k]
                        ],
                    }
                    for top in names
                ]
            }
        offsets = list(itertools.accumulate(map(len, self.texts[:end]), initial=0))[start:end]
        return {
            "text_offset": offsets,
            "tokens": [top[0][0] for top in names],
            "token_logprobs": [top[0][1] for top in names],
            "top_logprobs": [{n: v for n, v, _ in top} for top in names] if self.top_k else None,
        }

    def name(self, token: int) -> str:
        if self.body.get("return_tokens_as_token_ids"):
            return f"token_id:{token}"
        return "</s>" if token == EOS else token_bytes(token).decode("utf-8", "replace")

    def choice(self, start: int, end: int) -> JSON:
        """The part of the single choice that tokens `start` to `end` make up."""
        text, last = "".join(self.texts[start:end]), end == len(self.reply.tokens)
        said: JSON = {"text": text}
        if self.chat:
            said = {
                "delta" if self.body.get("stream") else "message": {
                    "role": "assistant",
                    "content": text,
                }
            }
            if self.body.get("stream"):
                said["delta"].pop("role")
        ids = (
            {"token_ids": self.reply.tokens[start:end]} if self.body.get("return_token_ids") else {}
        )
        return {
            "index": 0,
            **said,
            "logprobs": self.logprobs(start, end),
            "finish_reason": self.reply.finish if last else None,
            "stop_reason": None,
            **ids,
        }

    def prompt_fields(self, choice: JSON) -> JSON:
        """The prompt's ids where vLLM puts them: on top for chat, else in the choice."""
        if not self.body.get("return_token_ids"):
            return {}
        if self.chat:
            return {"prompt_token_ids": self.reply.prompt_ids}
        choice["prompt_token_ids"] = self.reply.prompt_ids
        return {}

    def events(self, start: int, end: int) -> Iterator[str]:
        choice = self.choice(start, end)
        more: JSON = {}
        if start == 0:
            if self.chat:
                first = {
                    "index": 0,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                }
                yield self.frame([first], **self.prompt_fields(first))
            else:
                more = self.prompt_fields(choice)
        if (self.body.get("stream_options") or {}).get("continuous_usage_stats"):
            more["usage"] = self.usage(end)
        yield self.frame([choice], **more)

    def document(self) -> JSON:
        choice = self.choice(0, len(self.reply.tokens))
        more = self.prompt_fields(choice)
        return dict(
            json.loads(self.frame([choice], usage=self.usage(len(self.reply.tokens)), **more))
        )


def prompt_ids(body: JSON) -> list[int]:
    """Token ids of the prompt or of the templated messages of a request."""
    if "messages" in body:
        turns = [f"<|{m['role']}|>\n{content(m['content'])}\n" for m in body["messages"]]
        return tokenize("".join(turns) + "<|assistant|>\n")
    prompt = body.get("prompt", "")
    if isinstance(prompt, list):
        return (
            [int(t) for t in prompt]
            if all(isinstance(t, int) for t in prompt)
            else tokenize(str(prompt[0]))
        )
    return tokenize(prompt)


def content(part: Any) -> str:
    """The text of a chat message, given as a string or as a list of parts."""
    return part if isinstance(part, str) else "".join(p.get("text", "") for p in part)


def failure(status: int, message: str) -> JSON:
    kind = (
        "BadRequestError"
        if status == 400
        else "NotFoundError"
        if status == 404
        else "InternalServerError"
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


async def read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, str, dict[str, str], bytes] | None:
    """The next request of a connection, or None when the client has closed it."""
    line = await reader.readline()
    if not line.strip():
        return None
    method, path, _ = line.decode("latin-1").split()
    headers: dict[str, str] = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))


def head(status: int, kind: str, *, length: int = 0, chunked: bool = False) -> bytes:
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    return f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\n{size}\r\n\r\n".encode()


def send(writer: asyncio.StreamWriter, status: int, body: JSON | str) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    writer.write(head(status, kind, length=len(raw)) + raw)


def chunk(event: str) -> bytes:
    raw = b"data: " + event.encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(raw), raw)
