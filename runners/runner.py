"""The runner document: which engine, which model, on how many devices of which kind."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from runners.device import Demand
from runners.redaction import is_secret

Value = bool | int | float | str | None
Argument = Value | list[Value] | dict[str, object]

CATALOG = Path(__file__).parent / "catalog"
PROJECT_ROOT = Path(__file__).parent.parent

Seconds = Annotated[float, Field(gt=0)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Timeouts(_Document):
    """How long each phase of an engine's life may take, in seconds."""

    launch_s: Seconds = Field(120, description="Until the engine writes its first line of log.")
    ready_s: Seconds = Field(900, description="From its start until it says that it is ready.")
    first_token_s: Seconds = Field(
        120, description="For the first token of the first real request after readiness."
    )
    request_s: Seconds = Field(300, description="For one whole request.")
    stall_s: Seconds = Field(
        600, description="Without a new line of log while not yet ready: taken as hung."
    )
    teardown_s: Seconds = Field(15, description="For the whole ladder of signals at the end.")


class ReadinessProbe(_Document):
    """How to tell that the engine serves."""

    path: str = Field("/health", description="Answers 200 once the engine is up.")
    generation: bool = Field(
        True, description="Ask for a real token too: some settings come up and die on it."
    )
    poll_s: Seconds = Field(0.25, description="Between two looks.")


class HealthCheck(_Document):
    """When a device may be used."""

    command: tuple[str, ...] = Field((), description="Exit status 0 means healthy.")
    free_memory_fraction: float = Field(
        0.9, ge=0, le=1, description="A device with less free memory than this is dirty."
    )
    settle_s: float = Field(
        10, ge=0, description="How long memory may take to come back after an engine's end."
    )


class Cleanup(_Document):
    """What to run when a device stays dirty after a trial."""

    commands: tuple[tuple[str, ...], ...] = ()
    timeout_s: Seconds = 60


class LogPolicy(_Document):
    """How much of the engine's output is kept."""

    cap_bytes: int = Field(
        64 * 1024 * 1024, ge=4096, description="Half for the beginning, half for the end."
    )


class Runner(_Document):
    """Where a study's engines run.

    `engine: vllm` starts vLLM's server by its module. `engine: command` starts any server that
    speaks OpenAI's protocol, from `command`, in which `{python}`, `{model}`, `{served_model_name}`,
    `{port}`, `{host}` and `{args}` stand for what the tuner fills in.
    """

    name: str = Field(description="A short name; part of no identity.")
    description: str = ""
    engine: Literal["vllm", "command"] = "vllm"
    python: str = Field(
        "", description="The engine's Python; relative to the working folder or the project."
    )
    model: str = Field(description="A folder with the model's files, or a name on a model hub.")
    served_model_name: str = Field("", description="What requests call it; default: folder's name.")
    command: tuple[str, ...] = Field((), description="The command engine's words.")
    devices: Demand = Demand()
    args: dict[str, Argument] = Field({}, description="Arguments that every trial of it gets.")
    env: dict[str, str] = Field({}, description="Environment that every trial of it gets.")
    harness_env: dict[str, str] = Field(
        {}, description="Environment only for observing; not part of any identity or export."
    )
    inherit: tuple[str, ...] = Field(
        (), description="Names (or patterns such as ONEAPI_*) passed on from the tuner's own."
    )
    secrets: tuple[str, ...] = Field(
        (), description="Names passed on from the tuner's environment and never written down."
    )
    host: str = Field("127.0.0.1", description="The address that the engine listens on.")
    timeouts: Timeouts = Timeouts()
    readiness: ReadinessProbe = ReadinessProbe()
    health: HealthCheck = HealthCheck()
    cleanup: Cleanup = Cleanup()
    log: LogPolicy = LogPolicy()

    @model_validator(mode="after")
    def _engine_is_complete(self) -> Self:
        if self.engine == "command" and not self.command:
            raise ValueError("a runner with `engine: command` needs `command`")
        if self.engine == "vllm" and self.command:
            raise ValueError(
                "`command` belongs to `engine: command`; vllm is started by its module"
            )
        if self.engine == "vllm" and not self.python:
            raise ValueError("a runner with `engine: vllm` needs `python`, the engine's own Python")
        if self.engine == "command" and not any("{port}" in word for word in self.command):
            raise ValueError("`command` must pass {port} to the server")
        return self

    @model_validator(mode="after")
    def _no_secret_is_written_here(self) -> Self:
        for name in (*self.env, *self.harness_env):
            if is_secret(name, self.secrets):
                raise ValueError(
                    f"{name} looks like a secret: list the name under `secrets` and export its "
                    "value before the tuner starts, instead of writing it into a file"
                )
        return self

    @property
    def python_path(self) -> Path:
        """The engine's Python as an absolute path; a virtual environment's link is not followed."""
        return locate(self.python)

    @property
    def model_path(self) -> Path | None:
        """The model's folder, or None when `model` is a name on a hub."""
        path = locate(self.model)
        looks_local = self.model.startswith(("/", ".", "~"))
        return path if path.exists() or looks_local else None

    @property
    def model_name(self) -> str:
        """What requests call the model."""
        return self.served_model_name or Path(self.model).name

    def command_text(self) -> str:
        """The command engine's template as one line, for messages."""
        return shlex.join(self.command)


def locate(text: str) -> Path:
    """An absolute path: as given, else under the working folder, else under the project's root.

    A path that exists in neither place is returned under the working folder, for the message.
    """
    path = Path(text).expanduser()
    if path.is_absolute():
        return path
    here = Path.cwd() / path
    there = PROJECT_ROOT / path
    return there if there.exists() and not here.exists() else here
