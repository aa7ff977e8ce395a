"""Every format starts, or states, what was measured: no more, no less, byte for byte."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from runners.rendering import render_args
from tests.tuner.test_export_shell import TRICKY, launchable, with_files
from tests.tuner.trial_records import accepted_record, control_record
from tuner.export import ExportError, Format, export, export_study
from tuner.export.formats import FILE_NAMES
from tuner.ledger import TrialRecord


def yaml_of(text: str) -> list[Any]:
    return list(YAML(typ="safe", pure=True).load_all(text))


def undoubled(text: str) -> str:
    """What compose and Kubernetes make of a text without a reference to a variable."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


def on(record: TrialRecord, kind: str, count: int) -> TrialRecord:
    identity = record.identity.model_copy(update={"topology": {"kind": kind, "count": count}})
    return record.model_copy(update={"identity": identity})


@pytest.mark.parametrize("name", TRICKY)
def test_compose_passes_a_tricky_identity_on(name: str) -> None:
    args, env = TRICKY[name]
    (document,) = yaml_of(export(launchable(args, env), "compose"))
    service = document["services"]["engine"]
    words = [undoubled(word) for word in service["command"]]
    wanted = render_args(args)
    assert words[len(words) - len(wanted) :] == wanted
    assert {k: undoubled(v) for k, v in service.get("environment", {}).items()} == dict(env)


@pytest.mark.parametrize("name", TRICKY)
def test_kubernetes_passes_a_tricky_identity_on(name: str) -> None:
    args, env = TRICKY[name]
    deployment, _ = yaml_of(export(launchable(args, env), "kubernetes"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words = [undoubled(word) for word in container["args"]]
    wanted = render_args(args)
    assert words[len(words) - len(wanted) :] == wanted
    assert {e["name"]: undoubled(e["value"]) for e in container.get("env", [])} == dict(env)


@pytest.mark.parametrize("name", TRICKY)
def test_json_gives_the_command_back_for_any_port(name: str) -> None:
    args, env = TRICKY[name]
    record = launchable(args, env)
    document = json.loads(export(record, "json"))
    words = [word.format(port=41999, host="127.0.0.1") for word in document["command"]]
    assert words == list(record.launch["argv"])
    assert document["env"] == dict(env)
    assert document["identity"] == record.identity.sha


@pytest.mark.parametrize("name", TRICKY)
def test_the_env_file_reads_back_by_a_shell(name: str, tmp_path: Path) -> None:
    _, env = TRICKY[name]
    path = tmp_path / "launch.env"
    path.write_text(export(launchable({}, env), "env"))
    shown = "; ".join(f'printf "%s\\0" "${{{variable}}}"' for variable in env) or "true"
    done = subprocess.run(
        ["bash", "-c", f'set -a; . "$1"; {shown}', "bash", str(path)], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("\0")[:-1] == list(env.values())


def test_containers_listen_everywhere_inside_and_on_loopback_outside() -> None:
    (document,) = yaml_of(export(launchable({}, {}), "compose"))
    service = document["services"]["engine"]
    command = service["command"]
    assert command[command.index("--host") + 1] == "0.0.0.0"
    assert command[command.index("--port") + 1] == "8000"
    assert service["ports"] == ["${HOST:-127.0.0.1}:${PORT:-8000}:8000"]


def test_the_model_is_mounted_where_the_command_looks_for_it(tmp_path: Path) -> None:
    record = with_files(launchable({}, {}), tmp_path)
    (document,) = yaml_of(export(record, "compose"))
    (volume,) = document["services"]["engine"]["volumes"]
    assert volume["source"] == volume["target"] == str(tmp_path / "a model")
    assert volume["read_only"] is True
    deployment, _ = yaml_of(export(record, "kubernetes"))
    volumes = {v["name"]: v for v in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["model"]["hostPath"]["path"] == str(tmp_path / "a model")


def test_devices_are_asked_for_as_each_kind_is() -> None:
    cuda, xpu, cpu = (on(launchable({}, {}), kind, 2) for kind in ("cuda", "xpu", "cpu"))
    (document,) = yaml_of(export(cuda, "compose"))
    (device,) = document["services"]["engine"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"]) == ("nvidia", 2)
    (document,) = yaml_of(export(xpu, "compose"))
    assert document["services"]["engine"]["devices"] == ["/dev/dri"]
    for record, limits in ((cuda, {"nvidia.com/gpu": 2}), (xpu, {"gpu.intel.com/xe": 2})):
        deployment, _ = yaml_of(export(record, "kubernetes"))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == limits
    deployment, _ = yaml_of(export(cpu, "kubernetes"))
    assert "resources" not in deployment["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("kind", list(Format))
def test_a_secret_is_asked_for_by_name_and_its_value_is_nowhere(
    kind: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "s3cret-value")
    text = export(launchable({}, {}, secrets=["TOKEN_OF_MINE"]), kind)
    assert "s3cret-value" not in text
    if kind not in (Format.ENV, Format.RECORD):
        assert "TOKEN_OF_MINE" in text


def test_a_unit_starts_the_script_that_lies_beside_the_results(tmp_path: Path) -> None:
    folder = tmp_path / "a 100% $odd folder"
    written = export_study(control_record(), "systemd", folder)
    assert written is not None
    script = folder / "launch.sh"
    assert script.is_file()
    escaped = str(script).replace("%", "%%").replace("$", "$$")
    assert f'ExecStart=/usr/bin/env bash "{escaped}"' in written.read_text()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed here")
    written = export_study(control_record(), "systemd", tmp_path)
    done = subprocess.run([tool, "verify", str(written)], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "tuner.service" in line]
    assert complaints == []


def test_a_result_record_tells_what_ran_how_fast_and_how_right() -> None:
    record = json.loads(export(accepted_record(4, args={"quantization": "fp8"}), "record"))
    assert record["model"]["quantization"] == "fp8"
    assert record["rates"]["tok_s"]["n"] == 4
    assert record["correctness"]["canary"] == "passed"
    assert record["correctness"]["quality"] == "missing"
    assert [row["prompt"] for row in record["outputs"]] == [f"prompt {i}" for i in range(4)]


def test_equal_outputs_have_equal_hashes_in_result_records() -> None:
    first, second = (json.loads(export(accepted_record(n), "record")) for n in (4, 5))
    assert first["outputs"] == second["outputs"]
    assert first["prompts_sha256"] == second["prompts_sha256"]


def test_a_result_record_names_no_host_and_no_path() -> None:
    text = export(accepted_record(4, host="secret-box"), "record")
    assert "secret-box" not in text
    assert "scripted_server.py" not in text


def test_a_trial_without_a_rate_has_no_result_record() -> None:
    with pytest.raises(ExportError, match="measured no rate"):
        export(accepted_record(4, rate=None), "record")


def test_every_format_has_a_file_name_of_its_own(tmp_path: Path) -> None:
    assert FILE_NAMES.keys() == set(Format)
    written = {export_study(control_record(), kind, tmp_path) for kind in Format}
    assert len(written) == len(Format)
