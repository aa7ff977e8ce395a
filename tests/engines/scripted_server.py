#!/usr/bin/env python3
"""A small OpenAI-compatible server that says scripted tokens at a scripted speed and fails on request.

It stands where a vLLM server would in the fast tests: a process of its own that really dies, hangs, corrupts an
answer, ignores signals or leaves an orphan. Standard library only, so any Python can start it:

    python scripted_server.py --port 8123 --tok-s 200 --corrupt-canary-at 8

What it says is a pure function of the prompt: two instances agree token for token unless a flag makes one
of them differ. One asyncio loop serves every stream, so that 256 concurrent streams keep their pace.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import functools
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]

EOS = 256
FIRST_WORD = 257
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SYLLABLES = [c + v for c in _CONSONANTS for v in _VOWELS]
WORDS = [" " + a + b for a in _SYLLABLES for b in _SYLLABLES]  # 4900 two-syllable words
WORD_IDS = {word: FIRST_WORD + index for index, word in enumerate(WORDS)}
_PIECE = re.compile(rb" [a-z]{4}(?![a-z])")
COLOURS = ("blue", "green", "indigo", "orange", "purple", "red", "violet", "yellow")

# Flags of vLLM that this server takes and only remembers (what it "resolved" is in /server_info).
VALUE_FLAGS = (
    "served-model-name", "dtype", "quantization", "kv-cache-dtype", "block-size", "gpu-memory-utilization",
    "max-num-batched-tokens", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "seed",
    "tokenizer", "revision", "load-format", "generation-config", "optimization-level", "shutdown-timeout",
    "uvicorn-log-level", "distributed-executor-backend", "attention-backend", "chat-template", "num-gpu-blocks-override",
)  # fmt: skip
SWITCHES = (
    "enforce-eager", "enable-prefix-caching", "async-scheduling", "enable-chunked-prefill", "trust-remote-code",
    "enable-prompt-tokens-details", "enable-log-requests", "enable-request-id-headers", "disable-log-stats",
    "fail-on-environ-validation", "enable-per-request-metrics", "enable-expert-parallel",
)  # fmt: skip
JSON_FLAGS = (
    "speculative-config",
    "compilation-config",
    "override-generation-config",
    "additional-config",
    "hf-overrides",
)


def tokenize(text: str) -> list[int]:
    """One id for each vocabulary word (with its leading space), one per UTF-8 byte for the rest."""
    raw, ids, position = text.encode("utf-8", "surrogatepass"), [], 0
    for match in _PIECE.finditer(raw):
        word = WORD_IDS.get(match.group().decode())
        if word is not None:
            ids += raw[position : match.start()]
            ids.append(word)
            position = match.end()
    return ids + list(raw[position:])


def token_bytes(token: int) -> bytes:
    """The bytes that `token` stands for; the end-of-sequence token stands for none."""
    if token < EOS:
        return bytes([token])
    return b"" if token == EOS else WORDS[token - FIRST_WORD].encode()


def detokenize(tokens: list[int]) -> str:
    """The inverse of `tokenize`."""
    return b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")


def known_answer(prompt: str, answers: list[tuple[str, str]]) -> str | None:
    """The right answer where the prompt is a canary this server knows, else None."""
    for needle, answer in answers:
        if needle in prompt:
            return answer
    lower = prompt.lower()
    sum_ = re.search(r"(\d+)\s*(\+|-|\*|x|×|plus|minus|times|multiplied by)\s*(\d+)", lower)
    value = 42
    if sum_:
        a, b = int(sum_[1]), int(sum_[3])
        value = a + b if sum_[2] in ("+", "plus") else a - b if sum_[2] in ("-", "minus") else a * b
    if "json" in lower and "answer" in lower:
        return json.dumps({"answer": str(value), "unit": "widgets"}, separators=(",", ":"))
    if "alphabetic" in lower or "colour" in lower or "color" in lower:
        found = sorted(c for c in COLOURS if re.search(rf"\b{c}\b", lower))
        if len(found) > 1:
            return ", ".join(found)
    if "capital of france" in lower:
        return "The capital of France is Paris."
    copy = re.search(r"(?:copy|repeat)[^:\n]*:\s*\"?([^\"\n]+)", prompt, re.IGNORECASE)
    if copy:
        return copy[1].strip()
    return str(value) if sum_ else None


def corrupt(answer: str) -> str:
    """A wrong answer that still looks like one: the form is kept, the value is not."""
    if "42" in answer:
        return answer.replace("42", "12")
    if ", " in answer:
        return ", ".join([*answer.split(", ")[:-1], "yellow"])
    return answer[:-1] + ("1" if answer[-1:] != "1" else "2")


def draw(ids: list[int], index: int, salt: bytes = b"") -> int:
    """A number that is a pure function of prompt, position and salt."""
    key = prompt_key(tuple(ids)) + salt + index.to_bytes(4, "big")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


@functools.lru_cache(maxsize=1024)
def prompt_key(ids: tuple[int, ...]) -> bytes:
    return hashlib.blake2b(repr(ids).encode(), digest_size=8).digest()


@dataclass
class Reply:
    """What will be said to one request, decided before the first token leaves."""

    prompt_ids: list[int]
    tokens: list[int]
    runners_up: list[int]
    finish: str

    def pieces(self) -> list[str]:
        """Text that each token adds; a token that ends inside a UTF-8 character adds nothing yet."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(token_bytes(token)) for token in self.tokens]

    def top(self, index: int, k: int) -> list[tuple[int, float]]:
        """`k` likeliest tokens at `index`, with log-probabilities that fall by a margin the position decides."""
        margin = 0.05 + draw(self.prompt_ids, index, b"margin") % 3000 / 1000
        order = [self.tokens[index], self.runners_up[index]]
        salt = 0
        while len(order) < k:
            token = FIRST_WORD + draw(self.prompt_ids, index, b"top%d" % salt) % len(WORDS)
            salt += 1
            if token not in order:
                order.append(token)
        return [
            (token, round(-0.1 - rank * margin, 6)) for rank, token in enumerate(order[: max(k, 1)])
        ]


