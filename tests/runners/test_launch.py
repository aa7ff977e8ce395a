"""A launch says everything that decides what runs, and nothing that must stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from runners import Device, Launch, LaunchRefused, Lease, Runner, plan_launch
from tests.runners.scripted import LEASE, scripted_runner


def vllm_runner(**fields: object) -> Runner:
    return Runner(name="r", python="/opt/engine/bin/python", model="org/model", **fields)  # type: ignore[arg-type]


def plan(
    runner: Runner, *, args: object = None, env: object = None, lease: Lease = LEASE
) -> Launch:
    return plan_launch(
        runner,
        args=args or {},  # type: ignore[arg-type]
        env=env or {},  # type: ignore[arg-type]
        lease=lease,
        port=4321,
        directory=Path("/trial"),
        marker="study/1/1",
    )


def test_vllm_is_started_by_its_launcher_module_on_loopback() -> None:
    launch = plan(vllm_runner(args={"max-model-len": 2048}), args={"dtype": "bfloat16"})
    assert launch.argv == (
        "/opt/engine/bin/python", "-m", "vllm.entrypoints.launchers.api_server.entry",
        "--model", "org/model", "--served-model-name", "model",
        "--host", "127.0.0.1", "--port", "4321",
        "--max-model-len", "2048", "--dtype", "bfloat16",
    )  # fmt: skip
    assert launch.base_url == "http://127.0.0.1:4321"


def test_the_candidates_settings_win_over_the_runners() -> None:
    launch = plan(
        vllm_runner(args={"dtype": "auto"}, env={"A": "1"}), args={"dtype": "half"}, env={"A": "2"}
    )
    assert launch.args == {"dtype": "half"}
    assert launch.env == {"A": "2"}


def test_what_only_observes_is_no_part_of_the_settings() -> None:
    launch = plan(vllm_runner())
    assert launch.harness_env["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in launch.env


def test_the_masks_of_a_lease_win_over_a_candidate() -> None:
    lease = Lease((Device("xpu", 2, "B70", "here"),), "here", {"ZE_AFFINITY_MASK": "2"}, "lease-2")
    launch = plan(vllm_runner(), env={"ZE_AFFINITY_MASK": "0"}, lease=lease)
    assert launch.process_env({})["ZE_AFFINITY_MASK"] == "2"


def test_what_happens_to_be_set_in_a_shell_does_not_reach_the_engine() -> None:
    own = {
        "PATH": "/bin",
        "PYTHONPATH": "/somewhere",
        "VLLM_USE_V1": "0",
        "OMP_NUM_THREADS": "1",
        "LD_PRELOAD": "x.so",
        "ONEAPI_ROOT": "/opt/intel",
    }
    env = plan(vllm_runner(inherit=("ONEAPI_*",))).process_env(own)
    assert env["PATH"] == "/bin"
    assert env["ONEAPI_ROOT"] == "/opt/intel"
    assert not {"PYTHONPATH", "VLLM_USE_V1", "OMP_NUM_THREADS", "LD_PRELOAD"} & env.keys()


def test_secrets_are_passed_on_by_name_and_never_written() -> None:
    launch = plan(vllm_runner(secrets=("HF_TOKEN",)))
    assert launch.process_env({"HF_TOKEN": "hf_abcdef"})["HF_TOKEN"] == "hf_abcdef"
    assert launch.secret_values({"HF_TOKEN": "hf_abcdef"}) == ["hf_abcdef"]
    assert "hf_abcdef" not in launch.model_dump_json()


def test_a_secret_that_is_not_set_is_said_before_anything_starts() -> None:
    with pytest.raises(LaunchRefused, match="HF_TOKEN is not set"):
        plan(vllm_runner(secrets=("HF_TOKEN",))).process_env({})


@pytest.mark.parametrize(
    ("args", "env"), [({"api-key": "abc"}, {}), ({}, {"HF_TOKEN": "hf_abcdef"})]
)
def test_a_secret_in_a_setting_is_refused(args: dict[str, str], env: dict[str, str]) -> None:
    with pytest.raises(LaunchRefused, match="looks like a secret"):
        plan(vllm_runner(), args=args, env=env)


def test_a_secret_in_a_document_is_refused() -> None:
    with pytest.raises(ValidationError, match="looks like a secret"):
        vllm_runner(env={"HF_TOKEN": "hf_abcdef"})


@pytest.mark.parametrize("name", ["port", "host", "model", "served-model-name"])
def test_a_space_may_not_take_over_what_the_runner_decides(name: str) -> None:
    with pytest.raises(LaunchRefused, match=name):
        plan(vllm_runner(), args={name: "x"})


def test_a_launch_round_trips_through_json() -> None:
    launch = plan(scripted_runner(), args={"tok-s": 50, "enforce-eager": True})
    assert Launch.model_validate_json(launch.model_dump_json()) == launch


def test_a_commands_places_are_filled_word_by_word() -> None:
    runner = Runner(
        name="r",
        engine="command",
        model="org/model",
        command=("serve", "{model}", "--at={host}:{port}", "{args}", "--last"),
    )
    launch = plan(runner, args={"x": "a b"})
    assert launch.argv == ("serve", "org/model", "--at=127.0.0.1:4321", "--x", "a b", "--last")


def test_two_engines_of_one_attempt_have_different_markers() -> None:
    assert plan(vllm_runner()).marker == "study/1/1/4321"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"engine": "command"}, "needs `command`"),
        ({"engine": "command", "command": ("serve",)}, "must pass {port}"),
        ({"engine": "vllm"}, "needs `python`"),
    ],
)
def test_an_incomplete_runner_says_what_is_missing(
    fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Runner(name="r", model="m", **fields)  # type: ignore[arg-type]
