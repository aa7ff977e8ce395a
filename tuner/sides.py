"""What differs between two identities: trials, launch scripts, and a server that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runners import Launch
from runners.read_back import compare
from tuner.export.shell import identity_in
from tuner.identity import Identity
from tuner.ledger import TrialRecord
from tuner.study import Study

ASK_S = 10.0


class UnknownSideError(ValueError):
    """What was to be compared does not exist or cannot be read; the message says how to name it."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison; `record` where it is a trial."""

    name: str
    identity: Identity
    record: TrialRecord | None = None


@dataclass(frozen=True)
class Difference:
    """One thing that differs: what, and its value on each side."""

    what: str
    left: Any
    right: Any


def side_of(text: str) -> Side:
    """The side that a person names: `STUDY:NUMBER`, `STUDY` for its best trial, or a script's path.

    Raises UnknownSideError; DocumentError if the study's files cannot be read.
    """
    path = Path(text)
    if path.suffix == ".sh":
        return _script(path)
    name, colon, number = text.rpartition(":")
    study = Study.load(name if colon else text)
    if not colon:
        record = study.best
        if record is None:
            raise UnknownSideError(f"{text} has no accepted trial yet; name one, such as {text}:1.")
    else:
        record = study.ledger.trial(int(number)) if number.isdecimal() else None
        if record is None:
            raise UnknownSideError(
                f"{name} has no trial {number}; `tuner trials {name}` lists them."
            )
    return Side(f"{study.name}:{record.number}", record.identity, record)


def differences(left: Side, right: Side) -> list[Difference]:
    """Everything in which two identities differ, setting by setting."""
    return [
        Difference(what, mine, theirs)
        for what, (mine, theirs) in left.identity.diff(right.identity).items()
    ]


def differences_from_server(side: Side, url: str) -> list[str]:
    """Where a running server is not what the side says, a sentence each; empty where it agrees.

    The server must show its settings: vLLM does with VLLM_SERVER_DEV_MODE=1. Raises
    UnknownSideError if it does not answer or shows nothing.
    """
    if side.record is None or not side.record.launch:
        raise UnknownSideError(
            f"{side.name} is compared with a server only as a trial that was started; "
            "name it as STUDY:NUMBER."
        )
    base = url.rstrip("/").removesuffix("/v1")
    version = _get(base, "/version").get("version")
    info = _get(base, "/server_info?config_format=json")
    seen = compare(
        Launch.model_validate(side.record.launch),
        version=version,
        config=info.get("vllm_config", {}),
        env=info.get("vllm_env", {}),
        system=info.get("system_env", {}),
        log=(),
    )
    found = list(seen.drift)
    measured = side.identity.engine.get("version")
    if measured and version != measured:
        found.insert(0, f"the engine is version {version}, and {measured} was measured")
    return found


def _script(path: Path) -> Side:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UnknownSideError(f"{path} cannot be read ({error.strerror}).") from None
    identity = identity_in(text)
    if identity is None:
        raise UnknownSideError(f"{path} is no launch script of this program.")
    return Side(str(path), identity)


def _get(base: str, path: str) -> Mapping[str, Any]:
    try:
        answer = httpx.get(base + path, timeout=ASK_S)
        answer.raise_for_status()
        document: Mapping[str, Any] = answer.json()
    except httpx.HTTPStatusError as error:
        hint = "; vLLM shows it with VLLM_SERVER_DEV_MODE=1" if "server_info" in path else ""
        status = error.response.status_code
        raise UnknownSideError(f"{base}{path} answers with status {status}{hint}.") from None
    except (httpx.HTTPError, ValueError) as error:
        raise UnknownSideError(f"{base}{path} does not answer: {error}") from None
    return document
