"""Launch settings as plain data: server arguments and environment variables, and how they merge.

An argument is keyed by its flag without the leading dashes, spelt as the engine spells it
(``max-model-len``). A dotted key (``speculative-config.num_speculative_tokens``) addresses one
entry of an argument that takes JSON; merging folds dotted keys into that JSON value, so that the
same settings always have the same form, however they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from search_spaces.expression import Value

ArgValue = Value | list[Any] | dict[str, Any]


def flag_key(flag: str) -> str:
    """``--max-model-len`` → ``max-model-len``."""
    return flag.lstrip("-")


def env_text(value: Value) -> str | None:
    """An environment variable's text for a value; None (null) leaves the variable unset."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _stripped(args: object) -> object:
    if not isinstance(args, Mapping):
        return args
    return {flag_key(key) if isinstance(key, str) else key: args[key] for key in args}


def _texts(env: object) -> object:
    """YAML reads ``VLLM_X: 1`` as a number; the environment knows texts only."""
    if not isinstance(env, Mapping):
        return env
    return {
        name: env_text(value) if isinstance(value, (bool, int, float)) else value
        for name, value in env.items()
    }


_WRITTEN = WithJsonSchema({"type": ["string", "number", "boolean", "null"]})
"""What a document may write for a variable's text."""


class Settings(BaseModel):
    """Server arguments and environment variables, as a document states them.

    `env: {NAME: null}` and `args: {flag: null}` leave out what a base set before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    args: Annotated[dict[str, ArgValue], BeforeValidator(_stripped)] = Field(
        default_factory=dict, description="Server arguments by flag, without leading dashes"
    )
    env: Annotated[dict[str, Annotated[str | None, _WRITTEN]], BeforeValidator(_texts)] = Field(
        default_factory=dict, description="Environment variables by name"
    )

    def leaves(self) -> Iterator[tuple[str, str, ArgValue]]:
        """Every single setting as (``arg`` | ``env``, dotted name, value)."""
        for flag, value in self.args.items():
            for path, leaf in _leaves(flag, value):
                yield "arg", path, leaf
        for name, text in self.env.items():
            yield "env", name, text


def _leaves(path: str, value: ArgValue) -> Iterator[tuple[str, ArgValue]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path, value


class Overlay:
    """Accumulates settings in order; the later wins, leaf by leaf within JSON arguments."""

    def __init__(self) -> None:
        self.args: dict[str, Any] = {}
        self.env: dict[str, str] = {}

    def merge(self, settings: Settings) -> None:
        """Lay `settings` over what is there."""
        for flag, value in settings.args.items():
            self.set_arg(flag, value)
        for name, text in settings.env.items():
            self.set_env(name, text)

    def set_env(self, name: str, value: Value) -> None:
        """Set, or with None unset, one environment variable."""
        text = env_text(value)
        if text is None:
            self.env.pop(name, None)
        else:
            self.env[name] = text

    def set_arg(self, flag: str, value: ArgValue) -> None:
        """Set one argument, or one entry of a JSON argument when the flag is dotted."""
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                self.set_arg(f"{flag}.{key}", inner)
            return
        first, *rest = flag.split(".")
        if not rest:
            if value is None:
                self.args.pop(first, None)
            else:
                self.args[first] = value
            return
        # Only a nested mapping is copied on the way down: documents stay as they are.
        holder: dict[str, Any] = self.args
        for key in [first, *rest[:-1]]:
            inner = holder.get(key)
            copy: dict[str, Any] = dict(inner) if isinstance(inner, dict) else {}
            holder[key] = copy
            holder = copy
        if value is None:
            holder.pop(rest[-1], None)
        else:
            holder[rest[-1]] = value
        self._drop_empty(first, rest)

    def _drop_empty(self, first: str, rest: list[str]) -> None:
        chain: list[tuple[dict[str, Any], str]] = [(self.args, first)]
        for key in rest[:-1]:
            holder, name = chain[-1]
            chain.append((holder[name], key))
        for holder, name in reversed(chain):
            if holder[name] == {}:
                del holder[name]