@dataclass
class Server:
    """State of one scripted server: its flags, what it counted, and the streams that are open."""

    flags: argparse.Namespace
    received: list[str]
    requests: int = 0
    streams: int = 0
    generated: int = 0
    prompted: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    ttft: list[float] = field(default_factory=list)
    itl: list[float] = field(default_factory=list)
    e2e: list[float] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.random = random.Random(self.flags.random_seed)
        self.seats = asyncio.Semaphore(self.flags.max_num_seqs)
        self.model = (
            self.flags.served_model_name or self.flags.model or self.flags.model_path or "scripted"
        )

    # -- what is said ---------------------------------------------------------------------------------------

    def reply(self, ids: list[int], body: JSON) -> Reply:
        """Decide the whole answer: canary answers from the script, everything else from the prompt's hash."""
        flags, text = self.flags, detokenize(ids)
        self.seen[text] += 1
        answer = known_answer(text, flags.answers)
        unlucky = flags.corrupt_probability > 0 and self.random.random() < flags.corrupt_probability
        flip = (
            flags.flip_token_at
            if flags.flip_token_at is not None
            else (12 if flags.knob_wrong else None)
        )
        if answer is not None:
            every = flags.corrupt_canary_at
            if unlucky or flags.knob_wrong_canary or (every and self.seen[text] == every):
                answer = corrupt(answer)
            lead = tokenize(answer)
        else:
            lead = []
            if unlucky:
                flip = self.random.randrange(8)
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        natural = len(lead) if lead else flags.natural_length or 48 + draw(ids, 0, b"length") % 160
        tokens, runners_up, finish = [], [], "length"
        for index in range(limit):
            straight = FIRST_WORD + draw(ids, index) % len(WORDS)
            other = FIRST_WORD + draw(ids, index, b"flip") % len(WORDS)
            if other == straight:
                other = FIRST_WORD + (other - FIRST_WORD + 1) % len(WORDS)
            if not body.get("ignore_eos") and index >= max(
                natural, int(body.get("min_tokens") or 0)
            ):
                chosen, other = EOS, straight
            elif index < len(lead):
                chosen, other = lead[index], straight
            elif flip is not None and index >= flip and answer is None:
                chosen, other = other, straight
            else:
                chosen = straight
            tokens.append(chosen)
            runners_up.append(other)
            if chosen == EOS:
                finish = "stop"
                break
        stops = body.get("stop") or []
        for stop in [stops] if isinstance(stops, str) else stops:
            for end in range(1, len(tokens) + 1):
                if stop in detokenize(tokens[:end]):
                    tokens, runners_up, finish = tokens[: end - 1], runners_up[: end - 1], "stop"
                    break
        return Reply(ids, tokens, runners_up, finish)

    def token_s(self, request: int) -> float:
        """Seconds for one token of the `request`-th generation (1-based), with every scripted slowness in it."""
        flags = self.flags
        rate = flags.tok_s * flags.knob_speed * float(os.environ.get("SCRIPTED_SPEED") or 1)
        if rate <= 0:
            return 0.0
        slow = 1 + flags.drift * (request - 1)
        slow *= flags.first_slow if request == 1 else 1
        slow *= 1 + flags.batch_slowdown * max(self.streams - 1, 0)
        slow *= 1 + self.random.uniform(-flags.jitter, flags.jitter)
        return slow / rate

    # -- HTTP -----------------------------------------------------------------------------------------------

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve requests on one connection until the client closes it or asks for that."""
        try:
            while (request := await read_request(reader)) is not None:
                method, path, headers, body = request
                await self.answer(method, path, headers, body, writer)
                if headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            writer.close()

    async def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        raw: bytes,
        writer: asyncio.StreamWriter,
    ) -> None:
        route, _, _query = path.partition("?")
        try:
            body = json.loads(raw) if raw else {}
        except ValueError as error:
            return send(writer, 400, failure(400, f"the body is not JSON: {error}"))
        key = self.flags.api_key
        if key and route.startswith("/v1") and headers.get("authorization") != f"Bearer {key}":
            return send(writer, 401, {"error": "Unauthorized"})
        if route in ("/v1/completions", "/v1/chat/completions"):
            if method != "POST":
                return send(writer, 405, {"detail": "Method Not Allowed"})
            return await self.generate(route.endswith("chat/completions"), body, writer)
        pages: dict[str, Callable[[], Any]] = {
            "/health": lambda: "",
            "/ping": lambda: "",
            "/version": lambda: {"version": self.flags.engine_version},
            "/load": lambda: {"server_load": self.streams},
            "/metrics": self.metrics,
            "/v1/models": lambda: {"object": "list", "data": [{
                "id": self.model, "object": "model", "owned_by": "vllm", "root": self.flags.model or self.model,
                "max_model_len": self.flags.max_model_len}]},
            "/server_info": self.server_info,
            "/reset_prefix_cache": lambda: {"success": self.streams == 0},
            "/tokenize": lambda: self.tokenized(prompt_ids(body)),
            "/detokenize": lambda: {"prompt": detokenize(body.get("tokens", []))},
            "/echo": lambda: {
                "argv": self.received,
                "env": {name: os.environ[name] for name in self.flags.echo_env if name in os.environ},
                "cwd": os.getcwd(), "pid": os.getpid()},
            "/counts": lambda: {"requests": self.requests, "streams": self.streams},
        }  # fmt: skip
        page = pages.get(route)
        if page is None:
            return send(writer, 404, {"detail": "Not Found"})
        return send(writer, 200, page())

    def tokenized(self, ids: list[int]) -> JSON:
        return {
            "count": len(ids),
            "max_model_len": self.flags.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }

    async def generate(self, chat: bool, body: JSON, writer: asyncio.StreamWriter) -> None:
        flags = self.flags
        self.requests += 1
        number = self.requests
        if body.get("model") not in (None, self.model):
            return send(writer, 404, failure(404, f"The model `{body['model']}` does not exist."))
        ids = prompt_ids(body)
        if len(ids) + int(body.get("max_tokens") or 1) > flags.max_model_len:
            return send(
                writer, 400, failure(400, f"maximum context length is {flags.max_model_len} tokens")
            )
        if number == flags.fail_request:
            log(f"ERROR [serving.py:1] request {number} failed as scripted")
            return send(writer, flags.fail_status, failure(flags.fail_status, "scripted failure"))
        self.fault("request", number)
        if flags.hang_at == f"request:{number}":
            await asyncio.Event().wait()
        arrived = time.monotonic()
        async with self.seats:
            self.streams += 1
            try:
                reply = self.reply(ids, body)
                self.prompted += len(ids)
                await self.speak(chat, body, number, reply, arrived, writer)
            finally:
                self.streams -= 1
        self.e2e.append(time.monotonic() - arrived)

    async def speak(
        self,
        chat: bool,
        body: JSON,
        number: int,
        reply: Reply,
        arrived: float,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send the reply at the scripted pace, as one JSON document or as server-sent events."""
        flags, stream = self.flags, bool(body.get("stream"))
        shape = Shape(
            chat,
            self.model,
            f"{'chatcmpl' if chat else 'cmpl'}-{number}",
            body,
            reply,
            flags.cached_tokens,
        )
        step_s = self.token_s(number)
        due = time.monotonic() + flags.ttft_s + step_s
        if stream:
            writer.write(head(200, "text/event-stream; charset=utf-8", chunked=True))
        last = arrived
        for start in range(0, len(reply.tokens), flags.chunk):
            end = min(start + flags.chunk, len(reply.tokens))
            if start >= len(reply.tokens) // 2:
                self.fault("midstream", number)
                if flags.hang_at == f"midstream:{number}":
                    await asyncio.Event().wait()
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += step_s * flags.chunk
            now = time.monotonic()
            (self.itl if start else self.ttft).append(now - last)
            last = now
            self.generated += end - start
            if stream:
                for event in shape.events(start, end):
                    writer.write(chunk(event))
                if writer.is_closing():
                    raise ConnectionResetError
                await writer.drain()
        if not stream:
            return send(writer, 200, shape.document())
        if (body.get("stream_options") or {}).get("include_usage"):
            writer.write(chunk(shape.frame([], usage=shape.usage(len(reply.tokens)))))
        writer.write(chunk("[DONE]") + b"0\r\n\r\n")
        await writer.drain()

    def fault(self, phase: str, number: int) -> None:
        """End this process, as a crash would, if the script says so here."""
        if self.flags.die_at in (f"{phase}:{number}", phase):
            log(f"ERROR [core.py:1] EngineCore died as scripted at {phase} {number}")
            os._exit(self.flags.exit_code)

    # -- what is told about it ------------------------------------------------------------------------------

    def server_info(self) -> JSON:
        """The resolved configuration; a flag named by --ignore-flag keeps vLLM's default whatever was asked."""
        flags = self.flags

        def resolved(name: str, default: Any) -> Any:
            value = getattr(flags, name.replace("-", "_"))
            return default if value is None or name in flags.ignore_flag else value

        return {
            "vllm_config": {
                "model_config": {
                    "model": flags.model or flags.model_path, "served_model_name": self.model, "seed": resolved("seed", 0),
                    "dtype": f"torch.{resolved('dtype', 'bfloat16')}", "max_model_len": flags.max_model_len,
                    "enforce_eager": resolved("enforce-eager", False), "quantization": resolved("quantization", None)},
                "cache_config": {
                    "enable_prefix_caching": resolved("enable-prefix-caching", True),
                    "cache_dtype": resolved("kv-cache-dtype", "auto"), "block_size": resolved("block-size", 128)},
                "scheduler_config": {
                    "max_num_seqs": flags.max_num_seqs, "async_scheduling": resolved("async-scheduling", True),
                    "max_num_batched_tokens": resolved("max-num-batched-tokens", 2048)},
                "parallel_config": {"tensor_parallel_size": resolved("tensor-parallel-size", 1)},
                "speculative_config": resolved("speculative-config", None),
                "compilation_config": resolved("compilation-config", {}),
            },
            "vllm_env": {name: value for name, value in os.environ.items() if name.startswith("VLLM_")},
            "system_env": {"python": sys.version.split()[0]},
        }  # fmt: skip

    def metrics(self) -> str:
        """Prometheus text under vLLM's names."""
        flags, label = self.flags, f'{{engine="0",model_name="{self.model}"}}'
        counters = {
            "generation_tokens_total": self.generated, "prompt_tokens_total": self.prompted,
            "prompt_tokens_cached_total": flags.cached_tokens * self.requests,
            "prefix_cache_queries_total": self.prompted, "prefix_cache_hits_total": flags.cached_tokens * self.requests,
        }  # fmt: skip
        if flags.spec_drafts or flags.speculative_config:
            counters |= {"spec_decode_num_drafts_total": flags.spec_drafts,
                         "spec_decode_num_draft_tokens_total": flags.spec_drafts,
                         "spec_decode_num_accepted_tokens_total": flags.spec_accepted}  # fmt: skip
        lines = []
        for name, value in counters.items():
            lines += [
                f"# TYPE vllm:{name.removesuffix('_total')} counter",
                f"vllm:{name}{label} {float(value)}",
            ]
        gauges = {
            "num_requests_running": self.streams,
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": 0.0,
        }
        for name, gauge in gauges.items():
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{label} {float(gauge)}"]
        histograms = {
            "time_to_first_token_seconds": self.ttft, "inter_token_latency_seconds": self.itl,
            "request_time_per_output_token_seconds": self.itl, "e2e_request_latency_seconds": self.e2e,
            "request_prefill_time_seconds": self.ttft, "request_decode_time_seconds": self.e2e,
            "request_queue_time_seconds": [0.0] * len(self.e2e), "request_inference_time_seconds": self.e2e,
        }  # fmt: skip
        for name, values in histograms.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            for bound in (0.001, 0.01, 0.1, 1.0, 10.0, float("inf")):
                edge = "+Inf" if bound == float("inf") else bound
                count = sum(v <= bound for v in values)
                lines.append(
                    f'vllm:{name}_bucket{{engine="0",le="{edge}",model_name="{self.model}"}} {float(count)}'
                )
            lines += [
                f"vllm:{name}_sum{label} {sum(values)}",
                f"vllm:{name}_count{label} {float(len(values))}",
            ]
        return "\n".join(lines) + "\n"


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
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                "prompt_tokens_details": {"cached_tokens": self.cached}}  # fmt: skip

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
            return {"content": [
                {"token": top[0][0], "logprob": top[0][1], "bytes": list(token_bytes(top[0][2])),
                 "top_logprobs": [{"token": n, "logprob": v, "bytes": list(token_bytes(t))} for n, v, t in top[: self.top_k]]}
                for top in names]}  # fmt: skip
        offsets = list(itertools.accumulate(map(len, self.texts[:end]), initial=0))[start:end]
        return {"text_offset": offsets, "tokens": [top[0][0] for top in names], "token_logprobs": [top[0][1] for top in names],
                "top_logprobs": [{n: v for n, v, _ in top} for top in names] if self.top_k else None}  # fmt: skip

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
        return {"index": 0, **said, "logprobs": self.logprobs(start, end),
                "finish_reason": self.reply.finish if last else None, "stop_reason": None, **ids}  # fmt: skip

    def prompt_fields(self, choice: JSON) -> JSON:
        """Where vLLM puts the prompt's ids: at the top level for chat, in the choice for completions."""
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


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """The flags; an unknown one ends the process with status 2, as it does in vLLM."""
    p = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("model_path", nargs="?", help="as in `vllm serve MODEL`")
    p.add_argument("--model")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8000)
    p.add_argument("--api-key")
    p.add_argument("--max-model-len", type=int, default=32768)
    p.add_argument("--max-num-seqs", type=int, default=256)
    for name in VALUE_FLAGS:
        p.add_argument(f"--{name}")
    for name in SWITCHES:
        p.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    for name in JSON_FLAGS:
        p.add_argument(f"--{name}", type=json.loads)
    pace = p.add_argument_group("pace")
    pace.add_argument(
        "--tok-s",
        type=float,
        default=500.0,
        help="tokens per second of each stream; 0 is as fast as it can",
    )
    pace.add_argument(
        "--ttft-s", type=float, default=0.0, help="extra seconds before the first token"
    )
    pace.add_argument("--startup-s", type=float, default=0.0, help="seconds before it listens")
    pace.add_argument(
        "--drift", type=float, default=0.0, help="each request is slower by this share of the first"
    )
    pace.add_argument(
        "--first-slow", type=float, default=1.0, help="factor by which the first request is slower"
    )
    pace.add_argument(
        "--jitter", type=float, default=0.0, help="uniform relative noise of the rate, per request"
    )
    pace.add_argument(
        "--batch-slowdown",
        type=float,
        default=0.0,
        help="slower by this share per other open stream",
    )
    pace.add_argument("--chunk", type=int, default=1, help="tokens per server-sent event")
    say = p.add_argument_group("what it says")
    say.add_argument(
        "--flip-token-at", type=int, help="from this index on, other tokens than the script's"
    )
    say.add_argument(
        "--corrupt-canary-at",
        type=int,
        help="the N-th repeat (1-based) of each canary prompt is wrong",
    )
    say.add_argument("--corrupt-probability", type=float, default=0.0)
    say.add_argument("--random-seed", type=int, default=0)
    say.add_argument(
        "--natural-length",
        type=int,
        help="tokens before the end-of-sequence token; default by prompt",
    )
    say.add_argument("--cached-tokens", type=int, default=0)
    say.add_argument(
        "--answers", type=answers, default=[], help="JSON file {part of a prompt: its answer}"
    )
    fail = p.add_argument_group("faults")
    fail.add_argument("--fail-request", type=int)
    fail.add_argument("--fail-status", type=int, default=500)
    fail.add_argument("--die-at", help="startup | ready | request:N | midstream:N")
    fail.add_argument("--exit-code", type=int, default=1)
    fail.add_argument("--hang-at", help="startup | request:N | midstream:N")
    fail.add_argument("--ignore-sigterm", action="store_true")
    fail.add_argument("--ignore-sigint", action="store_true")
    fail.add_argument(
        "--stuck-shutdown",
        action="store_true",
        help="a signal while a stream is open waits for its end",
    )
    fail.add_argument(
        "--leave-orphan", action="store_true", help="start a grandchild in a session of its own"
    )
    fail.add_argument(
        "--ignore-flag",
        action="append",
        default=[],
        help="report the default for this flag, not what was asked",
    )
    seen = p.add_argument_group("what it shows")
    seen.add_argument("--log-lines", type=int, default=0)
    seen.add_argument("--print", action="append", default=[], metavar="LINE")
    seen.add_argument("--echo-env", action="append", default=[], metavar="NAME")
    seen.add_argument("--engine-version", default="0.0.0+scripted")
    seen.add_argument("--spec-drafts", type=int, default=0)
    seen.add_argument("--spec-accepted", type=int, default=0)
    knob = p.add_argument_group("knobs, for studies")
    knob.add_argument(
        "--knob-speed", type=float, default=1.0, help="multiplies the rate; so does $SCRIPTED_SPEED"
    )
    knob.add_argument(
        "--knob-wrong", type=int, choices=(0, 1), default=0, help="1: other tokens from index 12 on"
    )
    knob.add_argument("--knob-wrong-canary", type=int, choices=(0, 1), default=0)
    knob.add_argument(
        "--knob-crash", type=int, choices=(0, 1), default=0, help="1: ends during start-up"
    )
    knob.add_argument("--knob-idle", help="no effect at all")
    return p


