"""The scripted server must fail exactly as told, or the tests that rely on it prove nothing."""

from __future__ import annotations

import concurrent.futures
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

SERVER = Path(__file__).parent / "scripted_server.py"
CANARY = "Reply in JSON with the keys answer and unit: how many widgets are 6 times 7?"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(*flags: str, wait: bool = True) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-I", str(SERVER), "--port", str(port), "--tok-s", "0", *flags],
        stderr=subprocess.PIPE,
        text=True,
    )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20)
    try:
        if wait:
            until_healthy(client)
        yield client, process
    finally:
        client.close()
        process.kill()
        process.wait()


def until_healthy(client: httpx.Client) -> None:
    for _ in range(200):
        try:
            client.get("/health").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the scripted server did not come up")


def complete(client: httpx.Client, prompt: str, **more: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 40, "return_token_ids": True, **more}
    answer = client.post("/v1/completions", json=body)
    answer.raise_for_status()
    return dict(answer.json()["choices"][0])


def stream(client: httpx.Client, prompt: str, **more: Any) -> list[dict[str, Any]]:
    body = {"prompt": prompt, "max_tokens": 40, "stream": True, "return_token_ids": True, **more}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_two_instances_say_the_same_tokens_for_the_same_prompt() -> None:
    with serving() as (one, _), serving() as (other, _):
        assert complete(one, "a b c") == complete(other, "a b c")
        assert complete(one, "a b c")["token_ids"] != complete(one, "a b d")["token_ids"]


def test_a_stream_says_what_the_whole_answer_says_whatever_the_chunk() -> None:
    with serving("--chunk", "3") as (client, _):
        whole = complete(client, "one prompt")
        events = stream(client, "one prompt", stream_options={"include_usage": True})
        choices = [c for event in events for c in event["choices"]]
        assert [t for c in choices for t in c["token_ids"]] == whole["token_ids"]
        assert "".join(c["text"] for c in choices) == whole["text"]
        assert {len(c["token_ids"]) for c in choices} == {3, 1}
        assert events[-1]["usage"]["completion_tokens"] == 40


def test_tokenize_and_detokenize_are_inverse_and_agree_with_what_is_said() -> None:
    with serving() as (client, _):
        text = complete(client, "x")["text"] + ' "quotes" é 漢字 🙂\n\t'
        ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
        assert client.post("/detokenize", json={"tokens": ids}).json()["prompt"] == text
        said = complete(client, "x", ignore_eos=True)
        assert (
            client.post("/tokenize", json={"prompt": said["text"]}).json()["tokens"]
            == (said["token_ids"])
        )


def test_flipped_tokens_differ_from_the_given_index_on_and_were_the_runners_up() -> None:
    with serving() as (straight, _), serving("--flip-token-at", "7") as (flipped, _):
        right, wrong = (complete(c, "p", logprobs=2) for c in (straight, flipped))
        assert right["token_ids"][:7] == wrong["token_ids"][:7]
        assert all(
            a != b for a, b in zip(right["token_ids"][7:], wrong["token_ids"][7:], strict=True)
        )
        second = list(right["logprobs"]["top_logprobs"][7])[1]
        assert wrong["logprobs"]["tokens"][7] == second


def test_only_the_named_repeat_of_a_canary_is_corrupted() -> None:
    with serving("--corrupt-canary-at", "3") as (client, _):
        said = [complete(client, CANARY)["text"] for _ in range(5)]
        assert said[0] == '{"answer":"42","unit":"widgets"}'
        assert [text == said[0] for text in said] == [True, True, False, True, True]


def test_a_canary_ends_with_a_stop_and_an_ignored_stop_goes_on_to_the_limit() -> None:
    with serving() as (client, _):
        assert complete(client, CANARY)["finish_reason"] == "stop"
        on = complete(client, CANARY, ignore_eos=True)
        assert on["finish_reason"] == "length"
        assert len(on["token_ids"]) == 40


def test_the_rate_is_the_scripted_one() -> None:
    with serving("--tok-s", "200") as (client, _):
        start = time.monotonic()
        stream(client, "p", max_tokens=100, ignore_eos=True)
        assert time.monotonic() - start == pytest.approx(0.5, rel=0.2)


