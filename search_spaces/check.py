"""Checks a space against what the installed engine offers, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from search_spaces.engine_knobs import EngineKnob, EngineKnobs
from search_spaces.expression import Value
from search_spaces.knob import Knob, spelt
from search_spaces.nearest import did_you_mean
from search_spaces.settings import ArgValue, Settings, env_text
from search_spaces.space import SearchSpace

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing in a space's document that does not fit the engine.

    `path` leads to the key or item in the document. An error would end in a failed start or a
    wasted trial; a warning would not.
    """

    path: Path
    message: str
    severity: Literal["error", "warning"] = "error"


def check(space: SearchSpace, knobs: EngineKnobs) -> list[Problem]:
    """Every problem of `space` with the engine that offers `knobs`, in the document's order."""
    if space.engine != knobs.engine:
        message = f"this space is for {space.engine}, but the engine is {knobs.engine}"
        return [Problem(("engine",), message)]
    found = list(_of_settings(("base",), space.base, knobs))
    for name, knob in space.knobs.items():
        found += _of_knob(("knobs", name), knob, knobs)
    return found


def _of_knob(path: Path, knob: Knob, knobs: EngineKnobs) -> Iterator[Problem]:
    if knob.env is not None or knob.arg is not None:
        offered, unknown = _look_up(knob, knobs)
        if unknown:
            yield Problem((*path, knob.kind), unknown)
        if offered is not None:
            yield from _deprecation((*path, knob.kind), offered)
            yield from _of_values(path, knob, offered)
    for choice, settings in knob.sets.items():
        yield from _of_settings((*path, "sets", choice), settings, knobs)


def _look_up(knob: Knob, knobs: EngineKnobs) -> tuple[EngineKnob | None, str]:
    if knob.env is not None:
        return knobs.env_by_name.get(knob.env), _unknown_env(knob.env, knobs)
    flag = knob.arg or ""
    return knobs.arg(flag), _unknown_arg(flag, knobs)


def _of_values(path: Path, knob: Knob, offered: EngineKnob) -> Iterator[Problem]:
    is_env = knob.env is not None
    if knob.choices is None:
        low, high = knob.ends
        for at, end in enumerate((low, high)):
            if wrong := _wrong(end, offered, is_env=is_env):
                yield Problem((*path, "range", at), wrong)
                return
        return
    for at, choice in enumerate(knob.choices):
        if wrong := _wrong(choice, offered, is_env=is_env):
            yield Problem((*path, "choices", at), wrong)
        elif None in knob.choices and _is_default(choice, offered, is_env=is_env):
            yield Problem(
                (*path, "choices", at),
                f"{spelt(choice)} repeats the engine's default, which null already stands for:"
                " two choices would be one configuration",
            )


def _of_settings(path: Path, settings: Settings, knobs: EngineKnobs) -> Iterator[Problem]:
    for flag, value in settings.args.items():
        yield from _of_arg((*path, "args", flag), flag, value, knobs)
    for name, text in settings.env.items():
        at = (*path, "env", name)
        if unknown := _unknown_env(name, knobs):
            yield Problem(at, unknown)
        elif (offered := knobs.env_by_name.get(name)) is not None and text is not None:
            yield from _of_setting(at, text, offered, is_env=True)


def _of_arg(path: Path, flag: str, value: ArgValue, knobs: EngineKnobs) -> Iterator[Problem]:
    offered = knobs.arg(flag)
    if offered is None:
        yield Problem(path, _unknown_arg(flag, knobs))
    elif isinstance(value, dict) and knobs.fields(offered) is not None:
        yield from _deprecation(path, offered)
        for name, inner in value.items():
            yield from _of_arg((*path, name), f"{flag}.{name}", inner, knobs)
    elif value is not None:
        yield from _of_setting(path, value, offered, is_env=False)


def _of_setting(
    path: Path, value: ArgValue, offered: EngineKnob, *, is_env: bool
) -> Iterator[Problem]:
    yield from _deprecation(path, offered)
    if wrong := _wrong(value, offered, is_env=is_env):
        yield Problem(path, wrong)
    elif path[0] == "base" and _is_default(value, offered, is_env=is_env):
        shown = value if isinstance(value, (list, dict)) else spelt(value)
        message = f"{shown} is the engine's default already; leave it out"
        yield Problem(path, message, "warning")


