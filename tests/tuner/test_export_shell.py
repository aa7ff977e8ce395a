"""The launch script starts exactly what was measured, or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from runners.rendering import render_args
from tests.tuner.trial_records import (
    SCRIPTED_SERVER,
    accepted_record,
    control_record,
    rejected_record,
)
from tuner.export import ExportError, export, export_study, write_launch_script
from tuner.ledger import TrialRecord

SHELLCHECK = Path(sys.executable).parent / "shellcheck"

ODD = "$HOME `id` $(id) \\ \"double\" 'single' ! * ? ~ # & ; | < > {a,b} %s %%\ttab\nnewline\n"
TRICKY: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "json": ({"speculative-config": {"method": "ngram", "k": [1, 2.5, None, True]}}, {}),
    "nested json": ({"additional-config": {"a": {"b": '{"c": "d\\"e"}'}, "odd": ODD}}, {}),
    "spaces": ({"tokenizer": "  two  spaces  ", "dtype": ""}, {"VLLM_A": "  x  y ", "B": ""}),
    "quotes": ({"revision": 'it\'s "so" `called`'}, {"VLLM_Q": "'\"'\"'"}),
    "dollar": ({"revision": "$HOME ${PATH} $(id) $$ $1"}, {"VLLM_D": "$HOME:${PATH}"}),
    "newlines": ({"revision": "one\ntwo\n\n"}, {"VLLM_N": "one\ntwo\n\n"}),
    "unicode": ({"revision": "naïve 漢字 🙂 \u2018quoted\u2019 \u00a0"}, {"VLLM_U": "é\u2028ü"}),
    "backslashes": ({"revision": "\\n \\\\ \\' \\x41 \\"}, {"VLLM_B": "\\"}),
    "flags": ({"revision": "--port", "seed": -1, "enforce-eager": False, "dtype": "=a=b"}, {}),
    "controls": ({"revision": ODD + "\x01\x7f\x1b[31m\r"}, {"VLLM_C": "\x02\t\r\n"}),
}


def launchable(
    args: Mapping[str, Any],
    env: Mapping[str, str],
    *,
    masks: Mapping[str, str] | None = None,
    **launch: Any,
) -> TrialRecord:
    """An accepted trial of the scripted server, which echoes what it received."""
    words = [sys.executable, str(SCRIPTED_SERVER)]
    for name in ("FOREIGN", "VLLM_FOREIGN", "TOKEN_OF_MINE", "ZE_AFFINITY_MASK", *env):
        words += ["--echo-env", name]
    record = accepted_record(4, args=dict(args), env=dict(env))
    argv = [*words, "--host", "127.0.0.1", "--port", "41999", *render_args(args)]
    return record.model_copy(
        update={"launch": record.launch | {"argv": argv, "env": {**env, **(masks or {})}} | launch}
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(script: Path, *options: str, **env: str) -> Iterator[httpx.Client]:
    port = free_port()
    process = subprocess.Popen(
        ["bash", str(script), *options],
        env={**os.environ, "PORT": str(port), **env},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for _ in range(400):
                try:
                    client.get("/health")
                except httpx.TransportError:
                    if process.poll() is not None:
                        assert process.stderr is not None
                        pytest.fail(f"the script ended: {process.stderr.read()}")
                    time.sleep(0.05)
                else:
                    break
            yield client
    finally:
        process.terminate()
        process.wait(10)


def ended(script: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(script), *options],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", TRICKY)
def test_a_tricky_identity_reaches_the_engine_byte_for_byte(name: str, tmp_path: Path) -> None:
    args, env = TRICKY[name]
    script = write_launch_script(launchable(args, env), tmp_path / "launch.sh")
    with started(script) as client:
        echo = client.get("/echo").json()
    wanted = render_args(args)
    assert echo["argv"][len(echo["argv"]) - len(wanted) :] == wanted
    assert {name: echo["env"].get(name) for name in env} == dict(env)


@pytest.mark.parametrize("name", TRICKY)
def test_a_script_passes_shellcheck(name: str, tmp_path: Path) -> None:
    if not SHELLCHECK.exists():
        pytest.skip("shellcheck is not installed here; it comes with the extra `dev`")
    args, env = TRICKY[name]
    record = launchable(args, env, secrets=["HF_TOKEN"], masks={"ZE_AFFINITY_MASK": "0"})
    script = write_launch_script(with_files(record, tmp_path), tmp_path / "launch.sh")
    done = subprocess.run([SHELLCHECK, str(script)], capture_output=True, text=True)
    assert done.stdout == ""
    assert done.returncode == 0


def test_what_happens_to_be_set_in_the_shell_does_not_reach_the_engine(tmp_path: Path) -> None:
    script = write_launch_script(launchable({}, {"VLLM_OURS": "1"}), tmp_path / "launch.sh")
    foreign = {"FOREIGN": "1", "VLLM_FOREIGN": "1", "BASH_FUNC_sha256sum%%": "() { :; }"}
    with started(script, **foreign) as client:
        assert client.get("/echo").json()["env"] == {"VLLM_OURS": "1"}


def test_a_secret_comes_from_the_callers_environment_and_its_absence_stops_the_start(
    tmp_path: Path,
) -> None:
    record = launchable({}, {}, secrets=["TOKEN_OF_MINE"])
    script = write_launch_script(record, tmp_path / "launch.sh")
    with started(script, TOKEN_OF_MINE="s3cret $x") as client:
        assert client.get("/echo").json()["env"] == {"TOKEN_OF_MINE": "s3cret $x"}
    done = ended(script)
    assert done.returncode != 0
    assert "TOKEN_OF_MINE must be set" in done.stderr


def test_the_leased_devices_are_the_default_and_the_callers_to_change(tmp_path: Path) -> None:
    record = launchable({}, {}, masks={"ZE_AFFINITY_MASK": "2,3"})
    script = write_launch_script(record, tmp_path / "launch.sh")
    with started(script) as client:
        assert client.get("/echo").json()["env"] == {"ZE_AFFINITY_MASK": "2,3"}
    with started(script, ZE_AFFINITY_MASK="0,1") as client:
        assert client.get("/echo").json()["env"] == {"ZE_AFFINITY_MASK": "0,1"}


def test_the_engine_is_confined_to_the_cores_that_it_had(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    script = write_launch_script(launchable({}, {}, cores=[core]), tmp_path / "launch.sh")
    with started(script) as client:
        pid = client.get("/echo").json()["pid"]
        assert os.sched_getaffinity(pid) == {core}


def test_it_prints_the_identity_and_starts_nothing(tmp_path: Path) -> None:
    record = launchable({}, {})
    script = write_launch_script(record, tmp_path / "launch.sh")
    done = ended(script, "--print-identity", HOME="/nonexistent")
    assert (done.returncode, done.stdout) == (0, f"{record.identity.sha}\n")


def test_an_unknown_option_is_bad_usage(tmp_path: Path) -> None:
    script = write_launch_script(launchable({}, {}), tmp_path / "launch.sh")
    assert ended(script, "--verbose").returncode == 2


def with_files(record: TrialRecord, folder: Path) -> TrialRecord:
    """The record as if its model lay in `folder`, and its engine were a copy of the server."""
    model = folder / "a model"
    model.mkdir()
    for name in ("config.json", "weights 'x'.bin", "odd\\name\nhere"):
        (model / name).write_text(name)
    server = folder / "server"
    shutil.copytree(SCRIPTED_SERVER.parent, server, ignore=shutil.ignore_patterns("__pycache__"))
    program = server / "scripted_server.py"
    files = {path.name: sha256(path) for path in model.iterdir()}
    identity = record.identity.model_copy(
        update={
            "model": {"name": model.name, "files": files},
            "engine": {"name": "command", "binaries": {program.name: sha256(program)}},
        }
    )
    words = [str(program) if w == str(SCRIPTED_SERVER) else w for w in record.launch["argv"]]
    argv = [words[0], words[1], "--model", str(model), *words[2:]]
    launch = record.launch | {"argv": argv}
    return record.model_copy(update={"identity": identity, "launch": launch})


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    """A script whose model and program can be changed: `a model/`, `server/`."""
    record = with_files(launchable({}, {}), tmp_path)
    return write_launch_script(record, tmp_path / "launch.sh")


def test_the_measured_files_pass_the_checks(checked: Path) -> None:
    done = ended(checked, "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("a model/config.json", "the model is not the measured one"),
        ("a model/odd\\name\nhere", "the model is not the measured one"),
        ("server/scripted_server.py", "the engine's program is not the measured one"),
    ],
)
def test_a_changed_file_stops_the_start_unless_forced(
    checked: Path, path: str, complaint: str
) -> None:
    with (checked.parent / path).open("a") as file:
        file.write("\n# changed\n")
    done = ended(checked)
    assert done.returncode == 1
    assert complaint in done.stderr
    with started(checked, "--force") as client:
        assert client.get("/health").status_code == 200
    with started(checked, TUNER_FORCE="1") as client:
        assert client.get("/health").status_code == 200


def test_an_added_or_missing_model_file_stops_the_start(checked: Path) -> None:
    extra = checked.parent / "a model" / "generation_config.json"
    extra.write_text("{}")
    done = ended(checked)
    assert done.returncode == 1
    assert "holds 4 files, and held 3" in done.stderr
    extra.unlink()
    (checked.parent / "a model" / "config.json").unlink()
    assert ended(checked).returncode == 1


def test_another_version_of_the_engine_stops_the_start(tmp_path: Path) -> None:
    record = launchable({}, {}, engine="vllm")
    versions = {"python": "{}.{}.{}".format(*sys.version_info[:3]), "torch": None}
    engine = {"name": "pydantic", "version": "0.0.1", "binaries": {}, **versions}
    identity = record.identity.model_copy(update={"engine": engine})
    script = write_launch_script(
        record.model_copy(update={"identity": identity}), tmp_path / "launch.sh"
    )
    done = ended(script)
    assert done.returncode == 1
    assert "pydantic 0.0.1" in done.stderr


def test_a_trial_that_never_started_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="never started an engine"):
        write_launch_script(rejected_record(1, launch={}), tmp_path / "launch.sh")
    assert list(tmp_path.iterdir()) == []


def test_only_an_accepted_trial_is_exported(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="trial 3 is rejected \\(parity_mismatch\\)"):
        export_study(rejected_record(3), "sh", tmp_path)
    assert export_study(control_record(), "sh", tmp_path) == tmp_path / "launch.sh"
    assert os.access(tmp_path / "launch.sh", os.X_OK)


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="did you mean 'sh'"):
        export(control_record(), "shh")


def test_the_header_cannot_be_left_by_what_a_record_says(tmp_path: Path) -> None:
    record = launchable({}, {}).model_copy(update={"study": "x\nrm -rf /"})
    assert "\nrm -rf" not in export(record, "sh")


def test_a_knob_that_equals_the_port_stays_as_it_was_measured(tmp_path: Path) -> None:
    script = write_launch_script(launchable({"max-model-len": 41999}, {}), tmp_path / "launch.sh")
    with started(script) as client:
        argv = client.get("/echo").json()["argv"]
    assert argv[argv.index("--max-model-len") + 1] == "41999"
    assert argv[argv.index("--port") + 1] != "41999"
