"""Reading an existing `vllm serve` command line into settings, as a person types it in a shell."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from runners.redaction import is_secret

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-q": "quantization",
          "-dp": "data-parallel-size", "-O": "optimization-level", "-cc": "compilation-config",
          "-sc": "speculative-config", "-n": "nnodes"}  # fmt: skip
"""vLLM's short flags, by their long names."""

OWN = frozenset({"host", "port", "model", "served-model-name", "uds"})
"""Arguments that a runner decides for each start."""

MASKS = frozenset({"CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"})
"""Variables that a lease decides."""


class NotACommandError(ValueError):
    """The text is no command that starts vLLM's server; the message says what was looked for."""


@dataclass
class ServeCommand:
    """A command line taken apart. `notes` are sentences about what was left out, and why."""

    python: str | None = None
    model: str = ""
    served_model_name: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    masks: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def devices(self) -> int:
        """How many devices one server takes."""
        sizes = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
        count = 1
        for name in sizes:
            count *= int(self.args.get(name) or 1)
        return count

    @property
    def kind(self) -> str:
        """The kind of device, by what the command sets: cpu, xpu or cuda."""
        names = (*self.env, *self.masks)
        if any(name.startswith("VLLM_CPU_") for name in names):
            return "cpu"
        xpu = ("VLLM_XPU_", "ZE_", "ONEAPI_", "SYCL_", "UR_", "CCL_")
        return "xpu" if any(name.startswith(xpu) for name in names) else "cuda"


def parse_serve_command(text: str) -> ServeCommand:
    """Take `VLLM_X=1 vllm serve MODEL --a b` apart.

    Understands `vllm serve`, and `python -m` with one of vLLM's server modules. Nothing is
    expanded: a `$` stays as it is typed, and is noted. Raises NotACommandError.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise NotACommandError(f"the command cannot be read: {error}; check its quotes.") from None
    command = ServeCommand()
    rest = _past_environment(words, command)
    rest = _past_program(rest, command)
    _arguments(rest, command)
    if not command.model:
        raise NotACommandError("the command names no model: `vllm serve MODEL ...` was looked for.")
    for name, value in command.env.items():
        if "$" in value:
            command.notes.append(f"{name} holds a `$`, which stays as it is: write the value out.")
    return command


def _past_environment(words: list[str], command: ServeCommand) -> list[str]:
    """Take the assignments off the front; the words after them."""
    for index, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            if word not in ("env", "exec", "export"):
                return words[index:]
        elif match[1] in MASKS:
            command.masks[match[1]] = match[2]
            command.notes.append(f"{match[1]} is left out: the tuner leases devices itself.")
        elif is_secret(match[1]):
            command.secrets.append(match[1])
            command.notes.append(f"{match[1]} is taken from your environment, by its name only.")
        else:
            command.env[match[1]] = match[2]
    return []


def _past_program(words: list[str], command: ServeCommand) -> list[str]:
    """Take `vllm serve` or `python -m vllm...` off the front; the words after it."""
    if len(words) > 1 and words[0].rsplit("/", 1)[-1] == "vllm" and words[1] == "serve":
        if "/" in words[0]:
            command.python = words[0].rsplit("/", 1)[0] + "/python"
        return words[2:]
    if len(words) > 2 and words[1] == "-m" and words[2].startswith("vllm."):
        command.python = words[0]
        return words[3:]
    shown = " ".join(words[:2]) or "nothing"
    raise NotACommandError(f"`vllm serve MODEL ...` was looked for, and {shown} was found.")


def _arguments(words: list[str], command: ServeCommand) -> None:
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            if not command.model:
                command.model = word
            continue
        flag, equals, value = word.partition("=")
        name = _SHORT.get(flag, flag.lstrip("-").replace("_", "-"))
        values = [value] if equals else []
        while not equals and index < len(words) and not _is_flag(words[index]):
            values.append(words[index])
            index += 1
        _set(command, name, values)


def _set(command: ServeCommand, name: str, values: list[str]) -> None:
    if name == "model" and values:
        command.model = values[0]
    elif name == "served-model-name" and values:
        command.served_model_name = values[0]
    elif name in OWN:
        command.notes.append(f"--{name} is left out: the tuner chooses it for each start.")
    elif is_secret(name.replace("-", "_")):
        command.notes.append(f"--{name} is left out: no secret is written down.")
    elif not values:
        key, on = (name.removeprefix("no-"), False) if name.startswith("no-") else (name, True)
        command.args[key] = on
    else:
        command.args[name] = _value(values[0]) if len(values) == 1 else [_value(v) for v in values]


def _is_flag(word: str) -> bool:
    """Whether a word begins a new flag; a negative number does not."""
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _value(text: str) -> Any:
    """A number or a JSON object as such where its text would be the same again, else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict | list):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and str(value) == text else text
