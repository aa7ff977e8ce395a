"""Plans how an engine is started: a value that says it all and holds no secret."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from runners.device import Lease
from runners.redaction import is_secret
from runners.rendering import render_args
from runners.runner import Argument, ReadinessProbe, Runner

VLLM_LAUNCHER = "vllm.entrypoints.launchers.api_server.entry"

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_*", "HF_HOME", "HF_HUB_OFFLINE",
)  # fmt: skip
"""What an engine gets of our own environment. A list of what is let in, not of what is kept out:
a VLLM_*, OMP_*, PYTHON* or LD_PRELOAD that happens to be set in a shell would decide the result
without being part of the identity."""

VLLM_HARNESS_ENV = {
    "VLLM_SERVER_DEV_MODE": "1",  # /server_info and /reset_prefix_cache
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    # vLLM names its processes by setproctitle, which overwrites the environment in /proc, and the
    # marker with it, unless this is set.
    "SPT_NOENV": "1",
}
"""What is set only to observe and to find the engine: no part of an identity, nor of an export."""


class LaunchRefused(ValueError):  # noqa: N818 - the word of this package
    """The launch cannot be planned; the message says what to change."""


class Launch(BaseModel):
    """One planned start. Round-trips through JSON; secrets appear by name only.

    `argv`, `env` decide what runs (`env` includes the lease's masks). `harness_env` is for
    observing. `inherit` and `secrets` name what is taken from our own environment at the start.
    `args` are the arguments asked for, as data, to compare with what the engine made of them.
    `cores` are the logical CPUs that the engine is confined to; empty means all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str
    argv: tuple[str, ...]
    args: dict[str, Any]
    env: dict[str, str]
    harness_env: dict[str, str]
    inherit: tuple[str, ...]
    secrets: tuple[str, ...]
    cwd: Path
    log: Path
    log_cap_bytes: int
    host: str
    port: int
    marker: str
    model: str
    readiness: ReadinessProbe
    cores: tuple[int, ...] = ()

    @property
    def base_url(self) -> str:
        """Where it is reached; a server that listens everywhere is reached by loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def process_env(self, own: Mapping[str, str] | None = None) -> dict[str, str]:
        """The engine's whole environment, secrets included: for starting only, never for writing.

        Raises:
            LaunchRefused: a secret that the runner names is not set.
        """
        own = os.environ if own is None else own
        env = {
            name: value
            for name, value in own.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.inherit)
        }
        missing = [name for name in self.secrets if name not in own]
        if missing:
            raise LaunchRefused(
                f"the runner's secret {missing[0]} is not set: export it before starting the tuner"
            )
        env |= {name: own[name] for name in self.secrets}
        return env | self.harness_env | self.env | {"TUNER_MARKER": self.marker}

    def secret_values(self, own: Mapping[str, str] | None = None) -> list[str]:
        """Every secret value that the engine's output could repeat.

        Too short ones are left out, as their letters stand in ordinary words too.
        """
        env = self.process_env(own)
        return [v for name, v in env.items() if is_secret(name, self.secrets) and len(v) >= 6]


def plan_launch(
    runner: Runner,
    *,
    args: Mapping[str, Argument],
    env: Mapping[str, str],
    lease: Lease,
    port: int,
    directory: Path,
    marker: str,
) -> Launch:
    """How `runner` starts its engine with these settings in `directory`.

    `args` and `env` win over the runner's own. The lease's masks win over both: a candidate must
    not reach devices that belong to another trial. The port is added to the marker, so that two
    engines of one attempt (a candidate and its adjacent control) can be told apart.

    Raises:
        LaunchRefused: a setting would hold a secret, or takes over what is the runner's to decide.
    """
    merged_args = {**runner.args, **args}
    for name in ("host", "port", "model", "served-model-name"):
        if name in merged_args:
            raise LaunchRefused(f"argument '{name}' is set by the runner; remove it from the space")
    merged_env = {**runner.env, **env}
    for name in (*merged_env, *(key.replace("-", "_") for key in merged_args)):
        if is_secret(name, runner.secrets):
            raise LaunchRefused(
                f"'{name}' looks like a secret: name it under the runner's `secrets` instead, and "
                "its value is taken from the environment"
            )
    directory = directory.absolute()
    is_vllm = runner.engine == "vllm"
    return Launch(
        engine=runner.engine,
        argv=_vllm_words(runner, merged_args, port)
        if is_vllm
        else _command_words(runner, merged_args, port),
        args=merged_args,
        env={**merged_env, **lease.env},
        harness_env={**(VLLM_HARNESS_ENV if is_vllm else {}), **runner.harness_env},
        inherit=(*INHERITED, *runner.inherit),
        secrets=runner.secrets,
        cwd=directory,
        log=directory / "server.log",
        log_cap_bytes=runner.log.cap_bytes,
        host=runner.host,
        port=port,
        marker=f"{marker}/{port}",
        model=runner.model_name,
        readiness=runner.readiness,
        cores=_cores(lease),
    )


def _cores(lease: Lease) -> tuple[int, ...]:
    """The cores of a CPU lease, as a mask is for a card; none where the lease is the whole host."""
    cores = sorted(core for device in lease.devices for core in device.cores)
    if lease.kind != "cpu" or set(cores) >= os.sched_getaffinity(0):
        return ()
    return tuple(cores)


def _model_word(runner: Runner) -> str:
    path = runner.model_path
    return str(path) if path is not None else runner.model


def _vllm_words(runner: Runner, args: Mapping[str, Argument], port: int) -> tuple[str, ...]:
    return (
        str(runner.python_path), "-m", VLLM_LAUNCHER,
        "--model", _model_word(runner),
        "--served-model-name", runner.model_name,
        "--host", runner.host,
        "--port", str(port),
        *render_args(args),
    )  # fmt: skip


def _command_words(runner: Runner, args: Mapping[str, Argument], port: int) -> tuple[str, ...]:
    """The template with its places filled. `{args}` alone stands for as many words as there are."""
    places = {
        "{python}": str(runner.python_path) if runner.python else "",
        "{model}": _model_word(runner),
        "{served_model_name}": runner.model_name,
        "{host}": runner.host,
        "{port}": str(port),
    }
    words: list[str] = []
    placed = False
    for template in runner.command:
        if template == "{args}":
            words += render_args(args)
            placed = True
            continue
        word = template
        for place, value in places.items():
            word = word.replace(place, value)
        words.append(word)
    return tuple(words if placed else [*words, *render_args(args)])