def _deprecation(path: Path, offered: EngineKnob) -> Iterator[Problem]:
    if offered.deprecated:
        message = f"{offered.name} is deprecated: {offered.deprecated}"
        yield Problem(path, message, "warning")


def _unknown_env(name: str, knobs: EngineKnobs) -> str:
    """A sentence if the engine would not know the variable; others' variables are their own."""
    if name in knobs.env_by_name or not name.startswith("VLLM_"):
        return ""
    near = did_you_mean(name, knobs.env_by_name)
    return f"{knobs.engine} {knobs.version} reads no variable {name!r}{near}"


def _unknown_arg(flag: str, knobs: EngineKnobs) -> str:
    """A sentence if the engine has no such argument, or no such entry in it."""
    if knobs.arg(flag) is not None:
        return ""
    first, *rest = flag.split(".")
    offered = knobs.args_by_flag.get(first)
    if offered is None:
        alias = next((one.name for one in knobs.args if first in one.aliases), None)
        if alias is not None:
            return f"--{first} is a short form, which the launcher does not write: use --{alias}"
        near = did_you_mean(first, knobs.args_by_flag)
        return f"{knobs.engine} {knobs.version} has no argument '--{first}'{near}"
    path = first
    for name in rest:
        fields = knobs.fields(offered)
        if fields is None:
            return f"--{path} takes {offered.domain}, so it has no entry {name!r}"
        if name not in fields:
            return f"--{path} has no entry {name!r}{did_you_mean(name, fields)}"
        offered = fields[name]
        path = f"{path}.{name}"
    return ""


def _wrong(value: ArgValue, offered: EngineKnob, *, is_env: bool) -> str:
    """Why the engine would refuse the value, or nothing; null leaves a setting out."""
    if value is None or "any" in offered.kinds:
        return ""
    if is_env and isinstance(value, (bool, int, float, str)):
        fits = _env_fits(env_text(value) or "", offered)
    else:
        fits = _fits(value, offered)
    if fits:
        return ""
    shown = value if isinstance(value, (list, dict)) else spelt(value)
    near = ""
    if offered.choices and isinstance(value, str):
        near = did_you_mean(value, [one for one in offered.choices if isinstance(one, str)])
    return f"{offered.name} does not accept {shown}, but {offered.domain}{near}"


def _fits(value: ArgValue, offered: EngineKnob) -> bool:
    if any(type(value) is type(one) and value == one for one in offered.choices):
        return True
    # The command line carries texts: 2 and "2" are the same there.
    if not isinstance(value, (bool, list, dict)) and str(value) in map(str, offered.choices):
        return True
    kinds = set(offered.kinds)
    if isinstance(value, bool):
        return "bool" in kinds or (value and "true" in kinds)
    if isinstance(value, int):
        return bool({"int", "float"} & kinds)
    if isinstance(value, float):
        return "float" in kinds
    if isinstance(value, str):
        return "str" in kinds
    return ("list" if isinstance(value, list) else "dict") in kinds


def _env_fits(text: str, offered: EngineKnob) -> bool:
    if any(env_text(one) == text for one in offered.choices if not isinstance(one, (list, dict))):
        return True
    kinds = set(offered.kinds)
    if kinds & {"str", "list", "dict"}:
        return True
    if "bool" in kinds and text.lower() in ("0", "1", "true", "false"):
        return True
    for kind, read in (("int", int), ("float", float)):
        if kind in kinds:
            try:
                read(text)
            except ValueError:
                continue
            return True
    return False


def _is_default(value: ArgValue | Value, offered: EngineKnob, *, is_env: bool) -> bool:
    if value is None or not offered.default_known or offered.default is None:
        return False
    if is_env and not isinstance(value, (list, dict)):
        default = offered.default
        return not isinstance(default, (list, dict)) and env_text(value) == env_text(default)
    return type(value) is type(offered.default) and value == offered.default
