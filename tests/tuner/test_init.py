"""A command line that people use today becomes a study whose control is that command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runners import render_args
from tuner.cli import app
from tuner.scaffold import AlreadyThereError, scaffold
from tuner.serve_command import NotACommandError, parse_serve_command
from tuner.study_file import read

CPU = (
    "VLLM_CPU_KVCACHE_SPACE=4 HF_TOKEN=abc vllm serve /models/toy --dtype bfloat16 \\\n"
    '  --max-num-seqs=8 --enforce-eager --port 9000 --speculative-config \'{"method": "ngram"}\''
)


def test_a_command_is_taken_apart_into_what_each_part_is() -> None:
    command = parse_serve_command(CPU)
    assert command.model == "/models/toy"
    assert command.env == {"VLLM_CPU_KVCACHE_SPACE": "4"}
    assert command.secrets == ["HF_TOKEN"]
    assert command.args == {
        "dtype": "bfloat16",
        "max-num-seqs": 8,
        "enforce-eager": True,
        "speculative-config": {"method": "ngram"},
    }
    assert command.kind == "cpu"
    assert any("--port is left out" in note for note in command.notes)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("vllm serve m --no-enable-prefix-caching", {"enable-prefix-caching": False}),
        ("vllm serve m -tp 4 --seed -1", {"tensor-parallel-size": 4, "seed": -1}),
        ("vllm serve m --max_model_len 2048", {"max-model-len": 2048}),
        ("vllm serve m --revision 1.0 --x 1.50", {"revision": 1.0, "x": "1.50"}),
        ("vllm serve --model m --lora-modules a b", {"lora-modules": ["a", "b"]}),
        ("python3 -m vllm.entrypoints.openai.api_server --model m --x=a=b", {"x": "a=b"}),
        ("env A=1 vllm serve m --sc.method ngram # comment", {"sc.method": "ngram"}),
    ],
)
def test_flags_are_read_as_vllm_reads_them(text: str, args: dict[str, object]) -> None:
    command = parse_serve_command(text)
    assert command.args == args
    assert command.model == "m"


def test_the_python_beside_the_vllm_is_the_engines() -> None:
    assert parse_serve_command("/opt/v/bin/vllm serve m").python == "/opt/v/bin/python"
    assert parse_serve_command("/opt/v/bin/python -m vllm.x --model m").python == (
        "/opt/v/bin/python"
    )


def test_devices_are_counted_from_the_parallel_sizes_and_masks_left_to_leases() -> None:
    command = parse_serve_command("ZE_AFFINITY_MASK=0,1,2,3 vllm serve m -tp 2 -pp 2")
    assert (command.kind, command.devices) == ("xpu", 4)
    assert command.env == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ollama serve", "`vllm serve MODEL ...` was looked for"),
        ("vllm serve --dtype auto", "names no model"),
        ("vllm serve 'm", "check its quotes"),
        ("", "nothing was found"),
    ],
)
def test_what_is_no_command_is_refused_in_a_sentence(text: str, complaint: str) -> None:
    with pytest.raises(NotACommandError, match=complaint):
        parse_serve_command(text)


@pytest.mark.parametrize("kind", ["cpu", "xpu", "cuda"])
def test_the_control_of_the_new_study_is_the_command(tmp_path: Path, kind: str) -> None:
    command = parse_serve_command(CPU)
    scaffold(command, "mine", kind=kind).write(tmp_path)
    files = read(str(tmp_path / "mine.yaml"))
    control = files.space.control()
    assert sorted(render_args(control.args)) == sorted(render_args(command.args))
    assert control.env == command.env
    assert files.runner.model == "/models/toy"
    assert files.runner.secrets == ("HF_TOKEN",)
    assert files.runner.devices.kind == kind
    assert len(files.space.knobs) >= 3


def test_a_value_of_the_command_is_the_first_choice_of_its_knob(tmp_path: Path) -> None:
    scaffold(parse_serve_command("vllm serve /m --dtype float32"), "mine", kind="cpu").write(
        tmp_path
    )
    knob = read(str(tmp_path / "mine.yaml")).space.knobs["dtype"]
    assert knob.control == "float32"
    assert "bfloat16" in (knob.choices or ())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    made = scaffold(parse_serve_command("vllm serve /m"), "mine", kind="cpu")
    (tmp_path / "mine-runner.yaml").write_text("mine")
    with pytest.raises(AlreadyThereError, match="is there already"):
        made.write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine-runner.yaml"]


def test_the_verb_writes_the_files_and_says_what_to_type_next(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["init", "--from", CPU, "--folder", str(tmp_path)])
    assert run.exit_code == 0, run.output
    assert "next: tuner run" in run.output.replace("\n", "")
    assert (tmp_path / "my-study.yaml").is_file()


def test_the_verb_ends_with_2_for_what_is_no_command(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["init", "--from", "ls -l", "--folder", str(tmp_path)])
    assert run.exit_code == 2
    assert list(tmp_path.iterdir()) == []