def answers(path: str) -> list[tuple[str, str]]:
    with open(path, encoding="utf-8") as file:
        return list(json.load(file).items())


def undotted(argv: list[str]) -> list[str]:
    """`--speculative-config.x 3` as vLLM takes it, folded into one JSON value for argparse."""
    plain: list[str] = []
    folded: dict[str, JSON] = {}
    rest = iter(argv)
    for item in rest:
        flag, _, path = item.partition(".")
        if flag[2:] not in JSON_FLAGS or not path:
            plain.append(item)
            continue
        key, equals, value = path.partition("=")
        value = value if equals else next(rest, "")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        inner = folded.setdefault(flag, {})
        *parents, leaf = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[leaf] = parsed
    for flag, value in folded.items():
        plain += [flag, json.dumps(value)]
    return plain


async def serve(server: Server) -> None:
    """Listen until a signal that is not ignored arrives."""
    flags, loop = server.flags, asyncio.get_running_loop()
    for number, ignored in (
        (signal.SIGTERM, flags.ignore_sigterm),
        (signal.SIGINT, flags.ignore_sigint),
    ):
        loop.add_signal_handler(number, (lambda: None) if ignored else server.stopping.set)
    listener = await asyncio.start_server(
        server.connection, flags.host, flags.port, backlog=1024, limit=1 << 24
    )
    log(f"INFO [launcher.py:1] Started server process on http://{flags.host}:{flags.port}")
    log("INFO [launcher.py:2] Application startup complete.")
    if flags.die_at == "ready":
        server.fault("ready", 0)
    await server.stopping.wait()
    log("INFO [launcher.py:3] Shutting down")
    listener.close()
    while flags.stuck_shutdown and server.streams:
        await asyncio.sleep(0.05)
    os._exit(0)


def main(argv: list[str]) -> None:
    flags = parser().parse_args(undotted(argv))
    for index in range(flags.log_lines):
        log(f"INFO [scripted.py:{index}] filler line {index}")
    if flags.leave_orphan:
        orphan = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
        )
        log(f"INFO [scripted.py:0] orphan {orphan.pid}")
    for line in flags.print:
        log(line)
    if flags.hang_at == "startup":
        time.sleep(1 << 24)
    time.sleep(flags.startup_s)
    if flags.die_at == "startup" or flags.knob_crash:
        log("ERROR [core.py:1] RuntimeError: scripted failure during start-up")
        sys.exit(flags.exit_code)

    async def run() -> None:
        await serve(Server(flags, argv))

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1:])
