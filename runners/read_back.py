"""Compares what the engine resolved with what was asked for: an ignored setting is drift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from runners.diagnosis import ignored_settings
from runners.launch import Launch

_MISSING = object()

ALIASES: dict[str, tuple[str, ...]] = {
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "quantization": ("model_config", "quantization"),
    "seed": ("model_config", "seed"),
    "swap_space": ("cache_config", "swap_space"),
    "enable_log_requests": (),
    "enable_prompt_tokens_details": (),
    "uvicorn_log_level": (),
}
"""Where /server_info keeps what has another name there. An empty path: it is kept nowhere."""

SECTION_OF = {
    "speculative-config": "speculative_config",
    "compilation-config": "compilation_config",
    "attention-config": "attention_config",
    "kernel-config": "kernel_config",
    "cc": "compilation_config",
    "sc": "speculative_config",
}
"""Arguments that hold a whole section, given as JSON or with dots."""

LETS_THE_ENGINE_CHOOSE = ("auto", "", None)


class ReadBack(BaseModel):
    """What the running engine says about itself.

    `drift` has one sentence per setting that is not what was asked for; empty means that what was
    asked for is what runs, as far as it can be seen. `unverified` names what the engine shows
    nowhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str | None = None
    config: dict[str, Any] = {}
    env: dict[str, Any] = {}
    system: dict[str, Any] = {}
    drift: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()


def compare(
    launch: Launch,
    *,
    version: str | None,
    config: Mapping[str, Any],
    env: Mapping[str, Any],
    system: Mapping[str, Any],
    log: Sequence[str],
) -> ReadBack:
    """The engine's view against the launch. Pure.

    `config` and `env` are `vllm_config` and `vllm_env` of /server_info. A setting that the engine
    shows nowhere is listed in `unverified`, not taken as proven.
    """
    drift: list[str] = []
    unverified: list[str] = []
    for key, asked, found in _pairs(launch.args, config):
        if found is _MISSING:
            unverified.append(key)
        elif not _agrees(asked, found):
            drift.append(f"--{key} was asked to be {_show(asked)} and is {_show(found)}")
    for name, text in launch.env.items():
        if not name.startswith("VLLM_"):
            continue
        if name not in env:
            unverified.append(name)
        elif not _env_agrees(text, env[name]):
            drift.append(f"{name} was asked to be {text!r} and is {_show(env[name])}")
    drift += ignored_settings(log)
    return ReadBack(
        version=version,
        config=dict(config),
        env=dict(env),
        system=dict(system),
        drift=tuple(dict.fromkeys(drift)),
        unverified=tuple(unverified),
    )


def _pairs(args: Mapping[str, Any], config: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """`(argument, asked, found)` for every leaf that was asked for."""
    pairs: list[tuple[str, Any, Any]] = []
    for key, asked in args.items():
        head, _, rest = key.partition(".")
        section = SECTION_OF.get(head)
        if section is None:
            pairs.append((key, asked, _look_up(key, config)))
        elif rest:
            pairs.append((key, asked, _descend(config.get(section), rest.split("."))))
        elif asked is not None:
            inner = json.loads(asked) if isinstance(asked, str) else asked
            pairs += [
                (f"{key}.{name}", value, _descend(config.get(section), [name]))
                for name, value in (inner.items() if isinstance(inner, Mapping) else ())
            ]
    return pairs


def _look_up(key: str, config: Mapping[str, Any]) -> Any:
    """A flag in the section that has a field of its name; where several have, an alias decides."""
    name = key.replace("-", "_")
    if name in ALIASES:
        return _descend(config, ALIASES[name]) if ALIASES[name] else _MISSING
    if name in config:
        return config[name]
    found = [part[name] for part in config.values() if isinstance(part, Mapping) and name in part]
    return found[0] if found else _MISSING


def _descend(data: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(data, Mapping):
            return None if data is None else _MISSING
        if name not in data:
            return _MISSING
        data = data[name]
    return data


def _agrees(asked: Any, found: Any) -> bool:
    """Whether the engine's value is what was asked for, however it spells it."""
    if asked in LETS_THE_ENGINE_CHOOSE:
        return True
    if isinstance(asked, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _agrees(value, found[name]) for name, value in asked.items()
        )
    if isinstance(asked, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(asked) == len(found)
            and all(_agrees(one, other) for one, other in zip(asked, found, strict=True))
        )
    return bool(_norm(asked) == _norm(found))


def _norm(value: Any) -> Any:
    """One spelling for each value: `torch.bfloat16`, `half`, `"64"` and `64.0`."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    text = str(value).removeprefix("torch.").lower()
    text = {"half": "float16", "float": "float32"}.get(text, text)
    try:
        return float(text)
    except ValueError:
        return text


def _env_agrees(text: str, found: Any) -> bool:
    if text.lower() in ("auto", ""):
        return True
    if isinstance(found, bool):
        return text.strip().lower() in (("1", "true", "yes", "on") if found else _FALSE)
    if isinstance(found, int | float):
        try:
            return float(text) == float(found)
        except ValueError:
            return False
    if isinstance(found, list):
        return [part.strip() for part in text.split(",")] == [str(part) for part in found]
    return text.strip().lower() == str(found).strip().lower()


_FALSE = ("0", "false", "no", "off", "")


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str) else json.dumps(value, default=str)
