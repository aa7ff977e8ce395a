#!/usr/bin/env python3
"""A small OpenAI-compatible server that says scripted tokens at a scripted speed, or fails.

It stands where a vLLM server would in the fast tests: a process of its own that really dies, hangs,
corrupts an answer, ignores signals or leaves an orphan. Any Python can start it, without packages:

    python scripted_server.py --port 8123 --tok-s 200 --corrupt-canary-at 8

What it says is a pure function of the prompt: two instances agree token for token unless a flag
makes one of them differ. One asyncio loop serves every stream: 256 of them keep their pace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A server that is started with -P or -I does not look beside its script by itself.
sys.path.insert(0, str(Path(__file__).parent))

from scripted_flags import parser, undotted
from scripted_metrics import Counts, metrics_text, server_info
from scripted_tokens import (
    EOS,
    FIRST_WORD,
    WORDS,
    Reply,
    corrupt,
    detokenize,
    draw,
    known_answer,
    tokenize,
)
from scripted_wire import JSON, Shape, chunk, failure, head, prompt_ids, read_request, send


@dataclass
class Server:
    """State of one scripted server: its flags, what it counted, and the streams that are open."""

    flags: argparse.Namespace
    received: list[str]
    counts: Counts = field(default_factory=Counts)
    seen: Counter[str] = field(default_factory=Counter)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.random = random.Random(self.flags.random_seed)
        self.seats = asyncio.Semaphore(self.flags.max_num_seqs)
        self.model = (
            self.flags.served_model_name or self.flags.model or self.flags.model_path or "scripted"
        )

    def reply(self, ids: list[int], body: JSON) -> Reply:
        """Decide the whole answer: canaries from the script, the rest from the prompt's hash."""
        flags, text = self.flags, detokenize(ids)
        self.seen[text] += 1
        unlucky = self.random.random() < flags.corrupt_probability
        answer = known_answer(text, flags.answers)
        if answer is None:
            flip = 12 if flags.knob_wrong else flags.flip_token_at
            return self.written(ids, body, [], self.random.randrange(8) if unlucky else flip)
        switch = flags.corrupt_canaries_while
        broken = flags.knob_wrong_canary or (switch is not None and switch.exists())
        if unlucky or broken or self.seen[text] == flags.corrupt_canary_at:
            answer = corrupt(answer)
        return self.written(ids, body, tokenize(answer), None)

    def written(self, ids: list[int], body: JSON, lead: list[int], flip: int | None) -> Reply:
        """The reply that begins with `lead` and says other tokens than the script's from `flip`."""
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        natural = len(lead) or self.flags.natural_length or 48 + draw(ids, 0, b"length") % 160
        end = limit if body.get("ignore_eos") else max(natural, int(body.get("min_tokens") or 0))
        tokens, runners_up = [], []
        for index in range(min(limit, end)):
            straight = FIRST_WORD + draw(ids, index) % len(WORDS)
            other = FIRST_WORD + draw(ids, index, b"flip") % len(WORDS)
            if other == straight:
                other = FIRST_WORD + (other - FIRST_WORD + 1) % len(WORDS)
            if index < len(lead):
                straight, other = lead[index], straight
            elif flip is not None and index >= flip:
                straight, other = other, straight
            tokens.append(straight)
            runners_up.append(other)
        finish = "length"
        if end < limit:
            tokens, runners_up, finish = [*tokens, EOS], [*runners_up, FIRST_WORD], "stop"
        return stopped(Reply(ids, tokens, runners_up, finish), body.get("stop") or [])

    def token_s(self, request: int) -> float:
        """Seconds per token of the `request`-th generation (1-based), all slowness in it."""
        flags = self.flags
        rate = flags.tok_s * flags.knob_speed * float(os.environ.get("SCRIPTED_SPEED", "1"))
        if rate <= 0:
            return 0.0
        slow = 1 + flags.drift * (request - 1)
        slow *= flags.first_slow if request == 1 else 1
        slow *= 1 + flags.batch_slowdown * max(self.counts.streams - 1, 0)
        slow *= 1 + self.random.uniform(-flags.jitter, flags.jitter)
        return float(slow / rate)

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
            send(writer, 400, failure(400, f"the body is not JSON: {error}"))
            return
        key = self.flags.api_key
        if key and route.startswith("/v1") and headers.get("authorization") != f"Bearer {key}":
            send(writer, 401, {"error": "Unauthorized"})
            return
        if route in ("/v1/completions", "/v1/chat/completions"):
            if method != "POST":
                send(writer, 405, {"detail": "Method Not Allowed"})
                return
            await self.generate(route.endswith("chat/completions"), body, writer)
            return
        pages: dict[str, Callable[[], Any]] = {
            "/health": lambda: "",
            "/ping": lambda: "",
            "/version": lambda: {"version": self.flags.engine_version},
            "/load": lambda: {"server_load": self.counts.streams},
            "/metrics": lambda: metrics_text(self.model, self.flags, self.counts),
            "/v1/models": lambda: {
                "object": "list",
                "data": [
                    {
                        "id": self.model,
                        "object": "model",
                        "owned_by": "vllm",
                        "root": self.flags.model or self.model,
                        "max_model_len": self.flags.max_model_len,
                    }
                ],
            },
            "/server_info": lambda: server_info(self.model, self.flags),
            "/reset_prefix_cache": lambda: {"success": self.counts.streams == 0},
            "/tokenize": lambda: self.tokenized(prompt_ids(body)),
            "/detokenize": lambda: {"prompt": detokenize(body.get("tokens", []))},
            "/echo": lambda: {
                "argv": self.received,
                "env": {
                    name: os.environ[name] for name in self.flags.echo_env if name in os.environ
                },
                "cwd": str(Path.cwd()),
                "pid": os.getpid(),
            },
            "/counts": lambda: {"requests": self.counts.requests, "streams": self.counts.streams},
        }
        page = pages.get(route)
        if page is None:
            send(writer, 404, {"detail": "Not Found"})
        else:
            send(writer, 200, page())

    def tokenized(self, ids: list[int]) -> JSON:
        return {
            "count": len(ids),
            "max_model_len": self.flags.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }

    async def generate(self, chat: bool, body: JSON, writer: asyncio.StreamWriter) -> None:
        flags = self.flags
        self.counts.requests += 1
        number = self.counts.requests
        ids = prompt_ids(body)
        refusal = self.refusal(number, body, len(ids))
        if refusal is not None:
            send(writer, refusal[0], failure(*refusal))
            return
        self.fault("request", number)
        if flags.hang_at == f"request:{number}":
            await asyncio.Event().wait()
        arrived = time.monotonic()
        async with self.seats:
            self.counts.streams += 1
            try:
                reply = self.reply(ids, body)
                self.counts.prompted += len(ids)
                await self.speak(chat, body, number, reply, arrived, writer)
            finally:
                self.counts.streams -= 1
        self.counts.e2e.append(time.monotonic() - arrived)

    def refusal(self, number: int, body: JSON, prompt_tokens: int) -> tuple[int, str] | None:
        """Status and message of a request that gets no answer, None where it gets one."""
        flags = self.flags
        if body.get("model") not in (None, self.model):
            return 404, f"The model `{body['model']}` does not exist."
        if prompt_tokens + int(body.get("max_tokens") or 1) > flags.max_model_len:
            return 400, f"maximum context length is {flags.max_model_len} tokens"
        if number == flags.fail_request:
            log(f"ERROR [serving.py:1] request {number} failed as scripted")
            return flags.fail_status, "scripted failure"
        return None

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
            (self.counts.itl if start else self.counts.ttft).append(now - last)
            last = now
            self.counts.generated += end - start
            if stream:
                for event in shape.events(start, end):
                    writer.write(chunk(event))
                if writer.is_closing():
                    raise ConnectionResetError
                await writer.drain()
        if not stream:
            send(writer, 200, shape.document())
            return
        if (body.get("stream_options") or {}).get("include_usage"):
            writer.write(chunk(shape.frame([], usage=shape.usage(len(reply.tokens)))))
        writer.write(chunk("[DONE]") + b"0\r\n\r\n")
        await writer.drain()

    def fault(self, phase: str, number: int) -> None:
        """End this process, as a crash would, if the script says so here."""
        if self.flags.die_at in (f"{phase}:{number}", phase):
            log(f"ERROR [core.py:1] EngineCore died as scripted at {phase} {number}")
            os._exit(self.flags.exit_code)


def stopped(reply: Reply, stops: str | list[str]) -> Reply:
    """The reply up to the token that completes a stop string."""
    for stop in [stops] if isinstance(stops, str) else stops:
        for end in range(1, len(reply.tokens) + 1):
            if stop in detokenize(reply.tokens[:end]):
                kept = reply.tokens[: end - 1], reply.runners_up[: end - 1]
                return Reply(reply.prompt_ids, *kept, "stop")
    return reply


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
    while flags.stuck_shutdown and server.counts.streams:
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