def test_256_streams_keep_their_pace_at_the_same_time() -> None:
    with serving("--tok-s", "10") as (client, _):
        limits = httpx.Limits(max_connections=256)
        with (
            httpx.Client(base_url=client.base_url, limits=limits, timeout=60) as wide,
            concurrent.futures.ThreadPoolExecutor(256) as pool,
        ):
            start = time.monotonic()
            futures = [
                pool.submit(stream, wide, f"s{i}", max_tokens=40, ignore_eos=True)
                for i in range(256)
            ]
            for future in futures:
                future.result()
            # Alone a stream takes 4 s; the rest is what 256 client threads cost on two cores.
            assert time.monotonic() - start < 12


def test_the_named_request_fails_with_the_named_status_and_the_next_does_not() -> None:
    with serving("--fail-request", "2", "--fail-status", "503") as (client, _):
        complete(client, "p")
        answer = client.post("/v1/completions", json={"prompt": "p"})
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == 503
        complete(client, "p")


@pytest.mark.parametrize("phase", ["startup", "ready"])
def test_it_dies_before_it_serves_with_the_given_status(phase: str) -> None:
    with serving("--die-at", phase, "--exit-code", "7", wait=False) as (_, process):
        assert process.wait(10) == 7


@pytest.mark.parametrize("where", ["request:2", "midstream:2"])
def test_it_dies_at_the_named_request(where: str) -> None:
    with serving("--die-at", where, "--exit-code", "9") as (client, process):
        complete(client, "p")
        with pytest.raises(httpx.TransportError):
            stream(client, "p")
        assert process.wait(10) == 9


def test_it_hangs_in_the_middle_of_the_named_stream_and_lives_on() -> None:
    with serving("--hang-at", "midstream:1") as (client, process):
        with pytest.raises(httpx.ReadTimeout):
            client.post(
                "/v1/completions",
                json={"prompt": "p", "stream": True},
                timeout=httpx.Timeout(5, read=0.5),
            )
        assert process.poll() is None
        complete(client, "p")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_unless_ignored(number: signal.Signals) -> None:
    with serving() as (_, process):
        process.send_signal(number)
        assert process.wait(5) == 0
    ignore = f"--ignore-{number.name.lower()}"
    with serving(ignore) as (client, process):
        process.send_signal(number)
        time.sleep(0.3)
        complete(client, "p")
        assert process.poll() is None


def test_an_orphan_outlives_it_in_a_session_of_its_own() -> None:
    with serving("--leave-orphan") as (_, process):
        assert process.stderr is not None
        orphan = psutil.Process(int(process.stderr.readline().rsplit(" ", 1)[1]))
        process.send_signal(signal.SIGTERM)
        process.wait(5)
        try:
            assert orphan.is_running()
        finally:
            orphan.kill()


def test_an_unknown_flag_is_refused_as_argparse_does() -> None:
    with serving("--no-such-flag", wait=False) as (_, process):
        _, log = process.communicate(timeout=10)
        assert process.returncode == 2
        assert "unrecognized arguments: --no-such-flag" in log


def test_it_echoes_what_it_received_and_reports_an_ignored_flag_with_its_default() -> None:
    tricky = json.dumps({"a": "$HOME `x` \"q\" 'q'", "b": "line\nline é"})
    flags = ("--additional-config", tricky, "--dtype", "float32", "--ignore-flag", "dtype")
    with serving(*flags, "--speculative-config.num_speculative_tokens", "3") as (client, _):
        argv = client.get("/echo").json()["argv"]
        assert argv[argv.index("--additional-config") + 1] == tricky
        config = client.get("/server_info").json()["vllm_config"]
        assert config["model_config"]["dtype"] == "torch.bfloat16"
        assert config["speculative_config"] == {"num_speculative_tokens": 3}


def test_chat_gives_ids_and_logprobs_in_the_shape_of_chat() -> None:
    with serving("--cached-tokens", "5") as (client, _):
        body = {
            "messages": [{"role": "user", "content": CANARY}],
            "return_token_ids": True,
            "logprobs": True,
            "top_logprobs": 2,
            "max_tokens": 8,
        }
        answer = client.post("/v1/chat/completions", json=body).json()
        choice = answer["choices"][0]
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 8
        assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}
        assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]


def test_metrics_count_what_was_generated_under_vllms_names() -> None:
    with serving("--spec-drafts", "10", "--spec-accepted", "7") as (client, _):
        complete(client, "p", ignore_eos=True)
        text = client.get("/metrics").text
        assert 'vllm:generation_tokens_total{engine="0",model_name="scripted"} 40.0' in text
        assert "vllm:spec_decode_num_accepted_tokens_total" in text
