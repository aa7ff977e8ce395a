"""What an export needs of a trial: its launch, with the places that a user may set marked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.redaction import plain
from runners.rendering import render_args
from tuner.ledger import TrialRecord
from tuner.notebook import rate_in_words

PORT = "\0port\0"
HOST = "\0host\0"
"""Marks in a word of the command, where the port or the host belongs; no word can hold a NUL."""


class ExportError(ValueError):
    """This trial cannot be exported so; the message says why."""


@dataclass(frozen=True)
class Settings:
    """A launch without what was only the harness's: no marker, no log, no port of its own.

    `words` are the command with the marks `PORT` and `HOST`. `env` decides the result; `masks` say
    which devices were leased, which is the user's to set elsewhere. `inherit` are patterns of
    names that the engine gets from its caller, `secrets` names that it must get.
    `cores` is a list of logical CPUs such as `0,1`, empty where the engine had all.
    `script` is where the launch script lies, for the formats that start it.
    """

    record: TrialRecord
    words: tuple[str, ...]
    args: Mapping[str, Any]
    env: Mapping[str, str]
    masks: Mapping[str, str]
    inherit: tuple[str, ...]
    secrets: tuple[str, ...]
    host: str
    model: str
    cores: str
    script: Path

    @property
    def program(self) -> str:
        """The engine's Python, or the program of a command engine."""
        return self.words[0]

    @property
    def is_vllm(self) -> bool:
        """Whether the engine is vLLM, whose packages can be asked for their versions."""
        return bool(self.record.launch["engine"] == "vllm")

    @property
    def model_word(self) -> str:
        """The model as the command names it: a folder, or a name on a hub."""
        words = list(self.words)
        if "--model" in words[:-1]:
            return words[words.index("--model") + 1]
        return str(self.record.identity.model.get("name", self.model))

    @property
    def model_files(self) -> Mapping[str, str]:
        """SHA-256 of each of the model's files, by name within its folder."""
        files: Mapping[str, str] = self.record.identity.model.get("files", {})
        return files

    @property
    def binaries(self) -> Mapping[str, str]:
        """SHA-256 of the engine's binaries: by name in vLLM's folder, or by path for a command."""
        measured: Mapping[str, str] = self.record.identity.engine.get("binaries", {})
        if self.is_vllm:
            return measured
        paths = {Path(word).name: word for word in self.words}
        return {paths[name]: sha for name, sha in measured.items() if name in paths}

    @property
    def title(self) -> str:
        """What this starts, in one line of plain characters."""
        record = self.record
        rate = rate_in_words(record.rate) if record.rate else "no rate was measured"
        code = f", {record.rejection.code.value}" if record.rejection else ""
        line = (
            f"Trial {record.number} of study {record.study} ({record.verdict.value}{code}): {rate}"
        )
        return " ".join(plain(line).split())


def settings_of(record: TrialRecord, script: Path) -> Settings:
    """The exportable part of a record's launch. Raises ExportError if it never had one."""
    launch = record.launch
    if not launch.get("argv"):
        raise ExportError(
            f"trial {record.number} never started an engine, so there is no command to export."
        )
    measured_env: Mapping[str, str] = record.identity.configuration.get("env", {})
    env = {name: value for name, value in launch["env"].items() if name in measured_env}
    masks = {name: value for name, value in launch["env"].items() if name not in measured_env}
    return Settings(
        record=record,
        words=_marked(launch["argv"], launch),
        args=launch["args"],
        env=env,
        masks=masks,
        inherit=tuple(launch["inherit"]),
        secrets=tuple(launch["secrets"]),
        host=launch["host"],
        model=launch["model"],
        cores=",".join(str(core) for core in launch.get("cores", ())),
        script=script,
    )


def _marked(argv: Sequence[str], launch: Mapping[str, Any]) -> tuple[str, ...]:
    """The command with port and host marked, everywhere but in the candidate's own arguments."""
    rendered = render_args(launch["args"])
    start = _find(argv, rendered)
    own = range(start, start + len(rendered))
    port = re.compile(rf"(?<!\d){launch['port']}(?!\d)")
    words: list[str] = []
    for index, word in enumerate(argv):
        if index in own:
            words.append(word)
        elif word == launch["host"]:
            words.append(HOST)
        else:
            words.append(port.sub(PORT, word))
    return tuple(words)


def _find(words: Sequence[str], part: Sequence[str]) -> int:
    """Where `part` stands in `words`, the last such place; the end if it stands nowhere."""
    for start in range(len(words) - len(part), -1, -1):
        if list(words[start : start + len(part)]) == list(part):
            return start
    return len(words)
