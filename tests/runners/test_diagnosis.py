"""The cause is found under its symptoms, in logs that a real vLLM wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners import Ending, diagnose
from runners.diagnosis import ignored_settings
from runners.log import read_log
from runners.signatures import load_signatures
from tuner.verdict import Code

LOGS = Path(__file__).parent / "data" / "logs"

STARTUP = Ending("startup", returncode=1)


@pytest.mark.parametrize(
    ("log", "signature", "code", "blame", "says"),
    [
        ("bad-flag", "unknown_flag", "argument_refused", "candidate", "--no-such-flag"),
        ("bad-choice", "bad_choice", "argument_refused", "candidate", "--kv-cache-dtype"),
        ("bad-enum-env", "bad_enum_env", "argument_refused", "candidate", "VLLM_KV_CACHE_LAYOUT"),
        (
            "bad-int-env",
            "bad_int_env",
            "argument_refused",
            "candidate",
            "VLLM_CPU_NUM_OF_RESERVED_CPU holds 'two'",
        ),
        ("block-size-16", "no_common_block_size", "startup_crash", "candidate", "block size of 16"),
        (
            "quantization-fp8",
            "kernel_missing",
            "startup_crash",
            "candidate",
            "static_scaled_fp8_quant",
        ),
        ("batch-invariant", "no_triton", "first_request_failed", "candidate", "no Triton"),
        (
            "unknown-env-strict",
            "unknown_env",
            "argument_refused",
            "candidate",
            "VLLM_NO_SUCH_THING",
        ),
        ("port-in-use", "port_in_use", "host_fault", "host", "port"),
        ("model-missing", "model_missing", "user_error", "user", "model"),
    ],
)
def test_a_real_log_names_its_cause(
    log: str, signature: str, code: str, blame: str, says: str
) -> None:
    failure = diagnose(read_log(LOGS / f"{log}.log"), STARTUP)
    assert (failure.signature, failure.code, failure.blame) == (signature, code, blame)
    assert says in failure.reason
    assert failure.root_line in failure.excerpt
    assert len(failure.excerpt) <= 10


def test_a_log_without_trouble_names_no_cause() -> None:
    failure = diagnose(read_log(LOGS / "success.log"), STARTUP)
    assert failure.signature is None
    assert "status 1" in failure.reason


def test_an_ignored_setting_is_found_in_a_log_that_looks_well() -> None:
    found = ignored_settings(read_log(LOGS / "async-scheduling-ignored.log"))
    assert any("0 layers" in sentence for sentence in found)
    assert ignored_settings(read_log(LOGS / "success.log")) == []


LAB = [
    (
        "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        "device_lost",
        "device",
        True,
    ),
    (
        "RuntimeError: wait method cannot be used for an event associated with a command graph.",
        "graph_event_wait",
        "candidate",
        False,
    ),
    ("TimeoutError: RPC call to sample_tokens timed out.", "rpc_timeout", "candidate", False),
    (
        "ValueError: Free memory on device xpu:0 (3.1/31.9 GiB) on startup is less than desired",
        "device_dirty",
        "device",
        True,
    ),
    (
        "torch._dynamo.exc.Unsupported: Unsupported context manager",
        "compile_error",
        "candidate",
        False,
    ),
    (
        "IndexError: tensors used as indices must be long, byte or bool",
        "startup_crash",
        "candidate",
        False,
    ),
    ("AssertionError: index out of bounds: 0 <= tmp4 < 64", "compile_error", "candidate", False),
    ("OSError: [Errno 28] No space left on device", "host_fault", "host", True),
]


@pytest.mark.parametrize(("line", "code", "blame", "retry"), LAB)
def test_the_labs_failures_are_classed(line: str, code: str, blame: str, retry: bool) -> None:
    log = [
        f"(Worker_TP3 pid=7) ERROR 06-15 10:00:00 [multiproc_executor.py:953] {line}",
        "(EngineCore pid=6) ERROR 06-15 10:00:01 [core.py:1] EngineDeadError: see above",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    failure = diagnose(log, STARTUP)
    assert (failure.code, failure.blame, failure.retry) == (code, blame, retry)


def test_a_device_lost_while_capturing_is_the_candidates_graph() -> None:
    lost = "(Worker_TP3 pid=7) ERROR [x.py:1] RuntimeError: error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"
    capturing = "Capturing CUDA graphs (PIECEWISE):  93%|###| 14/15 [00:03<00:00]"
    finished = "(Worker_TP0 pid=4) INFO [gpu_model_runner.py:1] Graph capturing finished in 4 secs"
    assert diagnose([capturing, lost], STARTUP).code == "graph_capture_failed"
    assert diagnose([capturing, finished, lost], STARTUP).code == "device_lost"


def test_a_symptom_does_not_hide_a_later_traceback() -> None:
    log = [
        "(APIServer pid=1) ERROR [a.py:1] EngineDeadError: EngineCore encountered an issue.",
        "(Worker pid=2) ERROR [w.py:1] Traceback (most recent call last):",
        '(Worker pid=2) ERROR [w.py:1]   File "/x/site-packages/vllm/a.py", line 3, in run',
        "(Worker pid=2) ERROR [w.py:1] ZeroDivisionError: division by zero",
    ]
    failure = diagnose(log, Ending("serving", returncode=0))
    assert "ZeroDivisionError: division by zero in run (vllm/a.py)" in failure.reason
    assert failure.code == "engine_died"


def traceback(number: int, path: str, line: int) -> list[str]:
    return [
        "Traceback (most recent call last):",
        f'  File "{path}/site-packages/vllm/v1/worker.py", line {line}, in execute',
        f"RuntimeError: shape {number} is invalid at 0x{number:x}",
    ]


def test_equal_unknown_crashes_share_a_cluster_and_others_do_not() -> None:
    one = diagnose(traceback(128, "/opt/a", 10), STARTUP)
    two = diagnose(traceback(64, "/home/b", 12), STARTUP)
    other = diagnose([*traceback(1, "/a", 1)[:2], "KeyError: 'x'"], STARTUP)
    assert one.cluster == two.cluster is not None
    assert other.cluster != one.cluster


@pytest.mark.parametrize(
    ("ending", "code", "blame"),
    [
        (Ending("serving", returncode=-9), "host_fault", "host"),
        (Ending("serving", returncode=-11), "engine_died", "candidate"),
        (Ending("startup", returncode=3), "startup_crash", "candidate"),
        (Ending("startup", timed_out_s=60, stage="compiling"), "readiness_timeout", "candidate"),
        (Ending("first_request", timed_out_s=60), "first_request_failed", "candidate"),
        (Ending("serving", timed_out_s=60, answers=False), "engine_hung", "candidate"),
        (Ending("serving", request_error="HTTP 500", answers=True), "request_failed", "candidate"),
        (
            Ending("first_request", request_error="HTTP 500", answers=True),
            "first_request_failed",
            "candidate",
        ),
        (Ending("serving", returncode=1, log_error="No space left"), "host_fault", "host"),
    ],
)
def test_without_a_word_in_the_log_the_ending_decides(
    ending: Ending, code: str, blame: str
) -> None:
    failure = diagnose([], ending)
    assert (failure.code, failure.blame) == (code, blame)


def test_a_worker_that_dies_without_a_word_was_killed_from_outside() -> None:
    log = ["(EngineCore pid=6) ERROR [m.py:1] Worker proc VllmWorker-0 died unexpectedly"]
    failure = diagnose(log, Ending("serving", returncode=0))
    assert (failure.code, failure.blame, failure.retry) == ("host_fault", "host", True)


def test_a_worker_that_crashed_in_native_code_is_the_candidates_fault() -> None:
    log = ["(EngineCore pid=6) ERROR [m.py:1] Worker proc V-0 died unexpectedly (exit code: -11)"]
    failure = diagnose(log, Ending("serving", returncode=0))
    assert (failure.code, failure.blame) == ("engine_died", "candidate")


def test_a_real_log_of_a_killed_worker_blames_nobody_inside() -> None:
    failure = diagnose(read_log(LOGS / "worker-killed.log"), Ending("serving", returncode=0))
    assert (failure.code, failure.blame, failure.signature) == ("host_fault", "host", "worker_died")


def test_escapes_in_a_log_do_not_reach_the_reason() -> None:
    failure = diagnose(["error: unrecognized arguments: --\x1b[31mx"], STARTUP)
    assert "\x1b" not in failure.model_dump_json()


def test_every_code_of_the_catalog_is_in_the_closed_list() -> None:
    codes = {code.value for code in Code}
    assert {signature.code for signature in load_signatures()} <= codes
